"""Rows laid out as runtimes want them: 256 bytes of weights, 8 of scales, and zeros behind the last row of a unit.

With numpy by strided copies, at the speed of memory; without, by joining views that were made once, at a fourth of it
and with the interpreter held. Importing numpy takes 60 ms, in which 64 MiB are packed: a small file does without, and a
big one begins without.
"""

from __future__ import annotations

import importlib
import os
import threading
from typing import Any, Protocol

from sparkbuild.agent.tables import SCALE_BYTES as SCALE
from sparkbuild.agent.tables import WEIGHT_BYTES as WEIGHT

ROW = WEIGHT + SCALE  # bytes of one row

_BIG = 256 << 20  # bytes of a file for which numpy is worth its import
_JOINED = 1024  # rows; their views take 400 KiB


class Interleave(Protocol):
    """Lays out units of so many rows and bytes."""

    def units(self, into: memoryview, weights: memoryview, scales: memoryview) -> None:
        """Fill `into`, which is whole units, with as many rows."""


class Strided:
    """By numpy."""

    def __init__(self, rows: int, unit: int, numpy: Any) -> None:
        row = [("weight", f"V{WEIGHT}"), ("scale", f"V{SCALE}")]
        self._rows, self._numpy = rows, numpy
        self._type = numpy.dtype([("rows", row, (rows,)), ("zeros", f"V{unit - rows * ROW}")])

    def units(self, into: memoryview, weights: memoryview, scales: memoryview) -> None:
        """See Interleave."""
        made = self._numpy.frombuffer(into, self._type)
        for name, source, width in (("weight", weights, WEIGHT), ("scale", scales, SCALE)):
            made["rows"][name][:] = self._numpy.frombuffer(source, f"V{width}").reshape(-1, self._rows)
        if self._type["zeros"].itemsize:
            made["zeros"][:] = self._numpy.zeros((), self._type["zeros"])


class Joined:
    """By the standard library: `bytes.join` of views that are made once, over two small buffers."""

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


class Best:
    """Joined until numpy is there, if it is worth it for a file of so many bytes and this node has it."""

    def __init__(self, rows: int, unit: int, size: int) -> None:
        self._rows, self._unit = rows, unit
        self._now: Interleave = Joined(rows, unit)
        if size >= _BIG:
            # No daemon: an interpreter that ends in the middle of an import may crash, so it waits for this one.
            threading.Thread(target=self._take_numpy).start()

    def units(self, into: memoryview, weights: memoryview, scales: memoryview) -> None:
        """See Interleave."""
        self._now.units(into, weights, scales)

    def _take_numpy(self) -> None:
        numpy = load_numpy()
        if numpy is not None:
            self._now = Strided(self._rows, self._unit, numpy)


def load_numpy() -> Any:
    """The module, None when there is none or it does not fit this python, which is not always an ImportError."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # else it starts a thread for each core
    try:
        numpy = importlib.import_module("numpy")
        made = numpy.zeros(2, [("a", "V3"), ("b", "V2")])
        made["a"][:] = numpy.frombuffer(b"....abcdef", "V3", 2, 4)
    except (ImportError, OSError, AttributeError, SystemError):
        return None
    return numpy if made.tobytes() == b"abc\0\0def\0\0" else None
