"""Copies with a stride: against a loop, at their edges, and on pythons that lack what they take."""

from __future__ import annotations

import ctypes
import random
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, strategies as st

from sparkbuild.agent.rows import strided


@pytest.fixture(autouse=True)
def _anew() -> Iterator[None]:
    strided.spread.cache_clear()
    yield
    strided.spread.cache_clear()


def loop(into: bytearray, first: int, steps: tuple[tuple[int, int], ...], item: int, data: bytes) -> None:
    places = [first]
    for count, stride in steps:
        places = [place + n * stride for place in places for n in range(count)]
    for n, place in enumerate(places):
        into[place : place + item] = data[n * item : (n + 1) * item]


counts = st.integers(0, 7)


@given(st.integers(0, 9), st.lists(st.tuples(counts, st.integers(0, 40)), min_size=1, max_size=3), st.integers(1, 30))
def test_the_same_as_a_loop(first: int, steps: list[tuple[int, int]], item: int) -> None:
    spread = strided.spread()
    assert spread is not None
    size = item
    for count, _ in steps:
        size *= count
    length = max(0, first + sum((count - 1) * stride for count, stride in steps) + item)
    data = random.Random(size).randbytes(size)
    found, wanted = bytearray(b"." * (length + 5)), bytearray(b"." * (length + 5))
    loop(wanted, first, tuple(steps), item, data)
    spread(memoryview(found), first, tuple(steps), item, memoryview(bytearray(data)))
    assert found == wanted


@pytest.mark.parametrize(
    ("first", "steps", "item", "length"),
    [
        (0, ((3, 4),), 2, 7),  # more data than places
        (0, ((3, 4),), 2, 5),
        (1, ((3, 4),), 2, 6),  # the last item ends behind the buffer
        (0, ((3, 5),), 2, 6),
        (-1, ((3, 4),), 2, 6),
        (0, ((2, -4),), 2, 4),
        (0, ((-1, 4),), -2, 2),
        (0, ((-3, 4),), 2, 6),
        (0, ((1 << 62, 1 << 62),), 2, 4),
        (0, (), 2, 2),
    ],
)
def test_what_does_not_fit_is_refused_and_nothing_written(
    first: int, steps: tuple[tuple[int, int], ...], item: int, length: int
) -> None:
    spread = strided.spread()
    assert spread is not None
    into = bytearray(b"." * 10)
    with pytest.raises(ValueError, match=r"not enough values|bytes up to"):
        spread(memoryview(into), first, steps, item, memoryview(bytearray(length)))
    assert into == b"." * 10


def test_a_buffer_that_cannot_be_written_is_refused() -> None:
    spread = strided.spread()
    assert spread is not None
    with pytest.raises(TypeError):
        spread(memoryview(b"." * 4), 0, ((2, 2),), 1, memoryview(bytearray(2)))


class Other:
    """A function that answers as if all went well, and does something else."""

    argtypes: Any = ()
    restype: Any = None

    def __call__(self, *_args: Any) -> int:
        return 0


def test_a_function_that_does_something_else_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes.pythonapi, "PyBuffer_FromContiguous", Other(), raising=False)
    assert strided.spread() is None


def test_without_the_function_or_ctypes_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "pythonapi", object())
    assert strided.spread() is None
    monkeypatch.setitem(sys.modules, "ctypes", None)
    assert strided.spread() is None
