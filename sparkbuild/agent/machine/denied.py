"""What is said when this user may not touch a path: whose it is, who we are, and the command that mends it."""

from __future__ import annotations

import fcntl
import os
import shlex
import stat
import sys
import time

from sparkbuild.agent.disk.files import is_in
from sparkbuild.agent.machine.procs import name_of
from sparkbuild.agent.wire.layout import STAGED_INDEX

_GETFLAGS = 0x80086601  # FS_IOC_GETFLAGS
_FIXED = {"i": "immutable (chattr +i)", "a": "append-only (chattr +a)"}


def fields_of(path: str, store: str) -> dict[str, str]:
    """Fields of an error event. The first folder on the way to `path` that lets nobody through is the one to blame."""
    me = user(os.geteuid())
    if (fixed := _immutable(path)) is not None:
        return fixed
    if not path:
        return {"found": f"we are {me}", "wanted": "", "next": ""}
    closed = _closed(path)
    if not closed:
        return {"found": f"we are {me}", "wanted": f"a path that {me} may use", "next": f"ls -ld {nearest(path)}"}
    state = os.stat(closed)
    belongs = f"{closed} belongs to {user(state.st_uid)}, {stat.filemode(state.st_mode)}"
    inside = is_in(path, store)
    owners = others_in(store) if inside and is_in(closed, store) else []
    if owners:  # to take the store would end what they have there
        return {
            "found": f"{belongs}; in this store {'; '.join(owners)}; we are {me}",
            "wanted": "a store for each user: this one is in use",
            "next": "name another `store` for this node in config.toml",
        }
    if inside and is_in(closed, store):
        mends = f"sudo chown -R {me}: {store}"
    elif inside:
        mends = f"{folder_for_us(store)}, or another `store` in config.toml"
    elif closed == "/":  # a folder of the user's own in it is meant, not all of it
        mends = f"{folder_for_us(path)}, or name another folder"
    else:
        mends = f"let {me} use {closed}"
    return {
        "found": f"{belongs}; we are {me}",
        "wanted": f"a store that {me} may write to" if inside else f"a path that {me} may use",
        "next": f"on that node: {mends}",
    }


def folder_for_us(path: str) -> str:
    """The command that makes a folder which this user may write to."""
    return f"sudo install -d -o {user(os.geteuid())} {path}"


def others_in(store: str) -> list[str]:
    """Who else has lanes or staged data in a store, and since when, in words. What is closed to us counts as theirs."""
    by_owner: dict[int, tuple[str, float]] = {}
    for name, what in (("lanes", "lanes"), (STAGED_INDEX, "staged data")):
        folder = os.path.join(store, name)
        try:
            inner = os.listdir(folder)
        except PermissionError:
            inner = [""]
        except OSError:
            continue
        for entry in inner:
            try:
                seen = os.lstat(os.path.join(folder, entry))
            except OSError:
                continue
            if seen.st_uid != os.geteuid():
                _, since = by_owner.get(seen.st_uid, ("", seen.st_mtime))
                by_owner[seen.st_uid] = (what, min(since, seen.st_mtime))
    stamp = "%Y-%m-%d %H:%M:%S UTC"
    return [
        f"{user(uid)} has {what} since {time.strftime(stamp, time.gmtime(since))}"
        for uid, (what, since) in sorted(by_owner.items())
    ]


def _closed(path: str) -> str:
    """The deepest that is there and may not be written to, or that cannot be entered; "" when none is."""
    near = place = nearest(path)
    while place not in {"", "/"}:
        needed = os.W_OK | (os.X_OK if os.path.isdir(place) else os.R_OK)
        if not os.access(place, needed, effective_ids=True):
            return place
        place = os.path.dirname(place)
    # few may write to the root: it is to blame only where something is to be made in it
    return near if near == "/" and not os.access(near, os.W_OK, effective_ids=True) else ""


def nearest(path: str) -> str:
    """The path, or the nearest folder above it that is there, as far as this user can see."""
    place = os.path.normpath(path)
    while place and not os.path.lexists(place):
        place = os.path.dirname(place)
    return place


def _immutable(path: str) -> dict[str, str] | None:
    """What is said of a file or folder that `chattr` made unchangeable, also for root; None when none on the way is."""
    for place in (path, os.path.dirname(path)) if path.startswith("/") else ():
        letters = _attributes(place)
        if letters:
            return {
                "found": f"{place} is {' and '.join(_FIXED[letter] for letter in letters)}: nobody may change it",
                "wanted": "one that may be changed",
                "next": f"on that node: sudo chattr -{letters} {shlex.quote(place)}, if nobody relies on it",
            }
    return None


def _attributes(path: str) -> str:
    """Those letters of `lsattr` that forbid a change; the flags are FS_*_FL of <linux/fs.h>."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        answer = fcntl.ioctl(fd, _GETFLAGS, bytes(8))
    except OSError:  # a file system without
        return ""
    finally:
        os.close(fd)
    flags = int.from_bytes(answer, sys.byteorder)
    return "".join(letter for letter, flag in (("i", 0x10), ("a", 0x20)) if flags & flag)


def user(number: int) -> str:
    """What a user is called, its number where it has no name."""
    return name_of(number) or str(number)
