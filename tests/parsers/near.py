"""Texts of others for the parsers of this package: nearly right, and then not. And the bounds that each has to keep."""

from __future__ import annotations

import json
import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from hypothesis import strategies as st

SECONDS = 10.0
MEMORY = 256 << 20  # bytes that a parser may take, above what the process has

_TEXTS = st.one_of(
    st.text(max_size=20),
    st.sampled_from(["", "\x1b[31m", "a\nb", "\udc80", "../..", "/", "A" * 70_000, "[/INST]", "1e999", "\0"]),
)
_SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(min_value=-(2**70), max_value=2**70),
    st.floats(),
    _TEXTS,
)
JUNK = st.recursive(
    _SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(_TEXTS, inner, max_size=3)),
    max_leaves=5,
)
_DEEP = [
    b"[" * 100_000,
    b'{"a":' * 50_000,
    b"[" * 100_000 + b"]" * 100_000,
    b"1" * 5_000,
    b'"\\ud800"',
    b"NaN",
    b"\xff",
]


@st.composite
def changed(draw: st.DrawFn, value: Any) -> Any:
    """A JSON value with up to three of its parts replaced, taken away, or put beside others."""
    found = json.loads(json.dumps(value))
    for _ in range(draw(st.integers(0, 3))):
        found = _changed_once(draw, found)
    return found


def _changed_once(draw: st.DrawFn, value: Any) -> Any:
    if not value or not isinstance(value, dict | list) or draw(st.integers(0, 3)) == 0:
        return draw(JUNK)
    keys = list(value) if isinstance(value, dict) else list(range(len(value)))
    key = draw(st.sampled_from(keys))
    match draw(st.integers(0, 4)):
        case 0:
            del value[key]
        case 1 if isinstance(value, dict):
            value[draw(_TEXTS)] = draw(JUNK)
        case 1:
            value.append(draw(JUNK))
        case _:
            value[key] = _changed_once(draw, value[key])
    return value


@st.composite
def json_like(draw: st.DrawFn, value: Any) -> bytes:
    """The bytes of such a value, most often; else with damage that no JSON writer makes."""
    # default ensure_ascii: a surrogate is written as its escape, as others' writers do
    data = json.dumps(draw(changed(value))).encode()
    return draw(damaged(data))


@st.composite
def damaged(draw: st.DrawFn, data: bytes) -> bytes:
    """Bytes as they are, half of the time; else cut, flipped, with something put in, or something else altogether."""
    how = draw(st.integers(0, 9))
    at = draw(st.integers(0, len(data)))
    if how <= 4:
        return data
    if how == 5:
        return data[:at]
    if how == 6 and data:
        at = min(at, len(data) - 1)
        return data[:at] + bytes([data[at] ^ draw(st.integers(1, 255))]) + data[at + 1 :]
    if how == 7:
        return data[:at] + draw(st.sampled_from(_DEEP)) + data[at:]
    if how == 8:
        return draw(st.sampled_from(_DEEP))
    return draw(st.binary(max_size=200))


class TooLongError(AssertionError):
    """A parser did not end in time."""


@contextmanager
def bounded(*messages: type[BaseException]) -> Iterator[None]:
    """The parser ends within `SECONDS`, takes less than `MEMORY`, and raises nothing but `messages`.

    The limit is on address space: what is over it is a MemoryError at the place that asked for it.
    """
    with open("/proc/self/statm", encoding="ascii") as file:
        used = int(file.read().split()[0]) * resource.getpagesize()
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    before = signal.signal(signal.SIGALRM, _late)
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, hard))
    try:
        yield
    except messages:
        pass  # it says so in words
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _late(_number: int, _frame: FrameType | None) -> None:
    raise TooLongError(f"not finished after {SECONDS:g} s")
