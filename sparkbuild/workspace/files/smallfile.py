"""Reading a whole file that must be small and regular, since it is read on every `doit list`."""

from __future__ import annotations

import os
import stat

from sparkbuild.workspace.files import looked


class UnreadableError(Exception):
    """Why a file could not be read, as the end of a sentence that starts with its name; for the callers to say."""

    def __init__(self, what: str, found: str = "", wanted: str = "") -> None:
        """Keep the three texts."""
        super().__init__(what)
        self.what = what
        self.found = found
        self.wanted = wanted


def read_small(path: str | os.PathLike[str], limit: int) -> bytes:
    """The bytes of a regular file of at most `limit` bytes. Raises UnreadableError."""
    try:
        # O_NONBLOCK: opening a named pipe must not hang; for regular files it changes nothing.
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        looked.missed(path)
        what = "is a link to nothing" if os.path.islink(path) else "does not exist"
        raise UnreadableError(what) from None
    except OSError as error:
        looked.unsure()
        raise UnreadableError("cannot be read", error.strerror or str(error)) from error
    try:
        info = os.fstat(fd)
        looked.saw(path, info)
        if stat.S_ISDIR(info.st_mode):
            raise UnreadableError("is a folder", "", "a file")
        if not stat.S_ISREG(info.st_mode):
            raise UnreadableError("is not a regular file", "", "a regular file")
        data = b""
        if info.st_size <= limit:
            # One byte more than it has, so that the end is seen at once, and growth is too.
            while chunk := os.read(fd, min(limit, info.st_size) + 1):
                data += chunk
                if len(data) > limit:
                    break
        size = max(info.st_size, len(data))
    except OSError as error:
        looked.unsure()
        raise UnreadableError("cannot be read", error.strerror or str(error)) from error
    finally:
        os.close(fd)
    if size > limit:
        raise UnreadableError("is too big", f"{size} bytes", f"at most {limit} bytes ({limit >> 20} MiB)")
    return data
