"""A zip archive (a wheel is one) and its members as sources to stage from."""

from __future__ import annotations

import os
import zipfile
from functools import partial
from typing import IO, cast

from sparkbuild.agent.disk import openzip
from sparkbuild.agent.source.source import FileSource, read_bytes
from sparkbuild.agent.wire.protocol import AgentError, integrity_error


class Archive:
    """An archive that is open for reading. Raises AgentError, kind integrity, when it cannot be read as one."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.raw = FileSource(path)
        try:
            with openzip.whole(partial(_broken, path)):
                self.zip = zipfile.ZipFile(cast("IO[bytes]", _At(self.raw)))  # the reading half of a file is enough
        except AgentError:
            self.raw.close()
            raise

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
        with openzip.whole(partial(_broken, self.path)):
            return self._read(view, offset)

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
        data = read_bytes(self._source, self._position, left if size < 0 else min(size, left))
        self._position += len(data)
        return data

    def close(self) -> None:
        """The source is closed by its owner."""


def _broken(where: str, problem: str) -> AgentError:
    what = "the archive is damaged, or of a kind that cannot be read"
    return integrity_error(
        what,
        where=where,
        found=problem,
        wanted="a zip archive without a password",
        next="compare it with the one that its author publishes, then pin that one",
    )
