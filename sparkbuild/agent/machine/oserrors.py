"""An error of the system as the fields of an error event: what it means, and what to do about it."""

from __future__ import annotations

import errno
import os
import shlex
import stat

from sparkbuild.agent.machine import denied, mounts
from sparkbuild.agent.machine.denied import nearest, user

_FEW, _MUCH = 64, 1 << 20  # inodes and bytes: what failed has given back a few by the time that somebody counts
_GOES_ON = "it goes on where it stopped"
_MISPLACED = (errno.EISDIR, errno.EEXIST, errno.ENOTDIR)


def fields_of(error: OSError, store: str) -> dict[str, str]:
    """The fields of an error event, see protocol."""
    fields = {"kind": "node", "what": error.strerror or type(error).__name__, "where": str(error.filename or "")}
    if error.errno in (errno.EPERM, errno.EACCES):
        return {**fields, **denied.fields_of(str(error.filename or ""), store)}
    if error.errno == errno.EROFS:
        return {**fields, **_read_only(str(error.filename or store))}
    if error.errno in _MISPLACED and error.filename:
        wanted = "something else there, or nothing yet"
        return {**fields, "found": standing(str(error.filename)), "wanted": wanted, "next": "move it away"}
    if error.errno in (errno.EXDEV, errno.EBUSY) and error.filename:
        return {**fields, **_mounted(str(error.filename))}
    if error.errno not in (errno.ENOSPC, errno.EDQUOT):
        return {**fields, "found": "", "wanted": "", "next": ""}
    return {**full(error, str(error.filename or store)), "where": fields["where"]}


def full(error: OSError, path: str) -> dict[str, str]:
    """The fields of an error event when nothing more can be written to where `path` is: what there is none of, bytes,
    files or a user's share of them, since each wants another remedy.
    """
    fields = {"kind": "space", "what": error.strerror or "the disk became full", "where": path}
    fields |= {"wanted": "room for what is written: doit plan says how much"}
    near = nearest(path) if path.startswith("/") else ""
    if not near:
        return {**fields, "found": "", "next": "make room, then run again"}
    disk, mount = os.statvfs(near), mounts.beneath(near)[0]
    free = f"{disk.f_bavail * disk.f_frsize} bytes free on {mount}"
    if error.errno == errno.EDQUOT:
        me = user(os.geteuid())
        fields["what"] = f"the disk quota of {me} is used up"
        fields["wanted"] = f"a larger quota, or less data of {me} there"
        return {**fields, "found": free, "next": f"quota -s on that node says how much; then run again: {_GOES_ON}"}
    if disk.f_files and disk.f_favail <= _FEW and disk.f_bavail * disk.f_frsize >= _MUCH:
        fields |= {"what": "the disk has no inodes left, so no file can be made", "wanted": "inodes for more files"}
        free = f"{disk.f_favail} of {disk.f_files} inodes free on {mount}, and {free}"
        return {**fields, "found": free, "next": f"remove many small files there (df -i {mount}), then run again"}
    return {**fields, "found": free, "next": f"make room, then run again: {_GOES_ON}"}


def _mounted(path: str) -> dict[str, str]:
    """Another file system is mounted there, or something uses the name as a mount."""
    mount, file_system = mounts.beneath(nearest(path))
    return {
        "found": f"a {file_system} is mounted on {mount}",
        "wanted": "one file system for the folder and all that is in it",
        "next": f"on that node: umount {shlex.quote(mount)}; or name a folder that is on that disk as a whole",
    }


def standing(path: str) -> str:
    """What stands at a path, or on the way to it, in words: a file where a folder belongs is on the way."""
    place = nearest(path)
    mode = os.lstat(place).st_mode
    kinds = ((stat.S_ISLNK, "a symbolic link"), (stat.S_ISDIR, "a folder"), (stat.S_ISREG, "a file"))
    kind = next((words for is_it, words in kinds if is_it(mode)), "no file and no folder")
    return kind if place == path else f"{place} is {kind}"


def _read_only(path: str) -> dict[str, str]:
    mount, file_system = mounts.beneath(path)
    return {
        "found": f"the {file_system} mounted on {mount} is read-only",
        "wanted": "a file system that may be written to",
        "next": f"on that node: sudo mount -o remount,rw {shlex.quote(mount)}; if it became so by itself, see dmesg",
    }
