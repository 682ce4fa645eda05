"""Words that messages of many modules have."""

from __future__ import annotations

_SOME = 6  # names that a message shows


def shown(names: list[str]) -> str:
    """A few names for a message."""
    more = f" and {len(names) - _SOME} more" if len(names) > _SOME else ""
    return ", ".join(names[:_SOME]) + more


def files(count: int) -> str:
    """How many, in words: one file, two files."""
    return f"{count} file" if count == 1 else f"{count} files"


def size(count: float | None) -> str:
    """Bytes in the unit that shows them, decimal as disks and networks are sold; `?` when not known."""
    if count is None:
        return "?"
    for unit in ("B", "kB", "MB", "GB"):
        if abs(count) < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"
