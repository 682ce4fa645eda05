"""Blobs: files named by their sha256, in one folder. A blob that arrives is `<sha256>.part` and is read meanwhile."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import socket

PART = ".part"
_LOOK = 0.01  # seconds between two looks whether more has arrived
_BLOCK = 1 << 20  # bytes read at once
_PIECE = 4 << 20  # bytes handed to the kernel at once
_HEX = frozenset("0123456789abcdef")


def is_name(text: str) -> bool:
    """Whether it can be a blob's name: 64 hex digits, so nothing that leads out of the folder."""
    return len(text) == 64 and _HEX.issuperset(text)


def path_of(folder: str, sha256: str) -> str:
    """Where a whole blob lies."""
    return os.path.join(folder, sha256)


def is_whole(folder: str, sha256: str, size: int) -> bool:
    """Whether it has arrived: only then it has its name."""
    try:
        return os.stat(path_of(folder, sha256), follow_symlinks=False).st_size == size
    except OSError:
        return False


def send(to: socket.socket, folder: str, sha256: str, start: int, end: int) -> bool:
    """Send the bytes from `start` to before `end` of a blob that is there or arrives, as it arrives. False when it went
    away meanwhile (it turned out to be wrong). OSError: nobody takes them.
    """
    fd = -1
    try:
        while start < end:
            if fd < 0:
                fd = _open(folder, sha256)
            ready = min(end, os.fstat(fd).st_size) if fd >= 0 else 0
            while start < ready:
                start += os.sendfile(to.fileno(), fd, start, min(_PIECE, ready - start))
            if start < end:
                if fd >= 0 and _is_gone(fd, start):
                    return False
                time.sleep(_LOOK)
    finally:
        if fd >= 0:
            os.close(fd)
    return True


def read(folder: str, sha256: str, size: int) -> Iterator[bytes]:
    """All of a blob that is there or arrives, in pieces; it ends early when the blob goes away."""
    fd, start = -1, 0
    try:
        while start < size:
            fd = _open(folder, sha256) if fd < 0 else fd
            piece = os.pread(fd, min(_BLOCK, size - start), start) if fd >= 0 else b""
            if piece:
                start += len(piece)
                yield piece
            elif fd >= 0 and _is_gone(fd, start):
                return
            else:
                time.sleep(_LOOK)
    finally:
        if fd >= 0:
            os.close(fd)


def _open(folder: str, sha256: str) -> int:
    path = path_of(folder, sha256)
    # a blob that gets its name between the two looks is found by the next round
    for name in (path, f"{path}{PART}"):
        try:
            return os.open(name, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except FileNotFoundError:
            continue
    return -1


def _is_gone(fd: int, start: int) -> bool:
    state = os.fstat(fd)
    return state.st_nlink == 0 or state.st_size < start
