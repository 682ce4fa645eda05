"""The content of one staged file against its ledger record: which of its chunks are not what was staged."""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from sparkbuild.agent import digest
from sparkbuild.agent.digest import CHUNK
from sparkbuild.agent.ledger import Record
from sparkbuild.agent.pages import Pages

Moved = Callable[[int], None]  # told of every block of bytes that passed

_READERS = 2  # one reader leaves the disk idle while it hashes; more gain nothing
_NAMED = 8  # chunks named in one line


class Found(NamedTuple):
    """What one file turned out to be. `text` is what is wrong in words, "" when nothing is; `bad` the wrong chunks,
    counted from 0; `stat` what it was while it was read, None when it could not be.
    """

    text: str = ""
    bad: tuple[int, ...] = ()
    stat: os.stat_result | None = None


@contextmanager
def opened(path: str) -> Iterator[Pages]:
    """A regular file open for reading, never through a link in its last step. Raises OSError."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise OSError(f"{path} is {kind(os.fstat(fd))}")
        yield Pages(fd)
    finally:
        os.close(fd)


def check(path: str, record: Record, moved: Moved) -> Found:
    """Read the whole file and compare it with its record. Nothing of it stays in memory."""
    try:
        with opened(path) as pages:
            before = os.fstat(pages.fd)
            bad = _bad_chunks(pages, before.st_size, record, moved)
            after = os.fstat(pages.fd)
    except OSError as error:
        everything = tuple(range(digest.count(record.size)))
        return Found(f"{record.name} cannot be read: {error.strerror or error}", everything)
    if (before.st_mtime_ns, before.st_ctime_ns) != (after.st_mtime_ns, after.st_ctime_ns):
        return Found(f"{record.name} was changed while it was being checked", bad)
    return Found(describe(record, before.st_size, bad), bad, before)


def chunk_is_right(pages: Pages, record: Record, index: int, buffer: bytearray) -> bool:
    """Compare one chunk. The record's algorithm must be one this python has."""
    function = digest.function(record.digest)
    size = min(CHUNK, record.size - index * CHUNK)
    with memoryview(buffer) as whole, whole[:size] as view:
        got = pages.read(view, index * CHUNK)
        return function is not None and got == size and function(view) == record.chunk(index)


def prove(pages: Pages, size: int, algorithm: str, moved: Moved) -> tuple[str, bytes]:
    """(sha256 in hex, chunk digests one after the other) of a file as it is."""
    import hashlib  # noqa: PLC0415 - 3 ms, and most looks believe the stamps

    function, whole, chunks = digest.function(algorithm), hashlib.sha256(), []
    buffer = memoryview(bytearray(CHUNK))
    for start in range(0, size, CHUNK):
        view = buffer[: min(CHUNK, size - start)]
        got = pages.read(view, start)
        whole.update(view[:got])
        chunks.append(function(view[:got]) if function else b"")
        moved(got)
    return whole.hexdigest(), b"".join(chunks)


def kind(found: os.stat_result) -> str:
    """What a directory entry is, in words."""
    names = {stat.S_IFREG: "a regular file", stat.S_IFLNK: "a symbolic link", stat.S_IFDIR: "a folder"}
    return names.get(stat.S_IFMT(found.st_mode), "a pipe, socket or device")


def describe(record: Record, size: int, bad: tuple[int, ...]) -> str:
    """What is wrong with a file of `size` bytes with these bad chunks; chunks count from 1 on screen."""
    if size != record.size:
        return f"{record.name} has {size} bytes, its ledger says {record.size}"
    if not bad:
        return ""
    total = digest.count(record.size)
    if len(bad) == total:
        return f"{record.name} is not what was staged: it differs from its ledger throughout"
    if len(bad) == 1:
        return f"{record.name} differs from its ledger in chunk {bad[0] + 1} of {total}"
    named = ", ".join(str(index + 1) for index in bad[:_NAMED]) + (", ..." if len(bad) > _NAMED else "")
    return f"{record.name} differs from its ledger in {len(bad)} of {total} chunks: {named}"


def _bad_chunks(pages: Pages, size: int, record: Record, moved: Moved) -> tuple[int, ...]:
    total = digest.count(record.size)
    if digest.function(record.digest) is None:  # made by a node that has a digest this one has not
        right = size == record.size and prove(pages, size, digest.BLAKE2B, moved)[0] == record.sha256
        return () if right else tuple(range(total))
    bad: list[int] = []
    failed: list[OSError] = []

    def compare(first: int, step: int) -> None:
        buffer = bytearray(min(CHUNK, record.size))
        try:
            for index in range(first, total, step):
                if not chunk_is_right(pages, record, index, buffer):
                    bad.append(index)
                moved(min(CHUNK, record.size - index * CHUNK))
        except OSError as error:
            failed.append(error)

    readers = [threading.Thread(target=compare, args=(n, _READERS)) for n in range(1, _READERS)] if total > 4 else []
    for reader in readers:
        reader.start()
    compare(0, len(readers) + 1)
    for reader in readers:
        reader.join()
    if failed:
        raise failed[0]
    return tuple(sorted(bad))
