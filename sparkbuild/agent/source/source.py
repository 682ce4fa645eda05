"""Where staged bytes come from: a plain file, or a member of an archive, behind one small interface.

A source is opened once and believed only as far as its descriptor was the same before and after: a path on a NAS
answers `stat` from a cache that is seconds old, an open file does not.
"""

from __future__ import annotations

import errno
import os
import stat
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol, TypeVar

from sparkbuild.agent.disk import nas
from sparkbuild.agent.disk.pages import Pages
from sparkbuild.agent.wire.protocol import AgentError

_PASSING = (errno.EIO, errno.ESTALE)
_PAUSES = (0.1, 0.5, 2.0)  # seconds before each new try
_T = TypeVar("_T")


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
    """A plain file; see Source. Raises AgentError when it is not there or is not a regular file.

    A NAS that hiccups (EIO), or has lost the handle (ESTALE), is asked again, with the path opened anew: it must be the
    same size and mtime. Several threads may read at once.
    """

    def __init__(self, path: str) -> None:
        self.path, self._guard = path, threading.Lock()
        self._pages, self._before = self._patiently(lambda: _open(path))
        self._old: list[int] = []  # another thread may be reading from it, so it is closed at the end
        self.size = self._before.st_size

    def read(self, view: memoryview, offset: int) -> int:
        """Fill `view` from `offset`."""
        return self._patiently(lambda: self._pages.read(view, offset), self._reopen)

    def check(self) -> None:
        """Compare the descriptor with what it was."""
        self._compare(self._patiently(lambda: nas.fstat(self._pages.fd), self._reopen))

    @property
    def version(self) -> dict[str, int]:
        """What the file was when it was opened; see nas.version."""
        return nas.version(self._before)

    def again(self) -> FileSource:
        """The same file, opened once more: what the kernel reads ahead of one place is not given up for another.

        Raises AgentError when the path is another file by now.
        """
        other = FileSource(self.path)
        try:
            self._compare(other._before)
        except AgentError:
            other.close()
            raise
        return other

    def close(self) -> None:
        """Close the file."""
        for fd in (*self._old, self._pages.fd):
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)  # what the kernel read ahead behind the last byte wanted
            os.close(fd)

    def _reopen(self) -> None:
        pages, found = _open(self.path)
        with self._guard:
            self._old.append(pages.fd)  # closed with the rest when it turns out to be another file
            self._compare(found)
            self._old.remove(pages.fd)
            self._old.append(self._pages.fd)
            self._pages = pages

    def _compare(self, now: os.stat_result) -> None:
        if (now.st_size, now.st_mtime_ns) != (self._before.st_size, self._before.st_mtime_ns):  # a new link is none
            raise AgentError(
                "the source was changed while it was being read",
                kind="integrity",
                where=self.path,
                found=_version(now),
                wanted=_version(self._before),
                next="run again when nothing writes to it any more; nothing of it was kept",
            )

    def _patiently(self, call: Callable[[], _T], mend: Callable[[], None] | None = None) -> _T:
        """The answer of `call`, tried again after an error that may pass."""
        for pause in (*_PAUSES, None):
            try:
                return call()
            except OSError as error:
                if error.errno not in _PASSING:
                    raise
                if pause is None:
                    name = errno.errorcode[error.errno]
                    raise AgentError(
                        "the source to stage from cannot be read",
                        kind="node",
                        where=self.path,
                        found=f"{name} ({os.strerror(error.errno)}), {len(_PAUSES) + 1} times",
                        next="look at the NAS and its mount, then run again: it goes on where it stopped",
                    ) from error
                time.sleep(pause)
                if mend is not None:
                    with suppress(OSError):  # then the next call fails again, and is counted
                        mend()
        raise AssertionError


def _version(found: os.stat_result) -> str:
    """What a file was when it was looked at, to the millisecond: two versions may be of one second."""
    second, rest = divmod(found.st_mtime_ns, 10**9)
    when = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(second))
    return f"{found.st_size} bytes, changed at {when}.{rest // 10**6:03d} UTC"


def _open(path: str) -> tuple[Pages, os.stat_result]:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError as error:
        raise AgentError(
            "the source to stage from is not there",
            where=path,
            found=f"a link to nothing: -> {os.readlink(path)}" if os.path.islink(path) else "no such file",
            wanted="a regular file",
            next="fetch that file again; or, where a NAS is not mounted, mount it",
        ) from error
    try:
        found = nas.fstat(fd)
    except OSError:
        os.close(fd)
        raise
    if not stat.S_ISREG(found.st_mode):
        os.close(fd)
        raise AgentError(
            "the source to stage from is not a regular file",
            where=path,
            found="a folder" if stat.S_ISDIR(found.st_mode) else "a socket, a pipe or a device",
            wanted="a regular file",
            next="move it away, and fetch that file again",
        )
    return Pages(fd), found


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
