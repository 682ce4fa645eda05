"""The content of one staged file against its ledger record: which of its chunks are not what was staged.

Texts here do not name the file: who asked knows what it is called, see `titles`.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import copy_context
from typing import NamedTuple

from sparkbuild.agent.disk import questions
from sparkbuild.agent.disk.pages import Pages, data_in
from sparkbuild.agent.ledger import digest
from sparkbuild.agent.ledger.digest import CHUNK, WIDTH
from sparkbuild.agent.ledger.ledger import Record
from sparkbuild.agent.ledger.shape import Shape

Moved = Callable[[int], None]  # told of every block of bytes that passed

_READERS = 2  # one reader leaves the disk idle while it hashes; more gain nothing
_NAMED = 8  # chunks, or runs of chunks, named in one line


class Found(NamedTuple):
    """What one file turned out to be. `text` is what is wrong in words, "" when nothing is; `bad` the wrong chunks,
    counted from 0; `stat` what it was while it was read, None when it could not be.
    """

    text: str = ""
    bad: tuple[int, ...] = ()
    stat: os.stat_result | None = None


@contextmanager
def opened(path: str, *, scattered: bool = False) -> Iterator[Pages]:
    """A regular file open for reading, never through a link in its last step. `scattered`: a few pieces of it will be
    read, so the kernel reads nothing ahead, which nobody would drop from the page cache. Raises OSError.
    """
    with questions.asking(path):
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise OSError(errno.EINVAL, f"it is {kind(os.fstat(fd))}, wanted a regular file", path)
        if scattered:
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
        yield _Asked(fd, path)
    finally:
        os.close(fd)


class _Asked(Pages):
    """A staged file whose disk is known to be asked while it is read."""

    def __init__(self, fd: int, path: str) -> None:
        super().__init__(fd)
        self._path = path

    def read(self, view: memoryview, offset: int) -> int:
        """As Pages."""
        with questions.asking(self._path):
            return super().read(view, offset)


def standing(path: str) -> tuple[os.stat_result | None, str]:
    """What stands under a name where a regular file belongs: its stat and "", or None and what is there instead."""
    try:
        with questions.asking(path):
            status = os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None, "is missing"
    except OSError as error:
        return None, unreadable(error)
    return (status, "") if stat.S_ISREG(status.st_mode) else (None, f"is {kind(status)}, wanted a regular file")


def unreadable(error: OSError) -> str:
    """Why a file that stands there cannot be read."""
    return f"cannot be read: {error.strerror or error}"


def check(path: str, record: Record, moved: Moved) -> Found:
    """Read the whole file and compare it with its record. Nothing of it stays in memory."""
    try:
        with opened(path) as pages:
            before = os.fstat(pages.fd)
            bad = _bad_chunks(pages, before.st_size, record, moved)
            after = os.fstat(pages.fd)
    except OSError as error:
        everything = tuple(range(digest.count(record.size)))
        return Found(unreadable(error), everything)
    if (before.st_mtime_ns, before.st_ctime_ns) != (after.st_mtime_ns, after.st_ctime_ns):
        return Found("was changed while it was being checked", bad)
    return Found(describe(record, before.st_size, bad), bad, before)


class Piece(NamedTuple):
    """A part of a file, as a range of bytes, with the digest that it should have."""

    record: Record
    first: int
    end: int
    digest: bytes


def chunk(record: Record, index: int) -> Piece:
    """A chunk of a file."""
    first = index * CHUNK
    return Piece(record, first, min(first + CHUNK, record.size), record.chunk(index))


def ends(record: Record) -> list[Piece]:
    """Its heads and tails, as far as their digests are known."""
    ranges, known = Shape(record.size, record.extents).ends(), record.ends
    values = (known[at : at + WIDTH] for at in range(0, len(known), WIDTH))
    if len(known) != WIDTH * len(ranges):
        return []
    return [Piece(record, first, end, value) for (first, end), value in zip(ranges, values, strict=True)]


def is_right(pages: Pages, piece: Piece, buffer: memoryview, moved: Moved) -> bool:
    """Compare a piece, which fits the buffer; `moved` is told of the bytes of data that were there to be read. The
    record's algorithm must be one this python has.
    """
    function = digest.function(piece.record.digest)
    size = piece.end - piece.first
    with buffer[:size] as view:
        got = pages.read(view, piece.first)
        moved(_data(Shape(piece.record.size, piece.record.extents), piece.first, piece.first + got))
        return function is not None and got == size and function(view) == piece.digest


def _data(shape: Shape, first: int, end: int) -> int:
    """Bytes of data in a range that lies in one chunk."""
    pieces = shape.pieces(first // CHUNK) if shape.sparse else [(first, end)]
    return sum(max(0, min(end, high) - max(first, low)) for low, high in pieces)


class Proof(NamedTuple):
    """What a file holds: sha256 and git blob sha1 in hex (the latter "" for a sparse one), the chunk digests one after
    the other and those of its ends, and the chunks that should be all hole and are not.
    """

    sha256: str
    sha1: str
    chunks: bytes
    ends: bytes = b""
    stray: tuple[int, ...] = ()


def prove(pages: Pages, shape: Shape, algorithm: str, moved: Moved, *, sha1: bool = False) -> Proof:
    """Read a file as it is."""
    function, chunks = digest.function(algorithm), shape.blank(algorithm)
    hashes = Hashes(shape, function, sha1=sha1)
    buffer = memoryview(bytearray(min(CHUNK, shape.size)))
    for index in shape.with_data():
        with buffer[: shape.length(index)] as view:
            got = pages.read(view, index * CHUNK)
            hashes.update(index, view[:got])
            if function is not None:
                chunks[index * WIDTH : (index + 1) * WIDTH] = function(view[:got])
        moved(_data(shape, index * CHUNK, index * CHUNK + got))
    stray = tuple(sorted(stray_chunks(pages, shape, moved)))
    return Proof(hashes.sha256.hexdigest(), hashes.hex1(), bytes(chunks), bytes(hashes.ends), stray)


class Hashes:
    """The digests of the whole and of its ends, as its chunks come by in order. sha1 is git's, with its header."""

    def __init__(self, shape: Shape, function: digest.Digest | None, *, sha1: bool) -> None:
        self._shape, self.sha256 = shape, hashlib.sha256()
        self._sha1 = hashlib.sha1(f"blob {shape.size}\0".encode(), usedforsecurity=False) if sha1 else None
        self._function, self._ends = function, shape.ends() if function is not None else []
        self.ends = bytearray(WIDTH * len(self._ends))

    def update(self, index: int, view: memoryview) -> None:
        """One more chunk, as it is in the file; only its data counts."""
        for first, end in self._shape.pieces(index):
            with view[first - index * CHUNK : end - index * CHUNK] as piece:
                self.sha256.update(piece)
                if self._sha1 is not None:
                    self._sha1.update(piece)
        for place, (first, end) in enumerate(self._ends):
            if first // CHUNK == index and self._function is not None:
                with view[first - index * CHUNK : end - index * CHUNK] as piece:
                    self.ends[place * WIDTH : (place + 1) * WIDTH] = self._function(piece)

    def hex1(self) -> str:
        """The git sha1, "" when it was not asked for."""
        return self._sha1.hexdigest() if self._sha1 is not None else ""


def stray_chunks(pages: Pages, shape: Shape, moved: Moved) -> set[int]:
    """Chunks that should be all hole, and hold something else than zeros."""
    wrong: set[int] = set()
    if not shape.sparse:
        return wrong
    filled, buffer = set(shape.with_data()), bytearray(CHUNK)
    for first, end in (piece for hole in shape.holes() for piece in data_in(pages.fd, *hole)):
        for index in range(first // CHUNK, digest.count(end)):
            if index in filled or index in wrong:
                continue  # the digest of that chunk is over its holes too
            low, high = max(first, index * CHUNK), min(end, (index + 1) * CHUNK)
            with memoryview(buffer) as whole, whole[: high - low] as view:
                got = pages.read(view, low)
            moved(got)
            if buffer.count(0, 0, got) != got:
                wrong.add(index)
    return wrong


def kind(status: os.stat_result) -> str:
    """What a directory entry is, in words."""
    names = {stat.S_IFREG: "a regular file", stat.S_IFLNK: "a symbolic link", stat.S_IFDIR: "a folder"}
    return names.get(stat.S_IFMT(status.st_mode), "a pipe, socket or device")


def describe(record: Record, size: int, bad: tuple[int, ...]) -> str:
    """What is wrong with a file of `size` bytes with these bad chunks; chunks count from 1 on screen."""
    if size != record.size:
        return f"has {size} bytes, its ledger says {record.size}"
    if not bad:
        return ""
    total = digest.count(record.size)
    if digest.function(record.digest) is None:  # it was hashed as a whole, so nobody knows which
        return f"has another sha256 than its ledger says ({size} bytes)"
    if total == 1:
        return f"differs from its ledger ({size} bytes, one chunk)"
    if len(bad) == 1:
        return f"differs from its ledger in chunk {bad[0] + 1} of {total}"
    runs = _runs(bad)
    named = ", ".join(runs[:_NAMED]) + (", ..." if len(runs) > _NAMED else "")
    return f"differs from its ledger in {len(bad)} of {total} chunks: {named}"


def _runs(bad: tuple[int, ...]) -> list[str]:
    """Chunks as people count them, neighbours in one: 1, 4-9."""
    runs: list[list[int]] = []
    for index in bad:
        if runs and runs[-1][1] == index:
            runs[-1][1] = index + 1
        else:
            runs.append([index + 1, index + 1])
    return [f"{first}-{last}" if first != last else str(first) for first, last in runs]


def _bad_chunks(pages: Pages, size: int, record: Record, moved: Moved) -> tuple[int, ...]:
    shape = Shape(record.size, record.extents)
    total = shape.chunks
    if digest.function(record.digest) is None:  # made by a node that has a digest this one has not
        proof = prove(pages, shape, digest.BLAKE2B, moved) if size == record.size else None
        return () if proof and proof.sha256 == record.sha256 and not proof.stray else tuple(range(total))
    indices = list(shape.with_data())
    bad: list[int] = []
    failed: list[OSError] = []

    def compare(first: int, step: int) -> None:
        buffer = memoryview(bytearray(min(CHUNK, record.size)))
        try:
            for index in indices[first::step]:
                if not is_right(pages, chunk(record, index), buffer, moved):
                    bad.append(index)
        except OSError as error:
            failed.append(error)

    readers = (
        [
            threading.Thread(target=copy_context().run, args=(compare, number, _READERS), daemon=True)
            for number in range(1, _READERS)
        ]
        if len(indices) > 4
        else []
    )
    for reader in readers:
        reader.start()
    compare(0, len(readers) + 1)
    for reader in readers:
        reader.join()
    if failed:
        raise failed[0]
    bad += stray_chunks(pages, shape, moved)
    return tuple(sorted(bad))
