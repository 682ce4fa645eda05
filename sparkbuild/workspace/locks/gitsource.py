"""A git source of a source lock: one commit of a repository with its tree, its submodules and its patches.

Keys of a component `c`: `c.repository`, `c.commit`, `c.tree`; optionally `c.ref` (the branch or tag that was asked
for), `c.time` (unix seconds of the commit), `c.submodule.<path>.repository`, `.commit`, `.tree` for each submodule,
nested ones by their whole path, `c.patch.<n>.sha256` for each patch, and `c.lfs`. Published locks have the first three
only.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from urllib.parse import urlsplit  # pathlib has it loaded already

import msgspec

from sparkbuild.core.errors import LockError
from sparkbuild.core.secrets import without_login
from sparkbuild.core.suggest import did_you_mean
from sparkbuild.workspace.locks.text import LockValues

REFUSED, POINTERS = "refused", "pointers"

_SUBMODULE = re.compile(r"(?P<path>.+)\.(?P<part>repository|commit|tree)")
_PATCH = re.compile(r"(?P<number>0|[1-9][0-9]{0,3})\.sha256")
_REPOSITORY = ".repository"
_PATHS = ("/", ".", "~", "-")  # how a path or an option begins, and no name of a model
_PINS = (".ref", ".commit", ".tree")
_BAD_REF = re.compile(
    r"[\x00-\x20\x7f~^:?*\[\\]|\.\.|@\{|//|/\.|\.lock(?:/|$)|^[-/.]|[/.]$|^@$"
)  # git check-ref-format
_SCHEMES = {"https", "http", "ssh", "file"}


class Submodule(msgspec.Struct, frozen=True):
    """A submodule: `path` is relative to the component's top, also for one inside another."""

    path: str
    repository: str
    commit: str
    tree: str


class Patch(msgspec.Struct, frozen=True):
    """A patch, applied in the order of the numbers. `path` is that of the lock's input with this sha256."""

    number: int
    path: str
    sha256: str


class GitSource(msgspec.Struct, frozen=True):
    """`tree` is "" and `time` is 0 where the lock does not pin them. `lfs` is "refused", or "pointers": keep them as
    they are. `repository` is a URL; `file:relative/path` is relative to the workspace.
    """

    component: str
    repository: str
    ref: str
    commit: str
    tree: str
    time: int
    submodules: tuple[Submodule, ...] = ()
    patches: tuple[Patch, ...] = ()
    lfs: str = REFUSED


def components(values: Mapping[str, str]) -> tuple[str, ...]:
    """The components that are git sources, sorted: those with a repository that is a URL, and something pinned of it.

    A model's `model.repository=org/name` is none, nor is a download that a manifest names with its commit. A path or an
    option in the place of the URL is meant as one: `source` refuses it, and it would be pinned without anybody looking.
    """
    found = set()
    for key, value in values.items():
        name = key.removesuffix(".repository")
        if name in {key, ""} or ".submodule." in name or f"{name}.artifact.url" in values:
            continue
        is_meant = ":" in value or value.startswith(_PATHS) or f"{name}.ref" in values
        if is_meant and any(name + ending in values for ending in _PINS):
            found.add(name)
    return tuple(sorted(found))


def unpinned(values: Mapping[str, str]) -> tuple[str, ...]:
    """The components of which only the repository is known, as a URL: `lock:update` can pin them. Sorted."""
    urls = {
        key[: -len(_REPOSITORY)] for key, url in values.items() if key.endswith(_REPOSITORY) and not url_wanted(url)
    }
    return tuple(sorted(name for name in urls if _is_bare(name, values)))


def _is_bare(name: str, values: Mapping[str, str]) -> bool:
    taken = any(name + ending in values for ending in (*_PINS, ".artifact.url"))
    return bool(name) and not taken and ".submodule." not in name


def source(component: str, lock: LockValues) -> GitSource:
    """The git source of that name.

    Raises LockError at the line when it is missing (did you mean), not completely pinned, or a value cannot be used.
    """
    if component not in components(lock.values):
        raise LockError(
            f"no git source `{component}` in {lock.path}",
            where=f"{lock.path}:1",
            wanted=did_you_mean(component, components(lock.values)) or f"{component}.repository, .commit and .tree",
        )
    values = lock.values
    if f"{component}.commit" not in values:
        raise LockError(
            f"`{component}` is not pinned to a commit",
            where=lock.where(f"{component}.repository"),
            wanted=f"{component}.commit and {component}.tree",
            next=f"`doit lock:update {lock.name} {component}={values.get(f'{component}.ref') or 'REF'}` writes them",
        )
    repository = _repository(lock, f"{component}.repository")
    ref = values.get(f"{component}.ref", "")
    if ref and bad_ref(ref):
        raise _refuse(lock, f"{component}.ref", "the name of a branch or a tag, or nothing")
    time = values.get(f"{component}.time", "0")
    if not re.fullmatch(r"0|[1-9][0-9]{0,10}", time):
        raise _refuse(lock, f"{component}.time", "the commit's time in unix seconds")
    lfs = values.get(f"{component}.lfs", REFUSED)
    if lfs not in {REFUSED, POINTERS}:
        raise _refuse(lock, f"{component}.lfs", f"`{REFUSED}`, or `{POINTERS}` to keep LFS pointers as they are")
    return GitSource(
        component,
        repository,
        ref,
        values[f"{component}.commit"],
        values.get(f"{component}.tree", ""),
        int(time),
        _submodules(component, lock),
        _patches(component, lock),
        lfs,
    )


def bad_ref(ref: str) -> bool:
    """True for what git would not take as the name of a branch or tag, or could take for an option."""
    return len(ref) > 250 or _BAD_REF.search(ref) is not None


def url_wanted(url: str) -> str:
    """What is wanted instead of this repository URL, or "" when it can be used: https, http, ssh or file, no token."""
    wanted = "an https://, ssh:// or file: URL"
    if re.fullmatch(r"[\w.-]+@[\w.-]+:[^:]+", url):  # the short form of ssh
        account, _, rest = url.partition(":")
        return f"ssh://{account}/{rest}"
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return wanted
    user = parts.username
    if parts.scheme == "file":
        plain = not parts.netloc and parts.path and ".." not in parts.path.split("/")
        checks = [(bool(plain), "file:///absolute/path, or file:path/inside/the/workspace")]
    else:
        no_token = parts.password is None and (user is None or parts.scheme == "ssh")
        place = parts.hostname and not parts.hostname.startswith("-") and parts.path.strip("/") and port != 0
        checks = [
            (parts.scheme in _SCHEMES, wanted),
            (bool(place), "a URL with a host and a path"),
            (no_token, "a URL without a password or token: locks are published"),
            (user is None or bool(re.fullmatch(r"\w[\w.-]*", user)), "a plain user name before the `@`"),
        ]
    checks += [(not re.search(r"[\s\x00-\x1f\x7f]", url), wanted), (not parts.query, "a URL without `?`")]
    return next((text for fits, text in checks if not fits), "")


def _repository(lock: LockValues, key: str) -> str:
    wanted = url_wanted(lock.values[key])
    if wanted:
        raise _refuse(lock, key, wanted)
    return lock.values[key]


def _refuse(lock: LockValues, key: str, wanted: str) -> LockError:
    shown = without_login(lock.values[key])
    return LockError(f"`{key}` cannot be used", where=lock.where(key), found=repr(shown[:200]), wanted=wanted)


def _submodules(component: str, lock: LockValues) -> tuple[Submodule, ...]:
    start = f"{component}.submodule."
    found: dict[str, dict[str, str]] = {}
    for key in lock.values:
        if not key.startswith(start):
            continue
        match = _SUBMODULE.fullmatch(key[len(start) :])
        if match is None:
            wanted = f"{start}<path>.repository, .commit or .tree"
            raise LockError(f"`{key}` is not a key of a submodule", where=lock.where(key), wanted=wanted)
        found.setdefault(match["path"], {})[match["part"]] = key
    made = []
    for path, keys in sorted(found.items()):
        first = next(iter(keys.values()))
        if path.startswith("/") or any(part in {"", ".", ".."} or part.lower() == ".git" for part in path.split("/")):
            wanted = "a path such as third_party/lib"
            raise LockError(f"`{first}`: its path cannot be used", where=lock.where(first), found=path, wanted=wanted)
        missing = [f"{start}{path}.{part}" for part in ("repository", "commit", "tree") if part not in keys]
        if missing:
            raise LockError(
                f"submodule {path} of `{component}` is not completely pinned",
                where=lock.where(first),
                found=f"`{first}`",
                wanted=", ".join(missing),
                next=f"`doit lock:update {lock.name} {component}={lock.values[f'{component}.commit']}` writes them",
            )
        repository = _repository(lock, keys["repository"])
        made.append(Submodule(path, repository, lock.values[keys["commit"]], lock.values[keys["tree"]]))
    return tuple(made)


def _patches(component: str, lock: LockValues) -> tuple[Patch, ...]:
    start = f"{component}.patch."
    by_sha = {sha256: path for path, sha256 in sorted(lock.inputs().items(), reverse=True)}
    made = []
    for key, sha256 in lock.values.items():
        match = _PATCH.fullmatch(key[len(start) :]) if key.startswith(start) else None
        if match is None:  # as `flashkda.patch.sha256` of published locks: a fact about a build, not a patch of ours
            continue
        if sha256 not in by_sha:
            raise LockError(
                f"`{key}`: the lock pins no file with this sha256",
                where=lock.where(key),
                found=sha256,
                wanted="input.<path of the patch>.sha256 with the same value",
                next=f"add that line to {lock.path}",
            )
        made.append(Patch(int(match["number"]), by_sha[sha256], sha256))
    return tuple(sorted(made, key=lambda patch: patch.number))
