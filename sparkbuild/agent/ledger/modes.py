"""May everybody on the node read what is staged? Containers often run as somebody else than who staged it."""

from __future__ import annotations

import os
import stat

from sparkbuild.agent.wire.layout import OURS

_MOST = 64  # entries that are looked at: one umask made all of a staging, and each look costs a step of the disk


def closed(dst: str) -> str:
    """The first path in a staged folder that others cannot read, "" when there is none among those looked at. What is
    staged now is readable whatever the umask; this is data of earlier versions, or closed by hand.
    """
    left = _MOST
    waiting = [dst]
    while waiting and left:
        path = waiting.pop(0)
        try:
            mode = os.lstat(path).st_mode
        except OSError:
            continue
        left -= 1
        wanted = 0o005 if stat.S_ISDIR(mode) else 0o004
        if not stat.S_ISLNK(mode) and mode & wanted != wanted:
            return path
        if stat.S_ISDIR(mode):
            try:
                names = sorted(os.listdir(path))
            except OSError:
                return path
            waiting += [f"{path}/{name}" for name in names[:_MOST] if path != dst or name != OURS]
    return ""
