"""Bytes, seconds and times as people read them."""

from __future__ import annotations

import time

from sparkbuild.agent.wire.words import size

__all__ = ["count", "duration", "size", "when"]


def count(number: int, noun: str) -> str:
    """How many, in words: one file, two files."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def duration(seconds: float) -> str:
    """Seconds, then minutes, then hours."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(int(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min"


def when(stamp: float) -> str:
    """A unix time in UTC, to the second."""
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(stamp))
