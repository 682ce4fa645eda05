"""A file system whose server takes every question and gives no answer, as a NAS that is away: a FUSE mount that nobody
serves.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

_LAZY = 2  # MNT_DETACH
_libc = ctypes.CDLL(None, use_errno=True)


@contextmanager
def hangs(folder: Path) -> Iterator[Path]:
    """Mount it at a folder, over what is in it; whoever looks into it waits until this ends, and gets ENOTCONN then."""
    if os.geteuid() or not os.path.exists("/dev/fuse"):
        pytest.skip("mounting a file system needs root and /dev/fuse")
    folder.mkdir(parents=True, exist_ok=True)
    server = os.open("/dev/fuse", os.O_RDWR)  # nobody ever reads it
    options = f"fd={server},rootmode=40000,user_id=0,group_id=0".encode()
    if _libc.mount(b"nas", str(folder).encode(), b"fuse", 0, options):
        os.close(server)
        pytest.skip(f"mount: {os.strerror(ctypes.get_errno())}")
    try:
        yield folder
    finally:
        os.close(server)
        _libc.umount2(str(folder).encode(), _LAZY)
