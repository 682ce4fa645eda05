"""One image of the workspace: images/<name>/image.toml, checked against its files and its lock."""

from __future__ import annotations

import re

from sparkbuild.core.errors import ConfigError, LockError
from sparkbuild.core.goal import Input
from sparkbuild.workspace.files.inputs import LIMIT, read_input
from sparkbuild.workspace.images import dockerfileimage
from sparkbuild.workspace.locks.sourcelock import SourceLock, verify
from sparkbuild.workspace.locks.text import input_key
from sparkbuild.workspace.shapes.schema import DockerfileImage, DockerImage, ImageFile, VenvImage
from sparkbuild.workspace.shapes.workspace import Image
from sparkbuild.workspace.toml import tomlfile
from sparkbuild.workspace.toml.findings import Findings
from sparkbuild.workspace.toml.mistakes import Mistake, as_error

_REPOSITORY = re.compile(r"[a-z0-9]+(?:[._-][a-z0-9]+)*")  # a part of docker's own, somewhat narrower


def load_image(root: str, name: str, locks: dict[str, SourceLock], problems: dict[str, ConfigError]) -> Image:
    """Read and check one image. Raises ConfigError with everything that is wrong with it.

    `problems` are those found so far: they tell a broken lock from one that is not there.
    """
    folder = f"images/{name}"
    path = f"{folder}/image.toml"
    spec: ImageFile = tomlfile.read(f"{root}/{path}", ImageFile, root)
    findings = Findings(root, path)
    lock = locks.get(spec.lock)
    if lock is None:
        findings.reference(("lock",), spec.lock, "locks", locks, problems)
    inputs: list[Input] = []
    if isinstance(spec, VenvImage) or (isinstance(spec, DockerImage) and spec.requirements):
        inputs.extend(_requirements(root, folder, spec.requirements, lock, findings))
    inputs.extend(_files(root, folder, spec.files, findings))
    if not isinstance(spec, VenvImage):
        _check_name(name, findings)
    if isinstance(spec, DockerImage):
        _check_docker(spec, lock, findings)
    if isinstance(spec, DockerfileImage):
        inputs.extend(dockerfileimage.check(spec, folder, lock, findings))
    failure = findings.error()
    if failure is None and lock is not None:
        failure = _disagreement(lock, root)
    if failure is not None or lock is None:
        raise failure or ConfigError(f"{path} names no lock", where=f"{path}:1")
    return Image(name, folder, spec, lock, tuple(inputs))


def place_of(folder: str, file: str) -> tuple[str, str]:
    """The folder and the name in it that an entry of `files` means: `../<image>/<file>` is of another image."""
    if file.startswith("../"):
        other, _, rest = file[3:].partition("/")
        if other not in {"", ".", ".."} and rest:
            return f"{folder.rpartition('/')[0]}/{other}", rest
    return folder, file


def _requirements(root: str, folder: str, name: str, lock: SourceLock | None, findings: Findings) -> tuple[Input, ...]:
    try:
        found = read_input(root, folder, name)
        tomlfile.text_of(f"{root}/{found.path}", root, LIMIT)  # pip would be the first to say that it is no text
    except ConfigError as error:
        findings.add_error(("requirements",), error)
        return ()
    if lock is not None and found.path not in lock.inputs():
        findings.add(
            ("requirements",),
            f"{lock.path} does not pin {found.path}",
            wanted=f"{input_key(found.path)}={found.sha256}",
            next_=f"add that line to {lock.path}",
        )
    return (found,)


def _files(root: str, folder: str, files: tuple[str, ...], findings: Findings) -> list[Input]:
    """The `files`, each with its sha256. In the image they lie side by side under their base names."""
    found: list[Input] = []
    first: dict[str, str] = {}
    for index, file in enumerate(files):
        try:
            found.append(read_input(root, *place_of(folder, file)))
        except ConfigError as error:
            findings.add_error(("files", index), error)
        base = file.rpartition("/")[2]
        if base in first:
            what = f"two files would both become files/{base} in the image"
            findings.add(("files", index), what, found=f"{first[base]} and {file}", next_="rename one of them")
        first.setdefault(base, file)
    return found


def _check_name(name: str, findings: Findings) -> None:
    if not _REPOSITORY.fullmatch(name):
        wanted = "lower-case letters and digits, with single `.`, `_` or `-` between them"
        findings.add(("kind",), f"`{name}` cannot be the name of a docker image", wanted=wanted)


def _check_docker(spec: DockerImage, lock: SourceLock | None, findings: Findings) -> None:
    seen: set[str] = set()
    for index, component in enumerate(spec.debs):
        if component in seen:
            findings.add(("debs", index), f"`{component}` is twice among the debs", wanted="each once")
        seen.add(component)
        if lock is None:
            continue
        try:
            artifact = lock.artifact(component)
        except LockError as error:
            findings.add_error(("debs", index), error)
            continue
        if not artifact.filename.endswith(".deb"):
            findings.add(("debs", index), f"`{component}` is no Debian package", found=artifact.filename, wanted=".deb")
    if not (spec.debs or spec.requirements or spec.files):
        findings.add(("kind",), "there is nothing in the image", wanted="`debs`, `requirements` or `files`")
    for variable, value in spec.env.items():
        if "\0" in value:
            findings.add(("env", variable), f"the value of `{variable}` holds a null byte")


def _disagreement(lock: SourceLock, root: str) -> ConfigError | None:
    errors = verify(lock, root)
    if len(errors) == 1:
        return errors[0]
    lines = [int(error.where.rpartition(":")[2]) for error in errors]
    mistakes = [Mistake(line, e.what, e.found, e.wanted, e.next) for line, e in zip(lines, errors, strict=True)]
    return as_error(lock.path, mistakes, LockError) if mistakes else None
