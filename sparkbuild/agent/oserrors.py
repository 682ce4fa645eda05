"""An error of the system as the fields of an error event: what it means, and what to do about it."""

from __future__ import annotations

import errno
import os


def fields_of(error: OSError, store: str) -> dict[str, str]:
    """The fields of an error event, see protocol."""
    fields = {"kind": "node", "what": error.strerror or type(error).__name__, "where": str(error.filename or "")}
    if error.errno in (errno.EPERM, errno.EACCES):
        from sparkbuild.agent import denied  # noqa: PLC0415 - asks for the names of users

        return {**fields, **denied.fields_of(str(error.filename or ""), store)}
    if error.errno not in (errno.ENOSPC, errno.EDQUOT):
        return {**fields, "found": "", "wanted": "", "next": ""}
    found = ""
    if os.path.isdir(store):
        disk = os.statvfs(store)
        found = f"{disk.f_bavail * disk.f_frsize} bytes free for {store}"
    wanted = "room for what is written: doit plan says how much"
    return {**fields, "kind": "space", "found": found, "wanted": wanted, "next": "make room, then run again"}
