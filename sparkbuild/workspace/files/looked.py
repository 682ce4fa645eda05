"""What reading the workspace looked at: by it one knows later, without reading, that all is as it was.

A file and a folder stand for what was in them while device, inode, mode, size and both times are the same. They are
opened for that: over NFS the attributes of a path may be old, those of a file that was just opened are not.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager

Stamp = tuple[int, int, int, int, int, int]

SETTLED = 2.0  # seconds: what is younger may change again within one tick of the clock that its times are of


class Looked:
    """By path: stamps of what was read or listed, what was not there, what was no link. `complete` is False when the
    reading stood on something else as well.
    """

    def __init__(self) -> None:
        self.stamps: dict[str, Stamp] = {}
        self.absent: list[str] = []
        self.unlinked: list[str] = []
        self.complete = True

    def newest(self) -> float:
        """When something of it changed last, in unix seconds."""
        return max((max(stamp[4:]) for stamp in self.stamps.values()), default=0) / 1e9


_looks: list[Looked] = []  # of the one who records; the workspace is read by one thread, once


@contextmanager
def recording() -> Iterator[Looked]:
    """Record what is looked at while the block runs."""
    looked = Looked()
    _looks.append(looked)
    try:
        yield looked
    finally:
        _looks.remove(looked)


def saw(path: str | os.PathLike[str], info: os.stat_result) -> None:
    """An open file or folder was read."""
    for looked in _looks:
        looked.stamps[os.fspath(path)] = stamp_of(info)


def missed(path: str | os.PathLike[str]) -> None:
    """There is nothing of this name."""
    for looked in _looks:
        looked.absent.append(os.fspath(path))


def unsure() -> None:
    """What was found depends on more than is recorded."""
    for looked in _looks:
        looked.complete = False


def exists(path: str) -> bool:
    """Whether there is something of this name, a dangling link as well. Who finds it reads it."""
    found = os.path.lexists(path)
    if not found:
        missed(path)
    return found


def is_link(path: str) -> bool:
    """Whether a name is a link."""
    link = os.path.islink(path)
    for looked in _looks:
        if link:
            looked.complete = False
        else:
            looked.unlinked.append(path)
    return link


def listing(folder: str) -> list[str]:
    """The sorted names in a folder. Raises OSError."""
    if _looks:
        try:
            saw(folder, _folder_info(folder))
        except FileNotFoundError:
            missed(folder)
            raise
    return sorted(os.listdir(folder))


def _folder_info(folder: str) -> os.stat_result:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        return os.fstat(fd)
    finally:
        os.close(fd)


def is_unchanged(looked: Looked) -> bool:
    """Whether all of it is as it was; OSError means no."""
    if any(map(os.path.lexists, looked.absent)):
        return False
    if any(stat.S_ISLNK(os.lstat(path).st_mode) for path in looked.unlinked):
        return False
    for path, stamp in looked.stamps.items():
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            if stamp_of(os.fstat(fd)) != stamp:
                return False
        finally:
            os.close(fd)
    return True


def stamp_of(info: os.stat_result) -> Stamp:
    """What tells two states of a file apart without reading it. The ctime moves with every write and every rename, and
    nobody sets it.
    """
    return info.st_dev, info.st_ino, info.st_mode, info.st_size, info.st_mtime_ns, info.st_ctime_ns
