"""What is said when this user may not touch a path: whose it is, who we are, and the command that mends it."""

from __future__ import annotations

import os
import stat

from sparkbuild.agent.disk.files import is_in


def fields_of(path: str, store: str) -> dict[str, str]:
    """Fields of an error event. The first folder on the way to `path` that lets nobody through is the one to blame."""
    me = _user(os.geteuid())
    if not path:
        return {"found": f"we are {me}", "wanted": "", "next": ""}
    closed = _closed(path)
    if not closed:
        return {"found": f"we are {me}", "wanted": f"a path that {me} may use", "next": f"ls -ld {nearest(path)}"}
    found = os.stat(closed)
    mode = stat.filemode(found.st_mode)
    inside = is_in(path, store)
    mends = f"let {me} use {closed}"
    if closed == "/":  # a folder of the user's own in it is meant, not all of it
        mends = f"{folder_for_us(path)}, or name another folder"
    if inside and is_in(closed, store):
        mends = f"sudo chown -R {me}: {store}"
    elif inside:
        mends = f"{folder_for_us(store)}, or another `store` in config.toml"
    return {
        "found": f"{closed} belongs to {_user(found.st_uid)}, {mode}; we are {me}",
        "wanted": f"a store that {me} may write to" if inside else f"a path that {me} may use",
        "next": f"on that node: {mends}",
    }


def folder_for_us(path: str) -> str:
    """The command that makes a folder which this user may write to."""
    return f"sudo install -d -o {_user(os.geteuid())} {path}"


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


def _user(number: int) -> str:
    import pwd  # noqa: PLC0415 - only for a message

    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return str(number)
