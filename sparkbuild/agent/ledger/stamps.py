"""Stamps of files whose content was proven, in `<dst>/.sparkbuild/stamps.json`: a cache beside the ledger, like git's
index; losing it costs a re-hash.

ctime cannot be set back by anybody, so a byte flipped with the mtime restored moves it; so do rename, link and chmod,
each of which costs one harmless re-hash, unless we did it ourselves (`restamp`).
A copied tree has other inodes, so its stamps prove nothing there.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from sparkbuild.agent.disk import questions
from sparkbuild.agent.disk.files import dump
from sparkbuild.agent.disk.held import Held
from sparkbuild.agent.ledger import modes, way
from sparkbuild.agent.ledger.ledger import Ledger, path_of as ledger_path, small_file
from sparkbuild.agent.wire.layout import OURS, STAMPS_FILE

if TYPE_CHECKING:
    from sparkbuild.agent.wire.staging.sources import About

FORMAT, VERSION = "sparkbuild-stamps", 2
_NAME = f"{OURS}/{STAMPS_FILE}"
TICK = 0.02  # seconds; a kernel's file clock may stand still for 10 ms, and two writes within look like one

Stamp = list[int]
_Cache = Mapping[str, Any]  # as it lies there: whoever reads of it is prepared for anything


def path_of(dst: str) -> str:
    """Where the stamps of a folder are."""
    return f"{dst}/{_NAME}"


def of(stat: os.stat_result) -> Stamp:
    """The stamp of a file as it was looked at."""
    return [stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns]


def read(dst: str, ledger: Ledger) -> dict[str, Stamp]:
    """The stamps that belong to this ledger; none when they are missing, damaged, or another ledger's."""
    value = _load(dst)
    files = value.get("files") if value.get("seal") == ledger.seal else None
    return files if isinstance(files, dict) else {}


def proven(dst: str) -> dict[str, Stamp]:
    """The stamps that are kept there, whichever ledger they belong to: files that were staged, as they were left."""
    files = _load(dst).get("files")
    return files if isinstance(files, dict) else {}


def restamp(dst: str, ledger: Ledger, moved: dict[str, tuple[Stamp, Stamp]]) -> list[str]:
    """Files that we gave another name, or took one from, keep being believed: name -> (its stamp before, after).

    To be called under the folder's lock. Only for a file whose stamp was right before, and of which nothing moved but
    the ctime; the others keep their old stamp, which costs one re-hash. Returns the names that were taken.
    """
    known = read(dst, ledger)
    taken = [n for n, (old, new) in moved.items() if known.get(n) == old and old[:4] == new[:4]]
    if taken:
        write(dst, ledger, {**known, **{name: moved[name][1] for name in taken}})
    return taken


class Unmoved(NamedTuple):
    """A folder in which nothing moved; `closed`: as of modes.closed."""

    bytes: int
    about: About
    closed: str


def unmoved(dst: str, key: str) -> Unmoved | None:
    """A folder in which nothing moved since all of it was proven against a ledger with this key; None when that cannot
    be said. The ledger's own stamp stands for its content, so that it need not be read.
    """
    value = _load(dst)
    try:
        if value.get("key") != key or not value["whole"] or value["ledger"] != of(os.lstat(ledger_path(dst))):
            return None
        if way.detours(dst, (*value["files"], *value.get("links", {}))):
            return None
        closed = modes.closed(dst, way.steps(value["files"]))
        for name, stamp in questions.asking_each(dst, value["files"].items()):
            status = os.lstat(f"{dst}/{name}")
            if of(status) != stamp:
                return None
            if not closed and not modes.is_open(status):
                closed = f"{dst}/{name}"
        for name, text in questions.asking_each(dst, value.get("links", {}).items()):
            if os.readlink(f"{dst}/{name}") != text:
                return None
        # held against its shape where it comes in (nodes/rpc/shapes.py)
        return Unmoved(int(value["total"]), cast("About", dict(value.get("about", {}))), closed)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _load(dst: str) -> _Cache:
    try:
        value: _Cache = json.loads(small_file(path_of(dst)) or b"")
        return value if value["format"] == FORMAT and value["version"] == VERSION else {}
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return {}


def write(dst: str, ledger: Ledger, stamps: dict[str, Stamp]) -> None:
    """Replace the stamps. A folder that cannot be written to keeps its old ones; only time is lost."""
    value: dict[str, object] = {"format": FORMAT, "version": VERSION, "seal": ledger.seal}
    value |= {"key": ledger.key, "total": ledger.total}
    try:
        stamp = of(os.lstat(ledger_path(dst)))
        value |= {"ledger": stamp, "whole": len(stamps) == len(ledger.files), "files": stamps}
        value |= {"links": {link.name: link.text for link in ledger.links}, "about": ledger.about}
        with Held(dst) as held:  # not flushed: it is a cache, and a torn one is read as none
            held.replace(_NAME, lambda file: dump(value, file), flush=False)
    except OSError:
        return


def let_settle(stat: os.stat_result) -> None:
    """Wait until a change of the file would move its ctime, so that the stamp to be taken cannot hide one."""
    age = time.time() - stat.st_ctime_ns / 1e9
    if 0 <= age < TICK:  # a ctime from the future: the clock was set back, nothing to wait for
        time.sleep(TICK - age)
