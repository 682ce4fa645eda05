"""Reading one file of an ssh configuration, as OpenSSH does: not when anybody else may write to it.

A configuration names programs that are run (ProxyCommand, Match exec), so whoever may write to it may run programs as
this user. OpenSSH refuses such a file itself ("Bad owner or permissions"), but not one that is named with `-F`.
"""

from __future__ import annotations

import glob
import os
import pwd
import stat

from sparkbuild.core.errors import NodeError

_MOST = 1 << 20  # bytes of a configuration with all that it includes
_LONGEST_PATH = 4096  # PATH_MAX of Linux
_FILES = 256  # that one configuration may be made of: files may include each other, and themselves, ever so often


class Files:
    """The files of one configuration."""

    def __init__(self) -> None:
        self._bytes, self._count = 0, 0

    def read(self, path: str) -> str:
        """The text of one of them. Raises OSError when it cannot be read (FileNotFoundError: there is none), NodeError
        when it is no plain file, belongs to neither this user nor root, others may write to it, it has a zero byte, or
        all of them are too many or longer than 1 MiB.
        """
        content = _content(path, _MOST - self._bytes)
        self._bytes, self._count = self._bytes + len(content), self._count + 1
        if self._bytes > _MOST:
            raise _unsafe(path, "more than 1 MiB, with what it includes", "a configuration of ssh", f"ls -ld '{path}'")
        if self._count > _FILES:
            raise _unsafe(
                path, f"more than {_FILES} files that include each other", "fewer", "look at its Include lines"
            )
        if b"\0" in content:
            raise _unsafe(path, "a zero byte", "text", f"ls -ld '{path}'")
        return content.decode(errors="surrogateescape")


def _content(path: str, limit: int) -> bytes:
    held = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # the open of a pipe would wait for a writer
    with open(held, "rb") as file:
        there = os.fstat(held)
        if not stat.S_ISREG(there.st_mode):
            raise _unsafe(path, "it is no plain file", "a file", f"ls -ld '{path}'")
        if there.st_uid not in (0, os.geteuid()) or there.st_mode & 0o022:
            found = f"it belongs to {_name(there.st_uid)}, mode {stat.S_IMODE(there.st_mode):04o}"
            wanted = f"a file of {_name(os.geteuid())} or root that nobody else may write to, as OpenSSH wants it"
            raise _unsafe(path, found, wanted, f"look at what is in it; then chown {_name(os.geteuid())} and chmod 600")
        return file.read(limit + 1)


def _name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid {uid}"


def _unsafe(path: str, found: str, wanted: str, next_: str) -> NodeError:
    return NodeError("the ssh configuration is not read", where=path, found=found, wanted=wanted, next=next_)


def included(pattern: str) -> list[str]:
    """The files that a pattern of Include names, sorted; none for one that is longer than any path: to try it takes the
    square of its length.
    """
    return sorted(glob.glob(pattern)) if len(pattern) <= _LONGEST_PATH else []
