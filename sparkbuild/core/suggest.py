"""The nearest of the names that would have been right: "did you mean". Only ever called when something is wrong."""

from __future__ import annotations

from collections.abc import Iterable


def nearest(word: str, names: Iterable[str], likeness: float = 0.6) -> str:
    """The one of `names` most like `word`, or "" when none is like it: `likeness` is from 0 to 1."""
    pool = sorted(set(names))
    folded = {name.lower().replace("-", "_"): name for name in pool}
    close = closest(word.lower().replace("-", "_"), folded, most=1, likeness=likeness)
    return folded[close[0]] if close else ""


def closest(word: str, names: Iterable[str], *, most: int = 3, likeness: float = 0.6) -> list[str]:
    """The names that are most like `word`, the best first."""
    import difflib  # noqa: PLC0415 - it costs start-up time, and a healthy workspace never needs it

    return difflib.get_close_matches(word, list(names), n=most, cutoff=likeness)


def did_you_mean(word: str, names: Iterable[str]) -> str:
    """What to offer for a name that is not among `names`: "did you mean `x`?", else the first 12 of them, else ""."""
    pool = sorted(set(names))
    best = nearest(word, pool)
    if best:
        return f"did you mean `{best}`?"
    if not pool:
        return ""
    shown = ", ".join(pool[:12])
    return f"one of: {shown}" + (", ..." if len(pool) > 12 else "")
