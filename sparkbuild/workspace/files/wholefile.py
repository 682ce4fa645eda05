"""Replacing a file of the workspace whole: at any moment, and after a power cut, the old or the new text is there."""

from __future__ import annotations

import errno
import os
from pathlib import Path


def replace(path: Path | str, text: str) -> None:
    """Write the text under the name of a file. Raises OSError; the old text is there then.

    A link stays a link. A file that nobody may write is refused: a rename would go around what its owner has forbidden.
    """
    target = os.path.realpath(path)
    part = f"{target}.{os.getpid()}.part"
    try:
        mode = os.stat(target).st_mode & 0o777
    except FileNotFoundError:
        mode = 0o644
    else:
        if not mode & 0o222 or not os.access(target, os.W_OK):  # to root, access says yes to everything
            raise PermissionError(errno.EACCES, "it is read-only", target)
    try:
        with open(part, "wb") as file:
            file.write(text.encode())
            os.fchmod(file.fileno(), mode)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, target)
    except BaseException:
        Path(part).unlink(missing_ok=True)
        raise
    fd = os.open(os.path.dirname(target), os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
