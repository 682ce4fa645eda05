"""Replacing a file that somebody keeps in the workspace: its links, its mode, and whether it may be written, count."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from sparkbuild.core import wholefile


def replace(path: Path | str, text: str) -> None:
    """Write the text under the name of a file. Raises OSError; the old text is there then.

    A link stays a link. A file that nobody may write is refused: a rename would go around what its owner has forbidden.
    """
    target = os.path.realpath(path)
    try:
        mode = os.stat(target).st_mode & 0o777
    except FileNotFoundError:
        mode = 0o644
    else:
        if not mode & 0o222 or not os.access(target, os.W_OK):  # to root, access says yes to everything
            raise PermissionError(errno.EACCES, "it is read-only", target)
    wholefile.replace(target, text.encode(), mode=mode, ours=False)
