"""An artifact of a source lock: one file that can be fetched, known by its sha256 before it is."""

from __future__ import annotations

import re
from urllib.parse import unquote, urlsplit  # pathlib has it loaded already

import msgspec

from sparkbuild.core.errors import LockError
from sparkbuild.core.secrets import has_login, without_login
from sparkbuild.core.suggest import did_you_mean

_LOGIN = "a URL without a user name or password: workspaces are published, and logs are shown"
_WHEEL = (".wheel.name", ".wheel.version", ".wheel.file", ".wheel.sha256")
_URL = (".artifact.url", ".artifact.sha256")
# Names and versions end up as arguments of an installer, so neither may look like an option.
_DISTRIBUTION = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")
_VERSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9.!+_-]*")
# Read as archives, by their name; the agent's own lists (agent.source.members) are these. `UNREADABLE` are not read.
ARCHIVES = (".whl", ".zip")
UNREADABLE = (".tar", ".tgz", ".tar.gz", ".tar.bz2", ".tar.xz", ".tar.zst")
_FILENAME = re.compile(r"[A-Za-z0-9_][^/\x00-\x1f\x7f]*")


class Artifact(msgspec.Struct, frozen=True):
    """`filename` is a plain file name. `wheel` is `name==version` for a wheel of the package index, else "".

    `url` is "" for a wheel, else an http(s) or file URL; `file:relative/path` is relative to the workspace.
    """

    component: str
    filename: str
    sha256: str
    wheel: str
    url: str


def components(values: dict[str, str]) -> tuple[str, ...]:
    """The components of a lock that are artifacts, sorted."""
    found = {key.removesuffix(ending) for key in values for ending in (_WHEEL[0], _URL[0]) if key.endswith(ending)}
    return tuple(sorted(found - {""}))


def artifact(component: str, values: dict[str, str], path: str, lines: dict[str, int]) -> Artifact:
    """The artifact `component` of a lock's values; `path` and `lines` (line by key) are for the errors.

    Keys: `<c>.wheel.name`, `.wheel.version`, `.wheel.file`, `.wheel.sha256` for a wheel from the package index, or
    `<c>.artifact.url`, `.artifact.sha256` and optionally `.artifact.file` (default: the last part of the URL's path).

    Raises LockError when the component is missing, incomplete, both at once, or a value does not fit.
    """
    wheel = [key for key in _WHEEL if component + key in values]
    url = [key for key in _URL if component + key in values]
    if not wheel and not url:
        raise LockError(
            f"no artifact `{component}` in {path}",
            where=f"{path}:1",
            wanted=did_you_mean(component, components(values)) or f"{component}.wheel.* or {component}.artifact.* keys",
        )
    some = component + (wheel or url)[0]
    where = f"{path}:{lines.get(some, 1)}"
    if wheel and url:
        raise LockError(
            f"`{component}` is pinned twice, as a wheel and by URL",
            where=where,
            found=f"`{some}` and `{component}{url[0]}`",
            wanted=f"either {component}.wheel.* or {component}.artifact.*",
        )
    missing = [component + key for key in (_WHEEL if wheel else _URL) if component + key not in values]
    if missing:
        raise LockError(
            f"`{component}` is not completely pinned", where=where, found=f"`{some}`", wanted=", ".join(missing)
        )

    keys = _Keys(component, values, path, lines)
    return _wheel(keys) if wheel else _download(keys)


class _Keys:
    """The keys of one component."""

    def __init__(self, component: str, values: dict[str, str], path: str, lines: dict[str, int]) -> None:
        self.component = component
        self.values = values
        self.path = path
        self.lines = lines

    def get(self, key: str, default: str = "") -> str:
        return self.values.get(self.component + key, default)

    def refuse(self, key: str, wanted: str) -> LockError:
        full = self.component + key
        where = f"{self.path}:{self.lines.get(full, 1)}"
        found = repr(without_login(self.values[full]))
        return LockError(f"`{full}` cannot be used", where=where, found=found, wanted=wanted)


def _wheel(keys: _Keys) -> Artifact:
    name, version, filename, sha256 = (keys.get(key) for key in _WHEEL)
    if not _DISTRIBUTION.fullmatch(name):
        raise keys.refuse(".wheel.name", "a name in the package index")
    if not _VERSION.fullmatch(version):
        raise keys.refuse(".wheel.version", "one exact version")
    if not _FILENAME.fullmatch(filename) or not filename.endswith(".whl"):
        raise keys.refuse(".wheel.file", "the plain file name of a .whl")
    return Artifact(keys.component, filename, sha256, f"{name}=={version}", "")


def _download(keys: _Keys) -> Artifact:
    url = keys.get(".artifact.url")
    wanted = url_wanted(url)
    if wanted:
        raise keys.refuse(".artifact.url", wanted)
    named = keys.get(".artifact.file")
    filename = named or url_filename(url)
    if not _FILENAME.fullmatch(filename):
        if named:
            raise keys.refuse(".artifact.file", "a plain file name")
        raise keys.refuse(".artifact.url", f"a plain file name at its end, or `{keys.component}.artifact.file`")
    return Artifact(keys.component, filename, keys.get(".artifact.sha256"), "", url)


def url_filename(url: str) -> str:
    """The name of the file that a URL gives: the last part of its path."""
    return unquote(urlsplit(url).path.rpartition("/")[2])


def is_filename(name: str) -> bool:
    """Whether it is a plain file name."""
    return bool(_FILENAME.fullmatch(name))


def url_wanted(url: str) -> str:
    """What is wanted instead of this URL, or ""."""
    wanted = "an http://, https:// or file: URL"
    if has_login(url):
        return _LOGIN
    try:
        parts = urlsplit(url)
        _ = parts.port  # raises for one that is no number
    except ValueError:
        return wanted
    if " " in url or parts.scheme not in {"http", "https", "file"}:
        return wanted
    if parts.scheme == "file":
        plain = parts.netloc in {"", "localhost"} and parts.path and ".." not in parts.path.split("/")
        return "" if plain else "file:///absolute/path, or file:path/inside/the/workspace"
    return "" if parts.hostname else "a URL with a host"
