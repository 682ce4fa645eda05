"""May everybody on the node read what is staged? Containers often run as somebody else than who staged it."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from itertools import islice

_MOST = 64  # paths that are looked at: one umask made all of a staging, and each look costs a step of the disk


def is_open(status: os.stat_result) -> bool:
    """Whether others may read it, and enter it when it is a folder."""
    wanted = 0o005 if stat.S_ISDIR(status.st_mode) else 0o004
    return stat.S_ISLNK(status.st_mode) or status.st_mode & wanted == wanted


def closed(dst: str, names: Iterable[str]) -> str:
    """The first path, of a staged folder and these names in it, that others cannot read; "" when there is none among
    those looked at. What is staged now is readable whatever the umask; this is data of earlier versions, or closed by
    hand.
    """
    for path in islice((dst, *(f"{dst}/{name}" for name in names)), _MOST):
        try:
            if not is_open(os.lstat(path)):
                return path
        except OSError:
            continue
    return ""
