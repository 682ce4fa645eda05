"""Which bytes of a file are data: all of them, or the extents of a sparse one, cut into chunks and into disk blocks."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from functools import cache

from sparkbuild.agent.ledger import digest
from sparkbuild.agent.ledger.digest import CHUNK, WIDTH
from sparkbuild.agent.ledger.ledger import Extents

END = 64 << 10  # bytes of a head or a tail
_BLOCK = 4096  # what file systems allocate, and what they round a hole to
_EXTENTS = 8  # of a sparse file with more of them, only the outermost two have a head and a tail


class Shape:
    """The shape of a file of `size` bytes; without extents it is dense."""

    __slots__ = ("_starts", "extents", "size", "sparse")

    def __init__(self, size: int, extents: Extents = ()) -> None:
        self.size, self.sparse = size, bool(extents)
        self.extents = extents or (((0, size),) if size else ())
        self._starts = tuple(first for first, _ in extents) or (0,)

    @property
    def chunks(self) -> int:
        """How many chunks it has, holes and all."""
        return digest.count(self.size)

    @property
    def data(self) -> int:
        """Bytes of data."""
        return sum(end - first for first, end in self.extents)

    @property
    def room(self) -> int:
        """Bytes it takes on a disk."""
        return sum(end - first for first, end in self.blocks()) if self.sparse else self.size

    def length(self, index: int) -> int:
        """Bytes of one chunk, holes and all."""
        return min(CHUNK, self.size - index * CHUNK)

    def pieces(self, index: int) -> list[tuple[int, int]]:
        """The ranges of data in one chunk, counted from the start of the file."""
        first = index * CHUNK
        end = first + self.length(index)
        at = max(0, bisect_right(self._starts, first) - 1)
        ranges = []
        while at < len(self.extents) and self.extents[at][0] < end:
            low, high = max(first, self.extents[at][0]), min(end, self.extents[at][1])
            if low < high:
                ranges.append((low, high))
            at += 1
        return ranges

    def weight(self, index: int) -> int:
        """Bytes of data in one chunk."""
        return sum(end - first for first, end in self.pieces(index))

    def with_data(self) -> Iterator[int]:
        """The chunks that have data, in order."""
        after = 0
        for first, end in self.extents:
            begin = max(after, first // CHUNK)
            after = max(after, digest.count(end))
            yield from range(begin, after)

    def ends(self) -> list[tuple[int, int]]:
        """Heads and tails, as ranges of bytes: the first and last 64 KiB of each extent, each within one chunk. None of
        a file of up to 128 KiB, which is read as a whole as soon.
        """
        if self.size <= 2 * END:
            return []
        ranges: dict[tuple[int, int], None] = {}
        extents = self.extents
        for low, high in extents if len(extents) <= _EXTENTS else (extents[0], extents[-1]):
            ranges[low, min(low + END, low - low % CHUNK + CHUNK, high)] = None
            ranges[max(low, high - END, (high - 1) // CHUNK * CHUNK), high] = None
        return list(ranges)

    def blocks(self, index: int | None = None) -> list[tuple[int, int]]:
        """The disk blocks that hold data, of one chunk or of the file, as ranges of bytes that do not touch."""
        ranges: list[tuple[int, int]] = []
        for first, end in self.extents if index is None else self.pieces(index):
            low, high = first // _BLOCK * _BLOCK, min(self.size, -(-end // _BLOCK) * _BLOCK)
            if ranges and low <= ranges[-1][1]:
                ranges[-1] = (ranges[-1][0], max(high, ranges[-1][1]))
            else:
                ranges.append((low, high))
        return ranges

    def holes(self) -> Iterator[tuple[int, int]]:
        """The ranges between the disk blocks that hold data."""
        at = 0
        for first, end in self.blocks():
            if at < first:
                yield at, first
            at = end
        if at < self.size:
            yield at, self.size

    def blank(self, algorithm: str) -> bytearray:
        """Chunk digests with those of chunks that are all hole filled in, and zeros for those that have data."""
        digests = bytearray(WIDTH * self.chunks)
        if self.sparse and self.chunks:
            whole, last = nothing(algorithm, CHUNK), self.chunks - 1
            digests = bytearray(whole * last + nothing(algorithm, self.length(last)))
            for index in self.with_data():
                digests[index * WIDTH : (index + 1) * WIDTH] = bytes(WIDTH)
        return digests


@cache
def nothing(algorithm: str, length: int) -> bytes:
    """The digest of so many zeros; zeros itself for an algorithm that this python has not."""
    function = digest.function(algorithm)
    return function(bytearray(length)) if function else bytes(WIDTH)
