"""What keeps the workspace from being written to, as one error: its disk is full, read-only, or another user's.

What is kept there is a hint, a log or a lock between two runs. So what must be possible whatever the disk says, ending
a lane, goes on without (`spared`); everything else ends with the error.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from sparkbuild.core.errors import StateError

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_WORDS = ("unable to open database", "disk is full", "disk I/O error", "readonly database", "read-only")  # of sqlite


@contextmanager
def writing(path: str | os.PathLike[str]) -> Iterator[None]:
    """What is done in the block needs the workspace: OSError and errors of sqlite become a StateError."""
    try:
        yield
    except OSError as error:
        raise _error(str(error.filename or path), error.strerror or str(error), error.errno or 0) from error
    except Exception as error:
        # by its name: to import sqlite3 for this alone would cost each run 3 ms
        if type(error).__module__ != "sqlite3":
            raise
        number = errno.ENOSPC if "full" in str(error) else errno.EROFS if "readonly" in str(error) else 0
        raise _error(str(path), str(error), number) from error


@contextmanager
def spared(told: Callable[[str], None], *, needed: bool) -> Iterator[None]:
    """Unless it is `needed`, do without what the block writes into the workspace, and tell why once it failed."""
    try:
        yield
    except StateError as error:
        if needed:
            raise
        told(f"{error.what} ({error.found}): {error.where}; it is done without")


def _error(path: str, said: str, number: int) -> StateError:
    place = path
    while not os.path.isdir(place) and place not in {"", "/"}:
        place = os.path.dirname(place)
    place = place or "."
    found, next_ = said, f"ls -ld {path}; df {place}"
    try:
        disk = os.statvfs(place)
    except OSError:
        disk = None
    if disk is not None and disk.f_flag & os.ST_RDONLY:
        found, next_ = (
            f"{said}: the file system is read-only",
            f"findmnt -T {place} shows which; sudo mount -o remount,rw that one",
        )
    elif number in _FULL or (disk is not None and disk.f_bavail == 0):
        free = disk.f_bavail * disk.f_frsize if disk is not None else 0
        found, next_ = f"{said}; {free} bytes free", f"make room: df {place}; then run again"
    return StateError(
        "the workspace cannot be written to",
        where=path,
        found=found,
        wanted="a workspace that this user may write to, with room",
        next=f"{next_}. Lanes can be stopped nevertheless: doit stop:<recipe>",
    )
