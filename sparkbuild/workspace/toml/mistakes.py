"""A mistake in one file of the workspace; several of them make one error, so that one look shows all of them."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from sparkbuild.core.errors import ConfigError


class Mistake(msgspec.Struct, frozen=True):
    """What is wrong on one line. The texts are those of a SparkbuildError."""

    line: int
    what: str
    found: str = ""
    wanted: str = ""
    next: str = ""


def as_error(path: str, mistakes: Sequence[Mistake], kind: type[ConfigError] = ConfigError) -> ConfigError:
    """One error for a file (path relative to the workspace); `where` is the first mistake's `path:line`."""
    ordered = sorted(mistakes, key=lambda mistake: mistake.line)
    first = ordered[0]
    if len(ordered) == 1:
        return kind(first.what, where=f"{path}:{first.line}", found=first.found, wanted=first.wanted, next=first.next)
    return kind(
        f"{len(ordered)} mistakes in {path}",
        where=f"{path}:{first.line}",
        found="\n".join(_lines(path, mistake) for mistake in ordered),
    )


def _lines(path: str, mistake: Mistake) -> str:
    lines = [f"{path}:{mistake.line}: {mistake.what}"]
    for label in ("found", "wanted", "next"):
        text = getattr(mistake, label)
        if text:
            lines.extend(f"    {label}: {line}" for line in text.splitlines())
    return "\n".join(lines)
