"""Locks of the operator's machine: one per goal or task, which says who holds it, and one on a folder.

Two runs never do the same work: the second waits for the lock, and then looks again.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from sparkbuild.core.interrupt import Cancel, cancel
from sparkbuild.core.writable import writing


class TaskLock:
    """An exclusive lock on a name within one workspace, released at the latest when the process ends.

    flock on a file that is never removed: removing it would let a third process lock a new file of the same name
    while the second still holds the old one.
    """

    def __init__(self, folder: Path, name: str) -> None:
        self.name = name
        self.path = folder / f"{hashlib.sha256(name.encode()).hexdigest()[:24]}.lock"
        self._fd = -1

    def acquire(self, waiting: Callable[[str], None] | None = None, cancelled: Cancel = cancel) -> bool:
        """Take the lock; True when it had to be waited for. `waiting` is told once who holds it."""
        with writing(self.path):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        waited = False
        try:
            if os.geteuid() == 0:  # another user's workspace: the lock is to stay his
                owner = os.stat(self.path.parent)
                os.fchown(fd, owner.st_uid, owner.st_gid)
            while not _taken(fd):
                if not waited and waiting is not None:
                    waiting(_holder(fd))
                waited = True
                cancelled.wait(0.1)
            with suppress(OSError):  # a full disk: who waits is not told for whom
                os.ftruncate(fd, 0)
                os.pwrite(fd, json.dumps({"pid": os.getpid(), "name": self.name, "since": time.time()}).encode(), 0)
        except BaseException:
            os.close(fd)
            raise
        self._fd = fd
        return waited

    def release(self) -> None:
        """Give the lock back; does nothing when it is not held."""
        if self._fd >= 0:
            with suppress(OSError):
                os.ftruncate(self._fd, 0)
            os.close(self._fd)
            self._fd = -1

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


class FolderLock:
    """An exclusive lock on a folder that is there, released at the latest when the process ends."""

    def __init__(self, path: Path | str) -> None:
        self._fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def acquire(self, cancelled: Cancel = cancel) -> None:
        """Take the lock, waiting for it."""
        while not _taken(self._fd):
            cancelled.wait(0.1)

    def try_acquire(self) -> bool:
        """Take the lock; False when another one has it."""
        return _taken(self._fd)

    def release(self) -> None:
        """Give the lock back; the object is of no more use."""
        os.close(self._fd)

    def __enter__(self) -> None:
        try:
            self.acquire()
        except BaseException:
            self.release()
            raise

    def __exit__(self, *_: object) -> None:
        self.release()


def _taken(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _holder(fd: int) -> str:
    try:
        holder = json.loads(os.pread(fd, 4096, 0) or b"{}")
        age = time.time() - holder["since"]
        return f"process {holder['pid']}" + (f" (for {age:.0f} s)" if age >= 1 else "")
    except (ValueError, KeyError, TypeError, RecursionError):
        return "another run"
