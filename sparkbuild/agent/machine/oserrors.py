"""An error of the system as the fields of an error event: what it means, and what to do about it."""

from __future__ import annotations

import errno
import os
import stat

_MISPLACED = (errno.EISDIR, errno.EEXIST, errno.ENOTDIR)


def fields_of(error: OSError, store: str) -> dict[str, str]:
    """The fields of an error event, see protocol."""
    fields = {"kind": "node", "what": error.strerror or type(error).__name__, "where": str(error.filename or "")}
    if error.errno in (errno.EPERM, errno.EACCES):
        from sparkbuild.agent.machine import denied  # noqa: PLC0415 - asks for the names of users

        return {**fields, **denied.fields_of(str(error.filename or ""), store)}
    if error.errno == errno.EROFS:
        return {**fields, **_read_only(str(error.filename or store))}
    if error.errno in _MISPLACED and error.filename:
        wanted = "something else there, or nothing yet"
        return {**fields, "found": standing(str(error.filename)), "wanted": wanted, "next": "move it away"}
    if error.errno not in (errno.ENOSPC, errno.EDQUOT):
        return {**fields, "found": "", "wanted": "", "next": ""}
    found = ""
    if os.path.isdir(store):
        disk = os.statvfs(store)
        found = f"{disk.f_bavail * disk.f_frsize} bytes free for {store}"
    wanted = "room for what is written: doit plan says how much"
    return {**fields, "kind": "space", "found": found, "wanted": wanted, "next": "make room, then run again"}


def standing(path: str) -> str:
    """What stands at a path, or on the way to it, in words: a file where a folder belongs is on the way."""
    from sparkbuild.agent.machine.denied import nearest  # noqa: PLC0415 - only for a message

    place = nearest(path)
    mode = os.lstat(place).st_mode
    kinds = ((stat.S_ISLNK, "a symbolic link"), (stat.S_ISDIR, "a folder"), (stat.S_ISREG, "a file"))
    kind = next((words for is_it, words in kinds if is_it(mode)), "no file and no folder")
    return kind if place == path else f"{place} is {kind}"


def _read_only(path: str) -> dict[str, str]:
    import shlex  # noqa: PLC0415 - only for a message

    from sparkbuild.agent.machine import mounts as disks  # noqa: PLC0415 - as above

    mount, file_system = disks.beneath(path)
    return {
        "found": f"the {file_system} mounted on {mount} is read-only",
        "wanted": "a file system that may be written to",
        "next": f"on that node: sudo mount -o remount,rw {shlex.quote(mount)}; if it became so by itself, see dmesg",
    }
