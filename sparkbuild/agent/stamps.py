"""Stamps of files whose content was proven: a cache beside the ledger, like git's index; losing it costs a re-hash.

`<dst>/.sparkbuild/stamps.json`: {"format": "sparkbuild-stamps", "version": 1, "seal": which ledger it was proven
against, "files": {name: [dev, ino, size, mtime_ns, ctime_ns]}}. ctime cannot be set back by anybody, so a byte
flipped with the mtime restored moves it; so do rename, link and chmod, each of which costs one harmless re-hash.
A copied tree has other inodes, so its stamps prove nothing there.
"""

from __future__ import annotations

import json
import os
import time

from sparkbuild.agent.ledger import OURS, Ledger, small_file

FORMAT, VERSION = "sparkbuild-stamps", 1
_TICK = 0.02  # seconds; a kernel's file clock may stand still for 10 ms, and two writes within look like one

Stamp = list[int]


def path_of(dst: str) -> str:
    """Where the stamps of a folder are."""
    return f"{dst}/{OURS}/stamps.json"


def of(stat: os.stat_result) -> Stamp:
    """The stamp of a file as it was looked at."""
    return [stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns]


def read(dst: str, ledger: Ledger) -> dict[str, Stamp]:
    """The stamps that belong to this ledger; none when they are missing, damaged, or another ledger's."""
    try:
        value = json.loads(small_file(path_of(dst)) or b"")
        if value["format"] != FORMAT or value["version"] != VERSION or value["seal"] != ledger.seal:
            return {}
        files = value["files"]
        return files if isinstance(files, dict) else {}
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return {}


def write(dst: str, ledger: Ledger, stamps: dict[str, Stamp]) -> None:
    """Replace the stamps. A folder that cannot be written to keeps its old ones; only time is lost."""
    path = path_of(dst)
    temporary = f"{path}.{os.getpid()}.tmp"
    value = {"format": FORMAT, "version": VERSION, "seal": ledger.seal, "files": stamps}
    try:
        with open(temporary, "w", encoding="utf-8") as file:
            json.dump(value, file, ensure_ascii=False, separators=(",", ":"))
        os.rename(temporary, path)  # no fsync: it is a cache, and a torn one is read as none
    except OSError:
        if os.path.lexists(temporary):
            os.unlink(temporary)


def let_settle(stat: os.stat_result) -> None:
    """Wait until a change of the file would move its ctime, so that the stamp to be taken cannot hide one."""
    age = time.time() - stat.st_ctime_ns / 1e9
    if 0 <= age < _TICK:  # a ctime from the future: the clock was set back, nothing to wait for
        time.sleep(_TICK - age)
