"""Rows of a lookup table as a file that does not exist: packed as runtimes want them, readable at any offset.

A header of 4096 bytes, then units: of one row (packed, 264 bytes) or of 15 rows and zeros (page15, 4096 bytes). A row
is 256 bytes of weights and 8 of scales, as they are in the shard. With numpy rows are laid out by strided copies, at
the speed of memory; without, by joining views that were made once, at a fourth of it, which no disk keeps up with.

The magic on disk is `DSV1EN41`. Sources of runtimes call it "DSV41EN1", which is how its number reads, not its bytes.
"""

from __future__ import annotations

import hashlib
import importlib
import struct
from typing import Any, NamedTuple

from sparkbuild.agent.protocol import AgentError
from sparkbuild.agent.sources import FileSource
from sparkbuild.agent.tables import SCALE_BYTES as SCALE
from sparkbuild.agent.tables import WEIGHT_BYTES as WEIGHT
from sparkbuild.agent.tables import link_text

HEADER = 4096  # bytes
PAGE = 4096
ROW = WEIGHT + SCALE  # bytes of one row

_SCALES = 65536  # rows whose scales are held: they are read in big pieces, since a small read costs as much
_WITH_NUMPY = 16384  # rows laid out at once, 4 MiB
_WITHOUT = 4096  # each takes half a KiB of views


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


def open_rows(desc: dict[str, Any], *, with_numpy: bool = True) -> RowSource:
    """The source of a description that `rows.wish` made: {"kind": "packed" or "page15", "path", "link", "layer", "lo",
    "hi", "rows", "weight" and "scale" (first byte of row 0), "shard_bytes", "header_bytes", "header_sha256"}.

    Raises AgentError when the shard is not the one that was described.
    """
    return RowSource(desc, _numpy() if with_numpy else None)


def _numpy() -> Any:
    """The module, None when there is none or it does not fit this python, which is not always an ImportError."""
    try:
        numpy = importlib.import_module("numpy")
        made = numpy.zeros(2, [("a", "V3"), ("b", "V2")])
        made["a"][:] = numpy.frombuffer(b"....abcdef", "V3", 2, 4)
    except (ImportError, OSError, AttributeError, SystemError):
        return None
    return numpy if made.tobytes() == b"abc\0\0def\0\0" else None


class RowSource:
    """See sources.Source. Takes 5 MiB at most, whatever the size of the table."""

    def __init__(self, desc: dict[str, Any], numpy: Any) -> None:
        self._desc, self._layout = desc, LAYOUTS[desc["kind"]]
        self._lo: int = desc["lo"]
        self._count: int = desc["hi"] - desc["lo"]
        self.path, self.size = desc["path"], size_of(desc["kind"], self._count)
        self._header = header_of(desc["kind"], desc["layer"], desc["lo"], desc["hi"], desc["rows"])
        per_block = (_WITHOUT if numpy is None else _WITH_NUMPY) // self._layout.rows
        self._units: int = min(per_block, -(-self._count // self._layout.rows))  # at once
        rows = self._units * self._layout.rows
        self._weights = _Rows(WEIGHT, desc["weight"], rows)
        self._scales = _Rows(SCALE, desc["scale"], min(self._count, _SCALES))
        self._file = FileSource(self.path)
        try:
            self._check_shard()
        except BaseException:
            self._file.close()
            raise
        self._lay = _Joined(self._layout, self._weights, rows) if numpy is None else _Strided(self._layout, numpy)

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
        self._file.check()
        found = link_text(self.path)
        if found != self._desc["link"]:
            raise AgentError(
                "the source was replaced while it was being read",
                kind="integrity",
                where=self.path,
                found=found or "a file of its own",
                wanted=self._desc["link"] or "a file of its own",
                next="run again when nothing writes to it any more; nothing of it was kept",
            )

    def close(self) -> None:
        """Close the shard."""
        self._file.close()

    def _check_shard(self) -> None:
        length = self._desc["header_bytes"]
        data = bytearray(length)
        with memoryview(data) as view:
            got = self._file.read(view, 0)
        found = hashlib.sha256(data).hexdigest()
        if (self._file.size, got, found) != (self._desc["shard_bytes"], length, self._desc["header_sha256"]):
            raise AgentError(
                "the file with the lookup table is not the one it was when this was planned",
                kind="integrity",
                where=self.path,
                found=f"{self._file.size} bytes, header sha256 {found}",
                wanted=f"{self._desc['shard_bytes']} bytes, header sha256 {self._desc['header_sha256']}",
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
        end = min(-(-(at + len(view)) // layout.unit), first + self._units)  # units
        row = first * layout.rows
        count = min(end * layout.rows, self._count) - row
        self._weights.load(self._file, self._lo + row, count)
        if not self._scales.holds(self._lo + row, count):
            self._scales.load(self._file, self._lo + row, min(_SCALES, self._count - row))
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
            self._lay.units(into, self._weights, self._scales, self._lo + whole * layout.rows, stop - whole)
        if stop < end and stop * layout.unit < at + length:
            start = stop * layout.unit - at
            view[start:length] = self._unit(stop)[: length - start]
        return length

    def _unit(self, unit: int) -> bytes:
        first = self._lo + unit * self._layout.rows
        rows = range(first, min(first + self._layout.rows, self._lo + self._count))
        pieces = (part.row(row) for row in rows for part in (self._weights, self._scales))
        return b"".join(pieces).ljust(self._layout.unit, b"\0")


class _Rows:
    """Consecutive rows of one tensor in a buffer that is used again: row `first` at byte PAGE. What is read goes from a
    page's begin to a page's end, since a page that is read in part stays in memory.
    """

    def __init__(self, width: int, origin: int, rows: int) -> None:
        self.width, self._origin = width, origin
        self.buffer = memoryview(bytearray(PAGE + rows * width + PAGE))
        self.first = self.count = 0

    def load(self, file: FileSource, first: int, count: int) -> None:
        start = self._origin + first * self.width
        end = start + count * self.width
        before, after = start % PAGE, min(-end % PAGE, file.size - end)
        self.count = 0
        got = file.read(self.buffer[PAGE - before : PAGE + count * self.width + after], start - before)
        if got < before + end - start:
            raise AgentError(
                "the file with the lookup table ends too soon",
                kind="integrity",
                where=file.path,
                found=f"an end at byte {start - before + got}",
                wanted=f"rows up to byte {end}",
            )
        self.first, self.count = first, count

    def holds(self, first: int, count: int) -> bool:
        return self.first <= first and first + count <= self.first + self.count

    def at(self, row: int) -> int:
        """Where a row is in the buffer."""
        return PAGE + (row - self.first) * self.width

    def row(self, row: int) -> memoryview:
        return self.buffer[self.at(row) : self.at(row) + self.width]


class _Strided:
    """Rows laid out by numpy."""

    def __init__(self, layout: Layout, numpy: Any) -> None:
        row = [("weight", f"V{WEIGHT}"), ("scale", f"V{SCALE}")]
        self._layout, self._numpy = layout, numpy
        self._type = numpy.dtype([("rows", row, (layout.rows,)), ("zeros", f"V{layout.unit - layout.rows * ROW}")])

    def units(self, into: memoryview, weights: _Rows, scales: _Rows, first: int, count: int) -> None:
        """Fill `into` with so many whole units, from row `first` of the table on."""
        frombuffer, shape = self._numpy.frombuffer, (count, self._layout.rows)
        made, rows = frombuffer(into, self._type, count), count * self._layout.rows
        for name, source in (("weight", weights), ("scale", scales)):
            found = frombuffer(source.buffer, f"V{source.width}", rows, source.at(first))
            made["rows"][name][:] = found.reshape(shape)
        if self._type["zeros"].itemsize:
            made["zeros"][:] = self._numpy.zeros((), self._type["zeros"])


class _Joined:
    """Rows laid out by the standard library: `bytes.join` of views that are made once, over the same buffers."""

    def __init__(self, layout: Layout, weights: _Rows, rows: int) -> None:
        self._layout = layout
        self._scales = memoryview(bytearray(rows * SCALE))
        zeros = memoryview(bytes(layout.unit - layout.rows * ROW))
        self._pieces: list[memoryview] = []
        for row in range(rows):
            start = PAGE + row * WEIGHT
            self._pieces += (weights.buffer[start : start + WEIGHT], self._scales[row * SCALE : (row + 1) * SCALE])
            if zeros and row % layout.rows == layout.rows - 1:
                self._pieces.append(zeros)

    def units(self, into: memoryview, weights: _Rows, scales: _Rows, first: int, count: int) -> None:
        """Fill `into` with so many whole units, from row `first` of the table on."""
        skipped, rows = first - weights.first, count * self._layout.rows
        start = scales.at(first)
        self._scales[skipped * SCALE : (skipped + rows) * SCALE] = scales.buffer[start : start + rows * SCALE]
        pieces = 2 * self._layout.rows + (self._layout.unit > self._layout.rows * ROW)
        begin = skipped // self._layout.rows * pieces
        into[:] = b"".join(self._pieces[begin : begin + count * pieces])
