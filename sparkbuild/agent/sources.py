"""Where staged bytes come from: a plain file, or a member of an archive, behind one small interface.

A source is opened once and believed only as far as its descriptor was the same before and after: a path on a NAS
answers `stat` from a cache that is seconds old, an open file does not.
"""

from __future__ import annotations

import os
import stat
from typing import Protocol

from sparkbuild.agent.pages import Pages
from sparkbuild.agent.protocol import AgentError


class Source(Protocol):
    """Bytes of a known size. Not for use by two threads at once. `path` is for messages."""

    path: str
    size: int

    def read(self, view: memoryview, offset: int) -> int:
        """Fill `view` from `offset`, which may be anywhere (going back may cost a new start); bytes read."""

    def check(self) -> None:
        """Raise AgentError, kind integrity, when the source was changed since it was opened."""

    def close(self) -> None:
        """Let go of it."""


class FileSource:
    """A plain file; see Source. Raises AgentError when it is not there or is not a regular file."""

    def __init__(self, path: str) -> None:
        self.path = path
        try:
            self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except FileNotFoundError as error:
            raise AgentError("the source to stage from is not there", where=path) from error
        self._before = os.fstat(self._fd)
        if not stat.S_ISREG(self._before.st_mode):
            os.close(self._fd)
            raise AgentError("the source to stage from is not a regular file", where=path)
        self._pages = Pages(self._fd)
        self.size = self._before.st_size

    def read(self, view: memoryview, offset: int) -> int:
        """Fill `view` from `offset`."""
        return self._pages.read(view, offset)

    def check(self) -> None:
        """Compare the descriptor with what it was."""
        now = os.fstat(self._fd)
        if (now.st_size, now.st_mtime_ns) != (self._before.st_size, self._before.st_mtime_ns):  # a new link is none
            raise AgentError(
                "the source was changed while it was being read",
                kind="integrity",
                where=self.path,
                found=f"{now.st_size} bytes, changed at {now.st_mtime_ns / 1e9:.3f}",
                wanted=f"{self._before.st_size} bytes, changed at {self._before.st_mtime_ns / 1e9:.3f}",
                next="run again when nothing writes to it any more; nothing of it was kept",
            )

    def close(self) -> None:
        """Close the file."""
        os.close(self._fd)


class TextSource:
    """A small file that staging itself writes; see Source."""

    def __init__(self, text: str) -> None:
        self.path = "a text of this staging"
        self._data = text.encode()
        self.size = len(self._data)

    def read(self, view: memoryview, offset: int) -> int:
        """Fill `view` from `offset`."""
        got = self._data[offset : offset + len(view)]
        view[: len(got)] = got
        return len(got)

    def check(self) -> None:
        """It cannot change."""

    def close(self) -> None:
        """Nothing is open."""
