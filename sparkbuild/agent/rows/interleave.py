"""Rows laid out as runtimes want them: 256 bytes of weights, 8 of scales, and zeros behind the last row of a unit.

By a copy with strides at 15 GB/s; where this python has none, by joining views that were made once, at 6 GB/s.
numpy would do it at 35 GB/s, and is not worth its import: reading and hashing take ten times as long as either.
"""

from __future__ import annotations

from typing import Protocol

from sparkbuild.agent.rows import strided
from sparkbuild.agent.rows.tables import SCALE_BYTES as SCALE, WEIGHT_BYTES as WEIGHT

ROW = WEIGHT + SCALE  # bytes of one row

# Rows joined at once, 66 KiB; their views take 100 KiB. From 128 KiB on malloc maps each result anew, and the faults of
# its pages take five times as long as the join.
_JOINED = 256


class Interleave(Protocol):
    """Lays out units of so many rows and bytes."""

    def units(self, into: memoryview, weights: memoryview, scales: memoryview) -> None:
        """Fill `into`, which is whole units, with as many rows. All of them views of something that can be written."""


class Strided:
    """By strided.spread."""

    def __init__(self, rows: int, unit: int, spread: strided.Spread) -> None:
        self._rows, self._unit, self._spread = rows, unit, spread
        self._zeros = memoryview(bytearray())

    def units(self, into: memoryview, weights: memoryview, scales: memoryview) -> None:
        """See Interleave."""
        units = ((len(into) // self._unit, self._unit),)
        steps = units if self._rows == 1 else (*units, (self._rows, ROW))
        self._spread(into, 0, steps, WEIGHT, weights)
        self._spread(into, WEIGHT, steps, SCALE, scales)
        behind = self._rows * ROW
        if gap := self._unit - behind:
            size = units[0][0] * gap
            if len(self._zeros) < size:
                self._zeros = memoryview(bytearray(size))
            self._spread(into, behind, units, gap, self._zeros[:size])


class Joined:
    """By `bytes.join` of views that are made once, over two small buffers."""

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
        """See Interleave."""
        count, per_unit = len(into) // self._unit, len(self._pieces) // self._units
        for done in range(0, count, self._units):
            units = min(self._units, count - done)
            row, rows = done * self._rows, units * self._rows
            self._weights[: rows * WEIGHT] = weights[row * WEIGHT : (row + rows) * WEIGHT]
            self._scales[: rows * SCALE] = scales[row * SCALE : (row + rows) * SCALE]
            pieces = self._pieces if units == self._units else self._pieces[: units * per_unit]
            into[done * self._unit : (done + units) * self._unit] = b"".join(pieces)


def best(rows: int, unit: int) -> Interleave:
    """The faster one that this python has."""
    spread = strided.spread()
    return Joined(rows, unit) if spread is None else Strided(rows, unit, spread)
