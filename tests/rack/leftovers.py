"""What a rack leaves on the machine when its processes are dead, and how it is cleared.

By its keeper at the end, or, when the keeper was killed too, by whoever brings up the next rack.
"""

from __future__ import annotations

import ctypes
import glob
import os
import shutil
import time
from contextlib import suppress

from tests.rack import mounts

CGROUPS = "sparkbuild-rack"
_DETACH = 2


def clear(folder: str, patience: float = 5) -> None:
    """Unmount, free and remove all that the rack in `folder` left. Its processes must be dead. May be repeated."""
    _unmount(folder)
    end = time.monotonic() + patience
    while loops(folder) and time.monotonic() < end:
        time.sleep(0.02)  # a loop device is freed a moment after the last process that saw its mount
    name = os.path.basename(folder)
    while not _remove_cgroups(name) and time.monotonic() < end:
        time.sleep(0.02)
    shutil.rmtree(folder, ignore_errors=True)


def loops(folder: str) -> list[str]:
    """Names of loop devices whose file is below `folder`."""
    found = []
    for path in glob.glob("/sys/block/loop*/loop/backing_file"):
        with suppress(OSError), open(path, encoding="utf-8") as file:
            if file.read().startswith(f"{folder}/"):
                found.append(path.split("/")[3])
    return found


def _unmount(folder: str) -> None:
    # Only a NAS mounted on the machine itself is here: a node's mounts are gone with the node. A FUSE mount outlives
    # its server, and every access to it fails. The server gave the rack's folder as the mount's source.
    libc = ctypes.CDLL(None)
    for mount in mounts.seen_by():
        if mount.kind == "fuse.sparkbuild-nas" and mount.source.startswith(f"{folder}/"):
            libc.umount2(os.fsencode(mount.at), _DETACH)


def _remove_cgroups(rack: str) -> bool:
    # Version 1 has one tree per controller, version 2 one in all.
    tops = [*glob.glob(f"/sys/fs/cgroup/*/{CGROUPS}"), *glob.glob(f"/sys/fs/cgroup/{CGROUPS}")]
    for top in tops:
        for place, _, _ in os.walk(os.path.join(top, rack), topdown=False):
            with suppress(OSError):
                os.rmdir(place)
        with suppress(OSError):
            os.rmdir(top)  # unless another rack is there
    return not any(os.path.exists(os.path.join(top, rack)) for top in tops)
