"""Locks between processes of a node: flock, which the kernel lets go of when its holder ends, however it ends."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from sparkbuild.agent.disk.held import locking
from sparkbuild.agent.wire.protocol import AgentError

_LOOK = 0.1  # seconds between two tries


@contextmanager
def locked(path: str, what: str, patience: float = 0.0) -> Iterator[None]:
    """Hold an exclusive lock on `path` (never removed); an AgentError when another agent holds it for that long."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    fd = locking(path)
    deadline = time.monotonic() + patience
    try:
        while not try_take(fd):
            if time.monotonic() < deadline:
                time.sleep(_LOOK)
                continue
            text = f"{what} is being worked on by another process on this node"
            raise AgentError(text, where=path, next="wait for it, then run again")
        yield
    finally:
        os.close(fd)


def try_take(fd: int, *, shared: bool = False) -> bool:
    """Take the lock, until the file is closed; False at once when another one holds it."""
    try:
        fcntl.flock(fd, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def take(fd: int, waiting: Callable[[str], None] = lambda _holder: None, *, shared: bool = False) -> None:
    """Take the lock as soon as that can be. `waiting` is told once who holds it, at the second try: at the first, it
    may be one who only looks (`try_take`), and the name in the file is an old one.
    """
    tries = 0
    while not try_take(fd, shared=shared):
        tries += 1
        if tries == 2:
            waiting(holder(fd))
        time.sleep(_LOOK)


def holder(fd: int) -> str:
    """Who holds the lock, as it wrote into the file."""
    return os.pread(fd, 200, 0).decode(errors="replace").strip() or "another process"


def is_still(fd: int, path: str) -> bool:
    """Whether the locked file still has its name: a lock on a file that was removed meanwhile guards nothing."""
    try:
        return os.path.samestat(os.fstat(fd), os.stat(path, follow_symlinks=False))
    except FileNotFoundError:
        return False
