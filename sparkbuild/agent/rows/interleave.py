"""Rows laid out as runtimes want them: 256 bytes of weights, 8 of scales, and zeros behind the last row of a unit.

By joining views that are made once, at 6 GB/s. Copies by address (through ctypes) do it at 15 GB/s and numpy at 35, and
neither is worth it: reading and hashing take several times as long, and a wrong address ends the program on a node.
"""

from __future__ import annotations

from sparkbuild.agent.rows.tables import SCALE_BYTES as SCALE, WEIGHT_BYTES as WEIGHT

ROW = WEIGHT + SCALE  # bytes of one row

# Rows joined at once, 66 KiB; their views take 100 KiB. From 128 KiB on malloc maps each result anew, and the faults of
# its pages take five times as long as the join.
_JOINED = 256


class Interleave:
    """Lays out units of `unit` bytes with `rows` rows each, by `bytes.join` of views over two small buffers."""

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
