"""Where staged bytes come from: a plain file, or a member of a zip archive, behind one small interface.

A source is opened once and believed only as far as its descriptor was the same before and after: a path on a NAS
answers `stat` from a cache that is seconds old, an open file does not.
"""

from __future__ import annotations

import os
import stat
import zipfile
import zlib
from typing import IO, Any, Protocol, cast

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


class Archive:
    """A zip archive (a wheel is one) that is open for reading."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.raw = FileSource(path)
        try:
            self.zip = zipfile.ZipFile(cast("IO[bytes]", _At(self.raw)))  # the reading half of a file is enough
        except (zipfile.BadZipFile, ValueError, NotImplementedError) as error:
            self.raw.close()
            raise _broken(path, error) from error

    def member(self, name: str) -> MemberSource:
        """One member, to be read by its full name in the archive."""
        return MemberSource(self, name)

    def close(self) -> None:
        """Close the archive."""
        self.zip.close()
        self.raw.close()


class MemberSource:
    """One member of an archive, unpacked as it is read; see Source. Going back means unpacking from its start again."""

    def __init__(self, archive: Archive, name: str) -> None:
        self._archive, self._name = archive, name
        self.path = f"{archive.path}: {name}"
        self._stream: IO[bytes] | None = None
        self._at = 0
        try:
            self.size = archive.zip.getinfo(name).file_size
        except KeyError as error:
            raise AgentError(f"the archive has no member {name}", where=archive.path) from error

    def read(self, view: memoryview, offset: int) -> int:
        """Fill `view` from `offset` of the unpacked member."""
        try:
            return self._read(view, offset)
        except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, NotImplementedError) as error:
            raise _broken(self.path, error) from error

    def _read(self, view: memoryview, offset: int) -> int:
        if self._stream is None or offset < self._at:
            self.close()
            self._stream, self._at = self._archive.zip.open(self._name), 0
        while self._at < offset:
            skipped = len(self._stream.read(min(1 << 20, offset - self._at)))
            if not skipped:
                return 0
            self._at += skipped
        done = 0
        while done < len(view):
            block = self._stream.read(min(1 << 20, len(view) - done))
            if not block:
                break
            view[done : done + len(block)] = block
            done += len(block)
        self._at += done
        if self._at == self.size:
            self._stream.read(1)  # zipfile compares its CRC when it sees the end
        return done

    def check(self) -> None:
        """Compare the archive with what it was."""
        self._archive.raw.check()

    def close(self) -> None:
        """Stop unpacking; the archive stays open."""
        if self._stream is not None:
            self._stream.close()
            self._stream = None


class Archives:
    """Sources by their description; an archive stays open for all of its members."""

    def __init__(self) -> None:
        self._open: dict[str, Archive] = {}

    def archive(self, path: str) -> Archive:
        """The archive at a path, opened once."""
        if path not in self._open:
            self._open[path] = Archive(path)
        return self._open[path]

    def source(self, wanted: dict[str, Any]) -> Source:
        """{"kind": "file", "path"} or {"kind": "zip-member", "path", "member"}. Raises AgentError."""
        if wanted.get("kind") == "file":
            return FileSource(wanted["path"])
        if wanted.get("kind") == "zip-member":
            return self.archive(wanted["path"]).member(wanted["member"])
        found = repr(wanted.get("kind"))
        raise AgentError("a source of an unknown kind", kind="config", found=found, wanted="file, zip-member")

    def close(self) -> None:
        """Close every archive."""
        for archive in self._open.values():
            archive.close()
        self._open.clear()


class _At:
    """What zipfile wants of a file: one position over a source that is read by offsets."""

    def __init__(self, source: FileSource) -> None:
        self._source, self._position = source, 0

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        start = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._source.size}[whence]
        if start + offset < 0:
            raise ValueError("a position before the start")  # as files do; zipfile takes it as "not a zip file"
        self._position = start + offset
        return self._position

    def read(self, size: int = -1) -> bytes:
        left = max(0, self._source.size - self._position)
        buffer = bytearray(left if size < 0 else min(size, left))
        with memoryview(buffer) as view:
            got = self._source.read(view, self._position)
        self._position += got
        return bytes(memoryview(buffer)[:got])

    def close(self) -> None:
        """The source is closed by its owner."""


def _broken(where: str, error: Exception) -> AgentError:
    what = "the archive is damaged, or of a kind that cannot be read"
    return AgentError(what, kind="integrity", where=where, found=str(error) or type(error).__name__)
