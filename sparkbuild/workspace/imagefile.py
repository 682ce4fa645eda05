"""One image of the workspace: images/<name>/image.toml, checked against its files and its lock."""

from __future__ import annotations

from sparkbuild.core.errors import ConfigError, LockError
from sparkbuild.core.goal import Input
from sparkbuild.workspace import toml
from sparkbuild.workspace.findings import Findings
from sparkbuild.workspace.inputs import read_input
from sparkbuild.workspace.mistakes import Mistake, as_error
from sparkbuild.workspace.schema import ImageFile
from sparkbuild.workspace.sourcelock import SourceLock, input_key, verify
from sparkbuild.workspace.workspace import Image


def load_image(root: str, name: str, locks: dict[str, SourceLock], problems: dict[str, ConfigError]) -> Image:
    """Read and check one image. Raises ConfigError with everything that is wrong with it.

    `problems` are those found so far: they tell a broken lock from one that is not there.
    """
    folder = f"images/{name}"
    path = f"{folder}/image.toml"
    spec = toml.read(f"{root}/{path}", ImageFile, root)
    findings = Findings(root, path)
    lock = locks.get(spec.lock)
    if lock is None:
        findings.reference(("lock",), spec.lock, "locks", locks, problems)
    inputs: list[Input] = []
    try:
        requirements = read_input(root, folder, spec.requirements)
    except ConfigError as error:
        findings.add_error(("requirements",), error)
    else:
        inputs.append(requirements)
        if lock is not None and requirements.path not in lock.inputs():
            findings.add(
                ("requirements",),
                f"{lock.path} does not pin {requirements.path}",
                wanted=f"{input_key(requirements.path)}={requirements.sha256}",
                next_=f"add that line to {lock.path}",
            )
    inputs.extend(findings.inputs(folder, spec.files))
    _check_names(spec.files, findings)
    failure = findings.error()
    if failure is None and lock is not None:
        failure = _disagreement(lock, root)
    if failure is not None or lock is None:
        raise failure or ConfigError(f"{path} names no lock", where=f"{path}:1")
    return Image(name, folder, spec, lock, tuple(inputs))


def _check_names(files: tuple[str, ...], findings: Findings) -> None:
    """In the image the files lie side by side under their base names."""
    first: dict[str, str] = {}
    for index, file in enumerate(files):
        base = file.rpartition("/")[2]
        if base in first:
            what = f"two files would both become files/{base} in the image"
            findings.add(("files", index), what, found=f"{first[base]} and {file}", next_="rename one of them")
        first.setdefault(base, file)


def _disagreement(lock: SourceLock, root: str) -> ConfigError | None:
    errors = verify(lock, root)
    if len(errors) == 1:
        return errors[0]
    lines = [int(error.where.rpartition(":")[2]) for error in errors]
    mistakes = [Mistake(line, e.what, e.found, e.wanted, e.next) for line, e in zip(lines, errors, strict=True)]
    return as_error(lock.path, mistakes, LockError) if mistakes else None
