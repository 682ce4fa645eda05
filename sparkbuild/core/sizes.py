"""Bytes and counts as people read them: decimal units, as disks and networks are sold."""

from __future__ import annotations


def size(count: float | None) -> str:
    """Bytes in the unit that shows them; `?` when not known."""
    if count is None:
        return "?"
    for unit in ("B", "kB", "MB", "GB"):
        if abs(count) < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


def count(number: int, noun: str) -> str:
    """How many, in words: one file, two files."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
