"""What a folder to stage into stands on: the disk that it was staged on before, and whether this user may write there.

A disk that is not mounted leaves an empty folder on another disk, mostly that of the system. What is staged into it
fills that one, and is hidden when the disk comes back. So the index remembers on which mount point each folder lay.
"""

from __future__ import annotations

import errno
import os
import shlex
import stat
from typing import TYPE_CHECKING

from sparkbuild.agent.disk.files import is_in
from sparkbuild.agent.ledger import folder, index, ledger, mountlist, ownership
from sparkbuild.agent.ledger.part import ENDS
from sparkbuild.agent.machine import denied, oserrors
from sparkbuild.agent.machine.mounts import recorded_mount
from sparkbuild.agent.wire.layout import BESIDE, LOCK, OURS
from sparkbuild.agent.wire.protocol import AgentError

if TYPE_CHECKING:
    from sparkbuild.agent.wire.staging.staged import ClaimRequest


def blocked(request: ClaimRequest, dst: str) -> AgentError | None:
    """Why nothing can be staged into the folder, by a look that changes nothing: a plan says it, a run ends with it."""
    store = request.get("store", "")
    return misplaced(dst) or hidden(store, dst) or closed(dst, store) or ownership.conflict(request, dst)


def hidden(store: str, dst: str) -> AgentError | None:
    """The error for a folder that was staged on a disk which is not mounted now; a folder that is whole is believed."""
    entry = index.entry(store, dst) if store else None
    if entry is None or not entry.mount or any(map(os.path.lexists, (ledger.path_of(dst), mountlist.path_of(dst)))):
        return None
    now, file_system = recorded_mount(dst)
    if not is_lost(os.path.realpath(dst), entry.mount, now):
        return None
    again, record = shlex.quote(entry.mount), shlex.quote(index.path_of(store, dst))
    return AgentError(
        "the disk that the folder was staged on is not mounted",
        kind="node",
        where=dst,
        found=f"{dst} is on the {file_system} mounted on {now} now",
        wanted=f"the {entry.file_system} that was mounted on {entry.mount}",
        next=f"on that node: mount {again}; or, when that disk is gone for good, rm {record}",
    )


def is_lost(path: str, was: str, now: str) -> bool:
    """Whether a resolved path is below the mount point `was`, and nothing is mounted there: it is on `now`. A link on
    the way that leads to another disk by now, and a disk that is mounted deeper, are as somebody wanted them.
    """
    return bool(was and now) and is_in(path, was) and not is_in(now, was)


def closed(dst: str, store: str) -> AgentError | None:
    """The error for a folder that this user cannot write to, or make."""
    near = denied.nearest(dst)
    if not os.path.isdir(near):
        return None  # what is in the way is told as such
    for path in (near, f"{dst}/{OURS}", f"{dst}/{OURS}/{LOCK}"):
        if not os.path.exists(path):
            continue
        needed = os.W_OK | os.X_OK if os.path.isdir(path) else os.W_OK
        read_only = os.statvfs(path).f_flag & os.ST_RDONLY
        if read_only or not os.access(path, needed, effective_ids=True):
            number = errno.EROFS if read_only else errno.EACCES
            return _closed(OSError(number, os.strerror(number), path), dst, store)
    return None


def _closed(error: OSError, dst: str, store: str) -> AgentError:
    fields = oserrors.fields_of(error, store)
    if error.errno == errno.EACCES and not os.path.lexists(dst):
        fields |= denied.fields_of(dst, store)
        if not is_in(dst, store):
            fields["next"] = f"on that node: {denied.folder_for_us(dst)}, or correct `dst` (of an export, `path`)"
    return AgentError(**{**fields, "where": dst})


def misplaced(dst: str) -> AgentError | None:
    """The error for what is no folder where our own belongs, or no file where a file of ours does."""
    ours = f"{dst}/{OURS}"
    try:
        if not stat.S_ISDIR(os.lstat(ours).st_mode):
            return folder.misplaced(folder.OUT_OF_PLACE, ours, oserrors.standing(ours), "a folder, or nothing yet")
        with os.scandir(ours) as entries:
            ours_there = [entry for entry in entries if _is_file_of_ours(entry.name)]
            wrong = [entry.path for entry in ours_there if not entry.is_file(follow_symlinks=False)]
    except OSError:  # nothing is there yet, or this user may not look: that is told as such
        return None
    if not wrong:
        return None
    return folder.misplaced(folder.OUT_OF_PLACE, min(wrong), oserrors.standing(min(wrong)), "a file, or nothing yet")


def _is_file_of_ours(name: str) -> bool:
    return name in BESIDE or name.endswith(ENDS)
