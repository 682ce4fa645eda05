"""Where staged bytes come from: a plain file, or a member of an archive, behind one small interface.

A source is opened once and believed only as far as its version was the same before and after: a path on a NAS answers
`stat` from a cache that is seconds old, an open file does not.
"""

from __future__ import annotations

import os
import stat
import threading
from typing import Protocol

from sparkbuild.agent.disk import nas
from sparkbuild.agent.disk.pages import Pages
from sparkbuild.agent.source import versions
from sparkbuild.agent.source.versions import Version
from sparkbuild.agent.wire.protocol import AgentError, integrity_error


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


def read_bytes(source: Source, offset: int, size: int) -> bytes:
    """So many bytes from `offset` on, fewer where the source ends."""
    with memoryview(bytearray(size)) as view:
        return bytes(view[: source.read(view, offset)])


class FileSource:
    """A plain file; see Source. Raises AgentError when it is not there or is not a regular file.

    `version`: what it was when it was planned (see versions), "" when nobody looked: it must still be that. A NAS that
    hiccups (EIO), or has lost the handle (ESTALE), is asked again, with the path opened anew: it must be the same file,
    in the same version. Several threads may read at once.

    `linked`: it has other names, each of which may go while it is read, and that moves its ctime: then this is no news,
    and who reads holds the content against a digest.
    """

    def __init__(self, path: str, version: str = "", *, linked: bool = False) -> None:
        self.path, self._guard, self._linked = path, threading.Lock(), linked
        self._pages, self.version = nas.patient(path, lambda: _open(path))
        self._old: list[int] = []  # another thread may be reading from it, so it is closed at the end
        self.size = self.version.size
        if version and version != self.version.text and not self._is_same(versions.parsed(version)):
            self.close()
            what = "the source is not the one it was when this was planned"
            raise _another(what, path, self.version, versions.parsed(version))

    def read(self, view: memoryview, offset: int) -> int:
        """Fill `view` from `offset`."""
        return nas.patient(self.path, lambda: self._pages.read(view, offset), self._reopen)

    def check(self) -> None:
        """Compare the descriptor with what it was."""
        self._compare(versions.of(nas.patient(self.path, lambda: nas.fstat(self._pages.fd), self._reopen)))

    def again(self) -> FileSource:
        """The same file, opened once more: what the kernel reads ahead of one place is not given up for another.

        Raises AgentError when the path is another file by now.
        """
        return FileSource(self.path, self.version.text, linked=self._linked)

    def close(self) -> None:
        """Close the file."""
        for fd in (*self._old, self._pages.fd):
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)  # what the kernel read ahead behind the last byte wanted
            os.close(fd)

    def _reopen(self) -> None:
        pages, version = _open(self.path)
        with self._guard:
            self._old.append(pages.fd)  # closed with the rest when it turns out to be another file
            self._compare(version)
            self._old.remove(pages.fd)
            self._old.append(self._pages.fd)
            self._pages = pages

    def _compare(self, now: Version) -> None:
        if not self._is_same(now):
            raise _another("the source was changed while it was being read", self.path, now, self.version)

    def _is_same(self, other: Version) -> bool:
        return other == (self.version._replace(ctime_ns=other.ctime_ns) if self._linked else self.version)


def _another(what: str, path: str, now: Version, before: Version) -> AgentError:
    found, wanted = versions.told(now, before)
    return integrity_error(
        what,
        where=path,
        found=found,
        wanted=wanted,
        next="run again when nothing writes to it any more; nothing of it was kept",
    )


def _open(path: str) -> tuple[Pages, Version]:
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
        status = nas.fstat(fd)
    except OSError:
        os.close(fd)
        raise
    if not stat.S_ISREG(status.st_mode):
        os.close(fd)
        raise AgentError(
            "the source to stage from is not a regular file",
            where=path,
            found="a folder" if stat.S_ISDIR(status.st_mode) else "a socket, a pipe or a device",
            wanted="a regular file",
            next="move it away, and fetch that file again",
        )
    return Pages(fd), versions.of(status)


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
