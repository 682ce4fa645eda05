"""The archive of a git tree: sorted by path, one owner, one time, two file modes; the same tree, the same bytes."""

from __future__ import annotations

import hashlib
import io
import os
import tarfile
from typing import NamedTuple

from sparkbuild.agent.git.objects import EXECUTABLE, FOLDER, LINK
from sparkbuild.agent.git.tree import Entry, shown
from sparkbuild.agent.wire.protocol import Reporter

# The first line of an LFS pointer, https://github.com/git-lfs/git-lfs/blob/main/docs/spec.md, and its older name.
_POINTERS = (b"version https://git-lfs.github.com/spec/v1\n", b"version https://hawser.github.com/spec/v1\n")
_POINTER_SIZE = 1024  # bytes: a pointer is smaller


class Written(NamedTuple):
    """Bytes and sha256 of the archive, and the files in it that are LFS pointers."""

    size: int
    sha256: str
    pointers: list[str]


def write(path: str, entries: list[Entry], time: int, reporter: Reporter) -> Written:
    """Write the entries, which are sorted, to `path`, and flush it. All times are `time`, unix seconds.

    Raises BrokenMirrorError when an object turns out to be another; `path` is no archive then.
    """
    pointers: list[str] = []
    with open(path, "wb") as file:
        sink = _Hashing(file)
        with tarfile.open(fileobj=sink, mode="w", format=tarfile.GNU_FORMAT, errors="surrogateescape") as archive:
            for entry in entries:
                _add(archive, entry, time, pointers)
                reporter.progress("export", sink.size, None)
        file.flush()
        os.fsync(file.fileno())
    return Written(sink.size, sink.digest.hexdigest(), pointers)


class _Hashing(io.RawIOBase):
    """Passes bytes on to a file, and knows their number and sha256."""

    def __init__(self, file: io.BufferedWriter) -> None:
        super().__init__()
        self._file = file
        self.size = 0
        self.digest = hashlib.sha256()

    def writable(self) -> bool:
        """It is only written to."""
        return True

    def write(self, data: bytes) -> int:  # type: ignore[override]
        """See the class."""
        self.digest.update(data)
        self.size += len(data)
        return self._file.write(data)

    def tell(self) -> int:
        """Bytes so far."""
        return self.size


def _add(archive: tarfile.TarFile, entry: Entry, time: int, pointers: list[str]) -> None:
    info = tarfile.TarInfo(entry.path.decode(errors="surrogateescape"))
    info.mtime = time
    info.mode = 0o755 if entry.mode in {EXECUTABLE, FOLDER} else 0o644
    if entry.mode == FOLDER:
        info.type = tarfile.DIRTYPE
        archive.addfile(info)
        return
    if entry.objects is None:
        raise ValueError(f"{shown(entry.path)} has no bytes")
    if entry.mode == LINK:
        info.type, info.mode = tarfile.SYMTYPE, 0o777
        info.linkname = entry.objects.blob(entry.oid).decode(errors="surrogateescape")
        archive.addfile(info)
        return
    info.size, blocks = entry.objects.size(entry.oid)
    head = b""
    archive.addfile(info)  # the header; the bytes follow by hand, since tarfile wants them as one file
    if archive.fileobj is None:
        raise ValueError("the archive is closed")
    for block in blocks:
        head = head or block[:_POINTER_SIZE]
        archive.fileobj.write(block)
    padding = -info.size % tarfile.BLOCKSIZE
    archive.fileobj.write(b"\0" * padding)
    archive.offset += info.size + padding
    if info.size < _POINTER_SIZE and head.startswith(_POINTERS):
        pointers.append(shown(entry.path))
