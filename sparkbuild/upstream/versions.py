"""Which of many names is a newer version of one: tags of repositories and images, versions of wheels. Pure.

Names are compared within a family: the same text before the numbers, a `v` apart, and after them. So `v1.2` is newer
than `v1.1`, and neither `cu-1.2` nor `1.2-slim` is; `13.0-devel-ubuntu24.04` is newer than `12.8-devel-ubuntu24.04`,
and than no `-runtime-`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

_NAME = re.compile(r"(?P<before>(?:.*?[^0-9.])??)(?P<numbers>[0-9]+(?:\.[0-9]+)*)(?P<after>.*)")
_PRE = re.compile(r"[-_.]?(?P<stage>a|alpha|b|beta|c|rc|pre|preview|dev)[-_.]?(?P<number>[0-9]*)", re.IGNORECASE)
_POST = re.compile(r"[-_.]?(?:post|r)[-_.]?(?P<number>[0-9]*)", re.IGNORECASE)
_STAGES = {"dev": -4, "a": -3, "alpha": -3, "b": -2, "beta": -2}  # c, rc, pre, preview: -1


class Version(NamedTuple):
    """A name taken apart; `family` is what must be the same to compare, `rank` what is compared."""

    family: tuple[str, str]
    rank: tuple[tuple[int, ...], int, int]
    pre: bool


def parse(name: str) -> Version | None:
    """None for a name without numbers, which is no version: `main`, `latest`."""
    match = _NAME.fullmatch(name)
    if match is None or len(name) > 200:
        return None
    numbers = [int(piece) for piece in match["numbers"].split(".") if len(piece) < 19]
    while len(numbers) > 1 and numbers[-1] == 0:
        numbers.pop()
    before, after = match["before"].lower().removesuffix("v"), match["after"]
    pre, post = _PRE.fullmatch(after), _POST.fullmatch(after)
    if pre is not None:
        stage = _STAGES.get(pre["stage"].lower(), -1)
        return Version((before, ""), (tuple(numbers), stage, int(pre["number"] or 0)), pre=True)
    if post is not None:
        return Version((before, ""), (tuple(numbers), 1, int(post["number"] or 0)), pre=False)
    return Version((before, after), (tuple(numbers), 0, 0), pre=False)


def newest(current: str, names: Iterable[str]) -> str:
    """The newest of `names` that is newer than `current` and of its family, "" when there is none.

    Pre-releases count only when `current` is one.
    """
    mine = parse(current)
    if mine is None:
        return ""
    best, best_rank = "", mine.rank
    for name in names:
        found = parse(name)
        if found is None or found.family != mine.family or (found.pre and not mine.pre):
            continue
        if found.rank > best_rank:
            best, best_rank = name, found.rank
    return best
