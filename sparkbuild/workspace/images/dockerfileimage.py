"""An image of kind `dockerfile` held against its files and its lock."""

from __future__ import annotations

from sparkbuild.core.errors import ConfigError, LockError
from sparkbuild.core.goal import Input
from sparkbuild.core.suggest import did_you_mean
from sparkbuild.workspace.files.inputs import LIMIT, read_input
from sparkbuild.workspace.images.dockerfile import RESERVED_ARGS, TEMPLATE_BASE, Rules, faults
from sparkbuild.workspace.locks.sourcelock import SourceLock
from sparkbuild.workspace.locks.text import input_key
from sparkbuild.workspace.shapes.schema import DockerfileImage
from sparkbuild.workspace.toml.findings import Findings
from sparkbuild.workspace.toml.mistakes import Mistake, as_error
from sparkbuild.workspace.toml.tomlfile import text_of

UNPUBLISHED = ".unpublished"  # `<component>.unpublished=why`: wanted, but what would pin it is not public


def unpublished(lock: SourceLock, components: tuple[str, ...]) -> dict[str, str]:
    """The components that the lock says cannot be had, and why."""
    return {name: text for name in components if (text := lock.values.get(f"{name}{UNPUBLISHED}", ""))}


def check(spec: DockerfileImage, folder: str, lock: SourceLock | None, findings: Findings) -> list[Input]:
    """Note what is wrong with an image; returns its own inputs beside `files`: the template and the patches. Raises
    ConfigError for mistakes in the template, which stand in another file.
    """
    inputs = _template(spec, folder, findings)
    for name, files in spec.patches.items():
        if name not in spec.sources:
            hint = did_you_mean(name, spec.sources) or "one of `sources`"
            findings.add(("patches", name), f"`{name}` has patches and is not among the sources", wanted=hint)
        inputs += _patches(name, files, folder, lock, findings)
    findings.unique("gates", [gate.id for gate in spec.gates])
    for index, gate in enumerate(spec.gates):
        if any("\0" in word for word in gate.command):
            findings.add(("gates", index, "command"), "a word of the command holds a null byte")
    _args(spec, findings)
    for key in ("sources", "artifacts", "secrets"):
        _once(key, getattr(spec, key), findings)
    if lock is not None:
        _pins(spec, lock, findings)
    return inputs


def _args(spec: DockerfileImage, findings: Findings) -> None:
    for name, value in spec.args.items():
        if name in spec.secrets:
            findings.add(
                ("args", name), f"`{name}` is a secret, and an arg stays in the image", wanted="one of the two"
            )
        if RESERVED_ARGS.fullmatch(name):
            what = f"`{name}` as an arg would change how BuildKit itself builds"
            findings.add(("args", name), what, wanted="another name")
        if isinstance(value, str) and "\0" in value:
            findings.add(("args", name), f"the value of `{name}` holds a null byte")


def _template(spec: DockerfileImage, folder: str, findings: Findings) -> list[Input]:
    try:
        found = read_input(findings.root, folder, spec.dockerfile)
    except ConfigError as error:
        findings.add_error(("dockerfile",), error)
        return []
    text = text_of(f"{findings.root}/{found.path}", findings.root, LIMIT)
    base = "scratch" if spec.base == "scratch" else TEMPLATE_BASE
    args = {name: str(value) for name, value in spec.args.items()}
    wrong = faults(text, Rules(base, spec.network, spec.secrets, args))
    if wrong:
        raise as_error(found.path, [Mistake(one.line, one.what, one.found, one.wanted, "") for one in wrong])
    return [found]


def _patches(
    name: str, files: tuple[str, ...], folder: str, lock: SourceLock | None, findings: Findings
) -> list[Input]:
    inputs = []
    for index, file in enumerate(files):
        try:
            found = read_input(findings.root, folder, file)
        except ConfigError as error:
            findings.add_error(("patches", name, index), error)
            continue
        inputs.append(found)
        if lock is not None and found.path not in lock.inputs():
            findings.add(
                ("patches", name, index),
                f"{lock.path} does not pin {found.path}",
                wanted=f"{input_key(found.path)}={found.sha256}",
                next_=f"add that line to {lock.path}",
            )
    return inputs


def _once(key: str, names: tuple[str, ...], findings: Findings) -> None:
    for index, name in enumerate(names):
        if name in names[:index]:
            findings.add((key, index), f"`{name}` is twice among the {key}", wanted="each once")


def _pins(spec: DockerfileImage, lock: SourceLock, findings: Findings) -> None:
    """Everything that it takes from the lock is there, or is said not to be public."""
    missing = unpublished(lock, (*spec.sources, *spec.artifacts))
    filenames: dict[str, str] = {}
    for key, read in (("sources", lock.source), ("artifacts", lock.artifact)):
        for index, name in enumerate(getattr(spec, key)):
            if name in missing:
                continue
            try:
                found = read(name)
            except LockError as error:
                findings.add_error((key, index), error)
                continue
            filename = str(getattr(found, "filename", ""))
            if filename and filename in filenames:
                what = f"two artifacts would both become artifacts/{filename}"
                findings.add((key, index), what, found=f"{filenames[filename]} and {name}")
            filenames.setdefault(filename, name)
    kind, _, key = spec.base.partition(":")
    if kind == "lock":
        try:
            lock.image(key)
        except LockError as error:
            findings.add_error(("base",), error)
