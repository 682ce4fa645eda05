"""The archive of a git tree: sorted by path, one owner, one time, two file modes; the same tree, the same bytes."""

from __future__ import annotations

import os
import tarfile
from typing import NamedTuple

from sparkbuild.agent.git.objects import EXECUTABLE, FOLDER, LINK
from sparkbuild.agent.git.tree import Entry, shown
from sparkbuild.agent.store import tar
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
        sink = tar.Hashing(file)
        with tar.opened(sink) as archive:
            for entry in entries:
                _add(archive, entry, time, pointers)
                reporter.progress("export", sink.size, None)
        file.flush()
        os.fsync(file.fileno())
    return Written(sink.size, sink.digest.hexdigest(), pointers)


def _add(archive: tarfile.TarFile, entry: Entry, time: int, pointers: list[str]) -> None:
    name = entry.path.decode(errors="surrogateescape")
    if entry.mode == FOLDER:
        archive.addfile(tar.info_of(name, tar.Entry(tar.DIR, 0o755), time))
        return
    if entry.objects is None:
        raise ValueError(f"{shown(entry.path)} has no bytes")
    if entry.mode == LINK:
        target = entry.objects.blob(entry.oid).decode(errors="surrogateescape")
        archive.addfile(tar.info_of(name, tar.Entry(tar.LINK, 0o777, target=target), time))
        return
    size, blocks = entry.objects.size(entry.oid)
    info = tar.info_of(name, tar.Entry(tar.FILE, 0o755 if entry.mode == EXECUTABLE else 0o644, size=size), time)
    if archive.fileobj is None:
        raise ValueError("the archive is closed")
    # not by addfile: it wants the bytes as one file, and from Python 3.13 on takes no header without them
    header, head = info.tobuf(tarfile.GNU_FORMAT, archive.encoding or "utf-8", "surrogateescape"), b""
    archive.fileobj.write(header)
    for block in blocks:
        head = head or block[:_POINTER_SIZE]
        archive.fileobj.write(block)
    padding = -size % tarfile.BLOCKSIZE
    archive.fileobj.write(b"\0" * padding)
    archive.offset += len(header) + size + padding
    if size < _POINTER_SIZE and head.startswith(_POINTERS):
        pointers.append(shown(entry.path))
