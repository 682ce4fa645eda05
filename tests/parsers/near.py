"""Texts of others for the parsers of this package: nearly right, and then not. And the bounds that each has to keep."""

from __future__ import annotations

import json
import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random
from types import FrameType
from typing import Any

from hypothesis import strategies as st

SECONDS = 10.0
MEMORY = 256 << 20  # bytes that a parser may take, above what the process has

_ODD = ["", "\x1b[31m", "a\nb", "\udc80", "../..", "/", "A" * 70_000, "[/INST]", "1e999", "\0"]
_DEEP = [
    b"[" * 100_000,
    b'{"a":' * 50_000,
    b"[" * 100_000 + b"]" * 100_000,
    b"1" * 5_000,
    b'"\\ud800"',
    b"NaN",
    b"\xff",
]

# What is drawn is a seed, and the rest is plain Python: hypothesis' own strategies take a hundred times as long for one
# nested value as most parsers do, which is hours for 10,000 inputs of each. What is found is said as it is, not shrunk.
_SEEDS = st.randoms(use_true_random=True)


def _text(random: Random) -> str:
    if random.random() < 0.3:
        return random.choice(_ODD)
    highest = random.choice((0x7F, 0xFF, 0xFFFF, 0x10FFFF))
    return "".join(map(chr, random.choices(range(highest + 1), k=random.randrange(20))))


def _number(random: Random) -> Any:
    near = random.choice((0, 1, -1, 2**31, 2**63, 2**64)) + random.randrange(-2, 3)
    odd = random.choice((0.0, -0.5, 1e300, 5e-324, float("inf"), float("nan"), random.random()))
    return random.choice((near, random.randrange(-(2**70), 2**70), odd))


def _junk(random: Random, depth: int = 2) -> Any:
    match random.randrange(6 if depth else 4):
        case 0:
            return random.choice((None, True, False))
        case 1:
            return _number(random)
        case 2 | 3:
            return _text(random)
        case 4:
            return [_junk(random, depth - 1) for _ in range(random.randrange(4))]
    return {_text(random): _junk(random, depth - 1) for _ in range(random.randrange(4))}


def _change(random: Random, value: Any) -> Any:
    if not value or not isinstance(value, dict | list) or random.randrange(4) == 0:
        return _junk(random)
    key: Any = random.choice(list(value)) if isinstance(value, dict) else random.randrange(len(value))
    match random.randrange(5):
        case 0:
            del value[key]
        case 1 if isinstance(value, dict):
            value[_text(random)] = _junk(random)
        case 1:
            value.append(_junk(random))
        case _:
            value[key] = _change(random, value[key])
    return value


def _changed(random: Random, text: str) -> Any:
    value = json.loads(text)
    for _ in range(random.randrange(4)):
        value = _change(random, value)
    return value


def _damaged(random: Random, data: bytes) -> bytes:
    how, at = random.randrange(10), random.randrange(len(data) + 1)
    if how <= 4:
        return data
    if how == 5:
        return data[:at]
    if how == 6 and data:
        at = min(at, len(data) - 1)
        return data[:at] + bytes([data[at] ^ random.randrange(1, 256)]) + data[at + 1 :]
    if how == 7:
        return data[:at] + random.choice(_DEEP) + data[at:]
    if how == 8:
        return random.choice(_DEEP)
    return random.randbytes(random.randrange(200))


def changed(value: Any) -> st.SearchStrategy[Any]:
    """A JSON value with up to three of its parts replaced, taken away, or put beside others."""
    text = json.dumps(value)
    return _SEEDS.map(lambda random: _changed(random, text))


def json_like(value: Any) -> st.SearchStrategy[bytes]:
    """The bytes of such a value, most often; else with damage that no JSON writer makes."""
    text = json.dumps(value)
    # default ensure_ascii: a surrogate is written as its escape, as others' writers do
    return _SEEDS.map(lambda random: _damaged(random, json.dumps(_changed(random, text)).encode()))


def damaged(data: bytes) -> st.SearchStrategy[bytes]:
    """Bytes as they are, half of the time; else cut, flipped, with something put in, or something else altogether."""
    return _SEEDS.map(lambda random: _damaged(random, data))


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
