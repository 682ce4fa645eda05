"""Files that are being written under another name, `<name>.<number>.tmp`, until they are whole and get their own; on
nodes and in the workspace alike.

A writer that is killed leaves such a file, which nobody reads. Whoever writes one holds its lock, which the kernel lets
go of when the writer is gone: unlike a pid, it tells the same in every container, and is not used again.
"""

from __future__ import annotations

import fcntl
import os
import re
import stat
from contextlib import suppress

_NAME = re.compile(r".+\.[0-9]+\.tmp")
_LOOK = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC


def name_for(name: str) -> str:
    """What a file is called until it is whole."""
    return f"{name}.{os.getpid()}.tmp"


def hold(fd: int) -> bool:
    """Say that a new file is being written, until its last descriptor is closed; False when `sweep` was quicker and
    removed it.
    """
    with suppress(OSError):  # a file system without locks: nobody takes one there, so nothing is swept either
        fcntl.flock(fd, fcntl.LOCK_EX)
    return os.fstat(fd).st_nlink > 0


def sweep(folder: int, of: str = "") -> None:
    """Remove from an open folder what writers of ours left that are gone. `of`: only what was to become this file,
    where the folder is not ours alone.
    """
    names = re.compile(re.escape(of) + r"\.[0-9]+\.tmp") if of else _NAME
    owners = {os.geteuid()}
    if os.geteuid() == 0:
        owners.add(os.fstat(folder).st_uid)  # root gives what it writes to the folder's owner
    for name in filter(names.fullmatch, os.listdir(folder)):
        with suppress(OSError):  # another one was quicker, or its writer is at work
            found = os.lstat(name, dir_fd=folder)
            if stat.S_ISREG(found.st_mode) and found.st_uid in owners:
                _remove(folder, name, found)


def _remove(folder: int, name: str, found: os.stat_result) -> None:
    fd = os.open(name, _LOOK, dir_fd=folder)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(found, os.lstat(name, dir_fd=folder)) and os.path.samestat(found, os.fstat(fd)):
            os.unlink(name, dir_fd=folder)
    finally:
        os.close(fd)
