"""What a rank needs beside its image: the recipe's files and its secrets, put where its launch can name them.

Secrets lie in memory (/dev/shm), readable for the user alone, until the lane is stopped or launched anew: they are on
no disk, in no argv and in no container's settings.
"""

from __future__ import annotations

import base64
import os
import stat
from contextlib import suppress
from operator import methodcaller
from typing import TYPE_CHECKING

from sparkbuild.agent.disk.held import Held
from sparkbuild.agent.disk.private import private
from sparkbuild.agent.lane import records
from sparkbuild.agent.wire.lanelabels import store_id
from sparkbuild.agent.wire.protocol import AgentError, Reporter

if TYPE_CHECKING:
    from sparkbuild.agent.wire.lanes import PrepareRequest, PrepareResult
    from sparkbuild.agent.wire.records import LaneRecord

FILES = "files-"  # begins the names of folders with a recipe's files
_WHAT = "the folder for secrets"
MEMORY = "/dev/shm"  # noqa: S108 - a folder of our own is made in it, with mode 0700


def run(request: PrepareRequest, reporter: Reporter) -> PrepareResult:
    """See PREPARE. Other content lies in another folder, so that a running lane keeps its own."""
    del reporter
    store, recipe = request["store"], request["recipe"]
    secrets = request.get("secrets") or {}
    for name in (recipe, request["launch"], request["folder"], *secrets):
        _must_be_plain(name)
    folder = records.folder(store, recipe)
    os.makedirs(folder, exist_ok=True)
    result: PrepareResult = {
        "files": _files(folder, request["folder"], request.get("files") or {}),
        "secrets": _secrets(store, recipe, request["launch"], secrets),
    }
    _sweep(folder, request["folder"], records.record(store, recipe))
    return result


def _sweep(folder: str, current: str, before: LaneRecord | None) -> None:
    """Remove the files of older launches; those that the last one named stay, since it may still run."""
    if before is None:
        return
    used = {os.path.normpath(path) for path in before.get("uses") or ()}
    argv = " ".join(before.get("argv") or ())
    with Held(folder) as held:
        for name in held.listdir():
            path = held.at(name)
            if name.startswith(FILES) and name != current and path not in used and path not in argv:
                held.rmtree(name)


_PROGRAMS = (b"#!", b"\x7fELF")  # told by the content, which is in the key; a mode is not


def _must_be_plain(name: str) -> None:
    """What is made below our folders is one step down from them."""
    if name in ("", ".", "..") or "/" in name or "\0" in name:
        raise AgentError("a name that is none", found=repr(name), wanted="one without a slash")


def _files(folder: str, name: str, encoded: dict[str, str]) -> str:
    if not encoded:
        return ""
    with Held(folder) as held:
        # what a power cut left of an earlier try is not shown to a container
        for left in _files_in(held, name) - {os.path.normpath(f"{name}/{inner}") for inner in encoded}:
            held.unlink(left)
        for inner, data in ((inner, base64.b64decode(text)) for inner, text in encoded.items()):
            place = os.path.normpath(os.path.join(name, inner))
            if not place.startswith(name + os.sep) or "\0" in inner:
                raise AgentError("a file of the recipe would lie outside of its folder", found=inner)
            held.makedirs(os.path.dirname(place))  # a container may run as another user: readable, whatever our umask
            held.replace(place, methodcaller("write", data), 0o755 if data.startswith(_PROGRAMS) else 0o644)
    return os.path.join(folder, name)


def _files_in(held: Held, name: str) -> set[str]:
    """All that is below a folder and is none itself."""
    here = held.lstat(name)
    if here is None or not stat.S_ISDIR(here.st_mode):
        return {name} if here else set()
    return {file for inner in held.listdir(name) for file in _files_in(held, f"{name}/{inner}")}


def _base(store: str, recipe: str) -> tuple[str, str]:
    """Where the secrets of a recipe lie in memory: this user's folder, and a name in it that the store is part of."""
    return os.path.join(MEMORY, f"sparkbuild-{os.geteuid()}"), f"{recipe}-{store_id(store)}"


def forget(store: str, recipe: str, launch: str = "") -> None:
    """Remove the secrets of a lane that no longer runs: of one launch, or of all. Everybody may write to where they
    lie: where another user has our name there, nothing is ours to remove.
    """
    if launch:
        _must_be_plain(launch)
    top, name = _base(store, recipe)
    if not os.path.lexists(top):
        return
    with suppress(AgentError), private(top, _WHAT) as held:
        held.rmtree(f"{name}/{launch}" if launch else name)


def _secrets(store: str, recipe: str, launch: str, values: dict[str, str]) -> str:
    forget(store, recipe)
    if not values:
        return ""
    top, name = _base(store, recipe)
    with private(top, _WHAT) as held:
        held.makedirs(f"{name}/{launch}", 0o700)
        for secret, value in values.items():
            data = value.encode(errors="surrogateescape")
            held.replace(f"{name}/{launch}/{secret}", methodcaller("write", data), 0o600)
    return os.path.join(top, name, launch)
