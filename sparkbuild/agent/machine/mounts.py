"""Paths on this node: what is there, on which file system, with how much room; one that hangs is told as a problem."""

from __future__ import annotations

import os
import stat
from functools import partial
from typing import TYPE_CHECKING

from sparkbuild.agent.machine.system import text
from sparkbuild.agent.machine.together import together

if TYPE_CHECKING:
    from sparkbuild.agent.wire.nodes import Disk

PATIENCE = 2.0  # seconds; a NAS that is gone would hold a look for ever
_READ_ONLY = 1  # ST_RDONLY of statvfs
_REFUSED = (PermissionError, InterruptedError)


def disks(paths: list[str]) -> dict[str, Disk]:
    """What is at each absolute path."""
    mounts = parse(text("/proc/self/mountinfo"))
    looks = {path: partial(look, path, mounts) for path in paths}
    outcomes = together(looks, PATIENCE)
    return {path: _silent(disk) if isinstance(disk, Exception) else disk for path, disk in outcomes.items()}


def look(path: str, mounts: list[tuple[str, str]]) -> Disk:
    """One path; of one that is missing, room and file system are those of the nearest folder above."""
    kind = kind_of(path)
    place = os.path.realpath(path)
    while kind == "missing" and not os.path.isdir(place) and place != "/":
        place = os.path.dirname(place)
    mount, file_system = mount_of(place, mounts)
    room = os.statvfs(place)
    return {
        "exists": kind != "missing",
        "kind": kind,
        "file_system": file_system,
        "mount": mount,
        "total": room.f_blocks * room.f_frsize,
        "free": room.f_bavail * room.f_frsize,
        "read_only": bool(room.f_flag & _READ_ONLY),
        "problem": "",
    }


def kind_of(path: str) -> str:
    """dir, file, device, other (a socket, a pipe) or missing.

    What is no device is opened: what `stat` says of a file on a NAS comes from a cache, and is wrong for minutes.
    """
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        mode = 0
    except NotADirectoryError:
        return "missing"
    if stat.S_ISCHR(mode) or stat.S_ISBLK(mode):
        return "device"  # opening one may start something
    if not mode or stat.S_ISREG(mode) or stat.S_ISDIR(mode):
        try:
            fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
        except FileNotFoundError:
            return "missing"
        except OSError as error:
            if not mode or not isinstance(error, _REFUSED):
                raise
        else:
            mode = os.fstat(fd).st_mode
            os.close(fd)
    return "dir" if stat.S_ISDIR(mode) else "file" if stat.S_ISREG(mode) else "other"


def parse(mountinfo: str) -> list[tuple[str, str]]:
    """Mount points and file systems of /proc/self/mountinfo (man 5 proc), in order; lines that are cut are left out."""
    mounts = []
    for line in mountinfo.splitlines():
        left, sep, right = line.partition(" - ")
        fields = left.split(" ")
        if sep and len(fields) >= 6 and right:
            mounts.append((_unescaped(fields[4]), right.split(" ")[0]))
    return mounts


def mount_of(path: str, mounts: list[tuple[str, str]]) -> tuple[str, str]:
    """The mount a resolved path is on: the longest, and of equal ones the last, which hides the others."""
    best = ("", "")
    for point, file_system in mounts:
        inside = point in {"/", path} or path.startswith(f"{point}/")
        if inside and len(point) >= len(best[0]):
            best = (point, file_system)
    return best


def beneath(path: str) -> tuple[str, str]:
    """Mount point and file system that a path is on, links followed; a path that is missing would be on that."""
    place = os.path.realpath(path)  # first: looking at it mounts what is mounted on demand
    return mount_of(place, parse(text("/proc/self/mountinfo")))


def recorded_mount(path: str) -> tuple[str, str]:
    """The same, as a record of it keeps them: "" and "" for one that nobody could type."""
    mount = beneath(path)
    return mount if all(name.isprintable() for name in mount) else ("", "")


def _unescaped(name: str) -> str:
    for code, char in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        name = name.replace(code, char)
    return name


def _silent(error: Exception) -> Disk:
    return {
        "exists": False, "kind": "missing", "file_system": "", "mount": "", "total": 0, "free": 0, "read_only": False,
        "problem": str(getattr(error, "strerror", None) or error),
    }  # fmt: skip
