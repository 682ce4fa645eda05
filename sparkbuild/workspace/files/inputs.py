"""Local files that decide a result: regular, small, inside their folder, and known by their sha256."""

from __future__ import annotations

import hashlib
import os
import re

from sparkbuild.core.errors import ConfigError
from sparkbuild.core.goal import Input
from sparkbuild.workspace.files import looked
from sparkbuild.workspace.files.smallfile import UnreadableError, read_small

LIMIT = 16 * 1024 * 1024  # bytes; `doit list` reads these files, so what is bigger is data and belongs in staging

_NOT_DATA = frozenset({".git", "__pycache__"})
_MANY = 1000  # `doit list` reads them all

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")


def read_input(root: str, folder: str, name: str) -> Input:
    """Read and hash the file `name` of `folder` ("" for the workspace itself), both relative to `root`.

    The path in the result is relative to `root`. Raises ConfigError without `where` (only the caller knows who asked)
    when the name leads out of the folder, even by a link, or the file is missing, not regular, unreadable or too big.
    """
    check_name(name)
    base = f"{root}/{folder}" if folder else root
    shown = f"{folder}/{name}" if folder else name
    outside = _leads_out(base, name)
    if outside:
        place = f"{folder}/" if folder else "the workspace"
        raise ConfigError(
            f"{shown} is a link that leads out of {place}",
            found=outside,
            wanted=f"a file inside {place}",
            next="put a copy of the file there, or stage it if it is data",
        )
    try:
        return Input(shown, hashlib.sha256(read_small(f"{base}/{name}", LIMIT)).hexdigest())
    except UnreadableError as error:
        raise ConfigError(
            f"{shown} {error.what}", found=error.found, wanted=error.wanted, next=_next(error.what, shown)
        ) from error


def files_below(root: str, folder: str, name: str) -> list[str]:
    """The file `name` itself, or all files of the folder that it is, sorted, each by its path from `folder`. What git
    and Python keep for themselves (`.git`, `__pycache__`) is none of them. Raises ConfigError, as read_input does.
    """
    check_name(name)
    base = f"{root}/{folder}/{name}"
    if not os.path.isdir(base) or _leads_out(f"{root}/{folder}", name):
        return [name]
    found = []
    for place, folders, names in os.walk(base):
        looked.listing(place)
        folders[:] = sorted(one for one in folders if one not in _NOT_DATA)
        inner = os.path.relpath(place, f"{root}/{folder}")
        links = [one for one in folders if os.path.islink(f"{place}/{one}")]  # read_input refuses them by name
        found += [f"{inner}/{one}" for one in (*names, *links)]
        if len(found) > _MANY:
            raise ConfigError(
                f"{folder}/{name} holds more than {_MANY} files", next="data belongs in staging: a [[staging]] block"
            )
    if not found:
        raise ConfigError(f"{folder}/{name} is a folder without a file", wanted="a file, or a folder with files")
    return sorted(found)


def check_name(name: str) -> None:
    """Raise ConfigError when `name` is not a plain relative path such as `patches/fix.diff`."""
    wanted = "a relative path inside the folder, such as `patches/fix.diff`"
    if not name or _CONTROL.search(name):
        raise ConfigError(f"{name!r} cannot be a file name", wanted=wanted)
    if name.startswith("/") or ".." in name.split("/"):
        raise ConfigError(f"`{name}` leads out of its folder", wanted=wanted)
    if os.path.normpath(name) != name:  # two spellings of one file would be two different inputs
        raise ConfigError(f"`{name}` is not in its plain form", wanted=f"`{os.path.normpath(name)}`")


def _next(what: str, shown: str) -> str:
    if what == "does not exist":
        return f"create or restore {shown}"
    if what == "is too big":
        return "data belongs in staging: pin it as an artifact in a lock and name it in a [[staging]] block"
    return ""


def _leads_out(base: str, name: str) -> str:
    """Where a name really leads when that is outside `base`, else "". Asks only for the parts below `base`."""
    path = base
    for part in name.split("/"):
        path = f"{path}/{part}"
        if looked.is_link(path):
            break
    else:
        return ""
    real = os.path.realpath(f"{base}/{name}")
    return "" if real.startswith(os.path.realpath(base).rstrip("/") + "/") else real
