"""A node's disk of limited size: an ext4 file system in a sparse file, and filling it up."""

from __future__ import annotations

import os
from pathlib import Path

from tests.rack.proc import call


def make(image: Path, size_mb: int) -> None:
    """A new disk. No blocks are kept for root, who is who fills it; nothing is written that is not needed."""
    with open(image, "wb") as file:
        file.truncate(size_mb << 20)
    call(["mkfs.ext4", "-q", "-m", "0", "-b", "4096", "-E", "nodiscard,lazy_itable_init=1", str(image)])


def fill(filler: Path, leave_bytes: int) -> None:
    """Let the file `filler` take all of its file system but `leave_bytes`, to within 64 KiB."""
    # "available", not "free": ext4 keeps 2 % for itself even when root has no share of his own.
    state = os.statvfs(filler.parent)
    length = state.f_bavail * state.f_frsize - leave_bytes
    with open(filler, "wb", buffering=0) as file:
        while length > 0:
            try:
                os.posix_fallocate(file.fileno(), 0, length)
            except OSError:  # the file's own bookkeeping takes blocks too: come nearer
                os.ftruncate(file.fileno(), 0)
                length -= 64 << 10
            else:
                return
