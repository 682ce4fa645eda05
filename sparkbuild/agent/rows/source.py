"""Rows of a lookup table as a file that does not exist: packed as runtimes want them, readable at any offset.

A header of 4096 bytes, then units: of one row (packed, 264 bytes) or of 15 rows and zeros (page15, 4096 bytes). A row
is 256 bytes of weights and 8 of scales, as they are in the shard. `Interleave` lays them out.

The magic on disk is `DSV1EN41`. Sources of runtimes call it "DSV41EN1", which is how its number reads, not its bytes.
"""

from __future__ import annotations

import hashlib
import struct
from typing import NamedTuple

from sparkbuild.agent.rows.tables import SCALE_BYTES as SCALE, WEIGHT_BYTES as WEIGHT, link_text
from sparkbuild.agent.source.fileset import RowBytes
from sparkbuild.agent.source.source import FileSource, read_bytes
from sparkbuild.agent.wire.protocol import integrity_error

HEADER = 4096  # bytes
ROW = WEIGHT + SCALE  # bytes of one row

# Rows joined at once, 66 KiB; their views take 100 KiB. From 128 KiB on malloc maps each result anew, and the faults of
# its pages take five times as long as the join.
_JOINED = 256
PAGE = 4096

_WINDOW = {WEIGHT: 2 << 20, SCALE: 256 << 10}  # bytes; see _Rows. Of scales a 32nd is needed


class Layout(NamedTuple):
    """`magic` in the order of the disk; `rows` of a unit, `unit` in bytes; `more` words of the header."""

    magic: bytes
    rows: int
    unit: int
    more: tuple[int, ...]


LAYOUTS = {
    "packed": Layout(b"DSV1EN41", 1, ROW, ()),
    "page15": Layout(b"DS41EPG2", 15, PAGE, (15, PAGE)),
}


def size_of(kind: str, rows: int) -> int:
    """Bytes of the file for so many rows. Exact: readers differ in what else they take."""
    layout = LAYOUTS[kind]
    return HEADER + layout.unit * -(-rows // layout.rows)


def header_of(kind: str, layer: int, lo: int, hi: int, rows: int) -> bytes:
    """The first 4096 bytes; `rows` is the length of the whole table."""
    layout = LAYOUTS[kind]
    words = (layer, lo, hi, rows, ROW, *layout.more)
    return (layout.magic + struct.pack(f"<{len(words)}Q", *words)).ljust(HEADER, b"\0")


class RowSource:
    """See source.Source. Takes 5 MiB at most, whatever the size of the table.
    Raises AgentError when the shard is not the one that was described.
    """

    def __init__(self, where: RowBytes) -> None:
        self._where, self._layout = where, LAYOUTS[where["kind"]]
        self._lo = where["lo"]
        self._count = where["hi"] - where["lo"]
        self.path, self.size = where["path"], size_of(where["kind"], self._count)
        self._header = header_of(where["kind"], where["layer"], where["lo"], where["hi"], where["rows"])
        self._weights = _Rows(WEIGHT, where["weight"], where["hi"])
        self._scales = _Rows(SCALE, where["scale"], where["hi"])
        self._file = FileSource(self.path, where["version"])
        self._files = [self._file]  # of the weights, and of the scales: see FileSource.again
        try:
            self._check_shard()
            self._files.append(self._file.again())
        except BaseException:
            self.close()
            raise
        self._interleave = Interleave(self._layout.rows, self._layout.unit)

    def read(self, view: memoryview, offset: int) -> int:
        """Fill `view` from `offset`."""
        end = min(offset + len(view), self.size)
        at = offset
        while at < end:
            into = view[at - offset : end - offset]
            at += self._from_header(into, at) if at < HEADER else self._from_units(into, at - HEADER)
        return max(0, at - offset)

    def check(self) -> None:
        """Compare the shard with what it was, and its link: another revision may have been put in its place."""
        for file in self._files:
            file.check()
        link = link_text(self.path)
        if link != self._where["link"]:
            raise integrity_error(
                "the source was replaced while it was being read",
                where=self.path,
                found=link or "a file of its own",
                wanted=self._where["link"] or "a file of its own",
                next="run again when nothing writes to it any more; nothing of it was kept",
            )

    def close(self) -> None:
        """Close the shard."""
        for file in self._files:
            file.close()

    def _check_shard(self) -> None:
        length = self._where["header_bytes"]
        data = read_bytes(self._file, 0, length)
        sha256 = hashlib.sha256(data).hexdigest()
        if (self._file.size, len(data), sha256) != (self._where["shard_bytes"], length, self._where["header_sha256"]):
            raise integrity_error(
                "the file with the lookup table is not the one it was when this was planned",
                where=self.path,
                found=f"{self._file.size} bytes, header sha256 {sha256}",
                wanted=f"{self._where['shard_bytes']} bytes, header sha256 {self._where['header_sha256']}",
                next="run again when nothing writes to it any more",
            )

    def _from_header(self, view: memoryview, at: int) -> int:
        got = self._header[at : at + len(view)]
        view[: len(got)] = got
        return len(got)

    def _from_units(self, view: memoryview, at: int) -> int:
        """Fill the beginning of `view` from byte `at` of the units; the bytes that are filled, at least one."""
        layout = self._layout
        first = at // layout.unit
        row = first * layout.rows
        count = min(-(-(at + len(view)) // layout.unit) * layout.rows, self._count) - row
        for rows, file in zip((self._weights, self._scales), self._files, strict=True):
            count = min(count, rows.load(file, self._lo + row, count, layout.rows))
        end = first + count // layout.rows if row + count < self._count else -(-self._count // layout.rows)
        length = min(len(view), end * layout.unit - at)
        # Whole units go where they belong at once. The first and the last may be cut off by the view, and the last of
        # all may lack rows: these are few, so they go by way of bytes.
        whole = -(-at // layout.unit)
        stop = max(whole, min((at + length) // layout.unit, self._count // layout.rows))
        if whole > first:
            cut = self._unit(first)[at - first * layout.unit :][:length]
            view[: len(cut)] = cut
        if stop > whole:
            start = whole * layout.unit - at
            into = view[start : start + (stop - whole) * layout.unit]
            row, count = self._lo + whole * layout.rows, (stop - whole) * layout.rows
            self._interleave.units(into, self._weights.rows(row, count), self._scales.rows(row, count))
        if stop < end and stop * layout.unit < at + length:
            start = stop * layout.unit - at
            view[start:length] = self._unit(stop)[: length - start]
        return length

    def _unit(self, unit: int) -> bytes:
        first = self._lo + unit * self._layout.rows
        rows = range(first, min(first + self._layout.rows, self._lo + self._count))
        pieces = (part.rows(row, 1) for row in rows for part in (self._weights, self._scales))
        return b"".join(pieces).ljust(self._layout.unit, b"\0")


class _Rows:
    """Consecutive rows of one tensor, as much as fits a window of the file, in a buffer that is used again.

    Windows begin and end at multiples of 2 MiB. What is read without leaving it in the page cache is dropped by folios,
    which may be that big: a read that ends within one costs the rest of it, and half the speed. What was begun in one
    window and ends in the next is kept in front of the window.
    """

    def __init__(self, width: int, origin: int, end: int) -> None:
        self.width, self._origin, self._window = width, origin, _WINDOW[width]
        size = (end * width + origin) // PAGE * PAGE + PAGE
        self._limit = size  # no row that is wanted is behind it
        self.buffer = memoryview(bytearray(PAGE + min(self._window, size)))
        self._start = self._from = self._to = 0  # bytes of the file: where the window begins, and what is held

    def load(self, file: FileSource, first: int, count: int, least: int) -> int:
        """Hold rows from `first` on, up to `count` wanted and `least` at the least; how many are held."""
        start = self._origin + first * self.width
        enough, wanted = start + min(count, least) * self.width, start + count * self.width
        while not (self._from <= start and enough <= self._to):
            kept = self._to - start
            if self._from <= start and 0 <= kept <= PAGE:  # going on: the whole window will be wanted
                at, stop = self._to, self._limit
                self.buffer[PAGE - kept : PAGE] = bytes(self.buffer[self.at_byte(start) : self.at_byte(self._to)])
            else:
                kept, at, stop = 0, start - start % PAGE, wanted + -wanted % PAGE
            stop = min(stop, at - at % self._window + self._window, file.size)
            self._from = self._to = 0  # in case that reading fails
            with self.buffer[PAGE : PAGE + stop - at] as view:
                got = file.read(view, at)
            self._start, self._from, self._to = at, at - kept, at + got
            if at + got < min(stop, enough):
                raise integrity_error(
                    "the file with the lookup table ends too soon",
                    where=file.path,
                    found=f"an end at byte {at + got}",
                    wanted=f"rows up to byte {wanted}",
                    next="compare it with the one it was downloaded or copied from, and fetch it again",
                )
        return min(count, (self._to - start) // self.width)

    def at_byte(self, byte: int) -> int:
        """Where a byte of the file is in the buffer."""
        return PAGE + byte - self._start

    def at(self, row: int) -> int:
        """Where a row is in the buffer."""
        return self.at_byte(self._origin + row * self.width)

    def rows(self, first: int, count: int) -> memoryview:
        return self.buffer[self.at(first) : self.at(first + count)]


class Interleave:
    """Lays out units of `unit` bytes with `rows` rows each, by `bytes.join` of views over two small buffers: 6 GB/s.

    Copies by address (through ctypes) do it at 15 GB/s and numpy at 35, and neither is worth it: reading and hashing
    take several times as long, and a wrong address ends the program on a node.
    """

    def __init__(self, rows: int, unit: int) -> None:
        self._rows, self._unit, self._units = rows, unit, _JOINED // rows  # units at once
        most = self._units * rows
        self._weights, self._scales = memoryview(bytearray(most * WEIGHT)), memoryview(bytearray(most * SCALE))
        zeros = memoryview(bytes(unit - rows * ROW))
        self._pieces: list[memoryview] = []
        for row in range(most):
            for buffer, width in ((self._weights, WEIGHT), (self._scales, SCALE)):
                self._pieces.append(buffer[row * width : (row + 1) * width])
            if zeros and row % rows == rows - 1:
                self._pieces.append(zeros)

    def units(self, into: memoryview, weights: memoryview, scales: memoryview) -> None:
        """Fill `into`, which is whole units, with as many rows."""
        count, per_unit = len(into) // self._unit, len(self._pieces) // self._units
        for done in range(0, count, self._units):
            units = min(self._units, count - done)
            row, rows = done * self._rows, units * self._rows
            self._weights[: rows * WEIGHT] = weights[row * WEIGHT : (row + rows) * WEIGHT]
            self._scales[: rows * SCALE] = scales[row * SCALE : (row + rows) * SCALE]
            pieces = self._pieces if units == self._units else self._pieces[: units * per_unit]
            into[done * self._unit : (done + units) * self._unit] = b"".join(pieces)
