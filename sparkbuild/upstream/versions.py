"""Which of many names is a newer version of one: tags of repositories and images, versions of wheels. Pure.

Names are compared within their own kind: the same text before the numbers (a `v` apart) and after them, as many
numbers, and all of them by the calendar or none. So `v1.2` is newer than `v1.1`, and `cu-1.2`, `1.2-slim`, `1.2.1` and
`2025.10` are not; `13.0.1-devel-ubuntu24.04` is newer than `12.8.1-devel-ubuntu24.04`, and than no `-runtime-`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

_DATE = re.compile(
    r"(?<![0-9])(?P<year>20[0-9]{2})(?P<between>[-_.]?)(?P<month>0[1-9]|1[0-2])(?P=between)(?P<day>0[1-9]|[12][0-9]|3[01])"
    r"(?![0-9])"
)
_NUMBERS = re.compile(r"[0-9]+(?:\.[0-9]+)+")
_NUMBER = re.compile(r"[0-9]+")
_STAGE = re.compile(
    r"[-_.]?(?P<word>alpha|beta|preview|nightly|post|dev|pre|rc|a|b|c|r)[-_.]?(?P<number>[0-9]*)(?=$|[-_.+])"
    r"|-(?P<revision>[0-9]+)$",
    re.IGNORECASE,
)
_STAGES = {"nightly": -5, "dev": -4, "a": -3, "alpha": -3, "b": -2, "beta": -2, "post": 1, "r": 1}  # rc, c, pre: -1
_FINAL = (0, 0)  # below a `post`, above a pre-release
# A commit in a name: it says nothing of what is newer, and two builds never share it.
_COMMIT = re.compile(r"[-_.+]?(?<![0-9a-z])g?(?=[0-9a-f]*[0-9])(?=[0-9a-f]*[a-f])[0-9a-f]{7,40}$")
# Before a number that is of something else than of the image: `latest-cu129`, `rocm6.4`, `py3.12`, `sm120`.
_OF_ANOTHER = re.compile(r"(?:^|[-_.])(?:cu|cuda|rocm|py|python|sm|ubuntu|ubi|debian)$", re.IGNORECASE)


class Version(NamedTuple):
    """A name taken apart. `family` is what must be the same to compare: text before and after, and `shape`, that of the
    numbers; `rank` is what is compared: the numbers, then stage and number of each stage.
    """

    family: tuple[str, str]
    shape: tuple[str, int]
    rank: tuple[tuple[int, ...], tuple[tuple[int, int], ...]]
    pre: bool


def parse(name: str) -> Version | None:
    """None for a name that is no version: `main`, `latest`, the name of a commit."""
    if len(name) > 200:
        return None
    bare = _COMMIT.sub("", name)
    date = _DATE.search(bare)
    if date is not None and not re.search(r"[0-9]\.[0-9]", bare[: date.start()]):
        numbers = (int(date["year"]), int(date["month"]), int(date["day"]))
        return Version((bare[: date.start()].lower(), bare[date.end() :]), ("date", 3), (numbers, ()), pre=False)
    match = _NUMBERS.search(bare) or _NUMBER.search(bare)
    before = bare[: match.start()] if match else ""
    if match is None or _OF_ANOTHER.search(before):
        return None
    pieces = match[0].split(".")
    if any(len(piece) > 18 for piece in pieces):
        return None
    stages, after = _stages(bare[match.end() :])
    family = (before.lower().removesuffix("v"), after)
    pre = any(stage < 0 for stage, _ in stages)
    return Version(family, (_calendar(pieces), len(pieces)), (tuple(map(int, pieces)), (*stages, _FINAL)), pre)


def _calendar(pieces: list[str]) -> str:
    """By which calendar the numbers are: `2025.10`, `25.09` as NVIDIA's and Ubuntu's are, or "" for none."""
    if re.fullmatch(r"20[0-9]{2}", pieces[0]):
        return "year"
    return "short year" if re.fullmatch(r"(1[5-9]|[2-4][0-9])\.(0[1-9]|1[0-2])", ".".join(pieces[:2])) else ""


def _stages(after: str) -> tuple[list[tuple[int, int]], str]:
    """The stages at the beginning of what follows the numbers, `rc7.dev12`, and the rest."""
    stages = []
    while (match := _STAGE.match(after)) and match[0]:
        word, number = (match["word"] or "post").lower(), match["number"] or match["revision"] or "0"
        if len(number) > 18:
            break
        stages.append((_STAGES.get(word, -1), int(number)))
        after = after[match.end() :]
    return stages, after


def newest(current: str, names: Iterable[str], *, one_scheme: bool = False) -> str:
    """The newest of `names` that is newer than `current` and of its kind, "" when there is none. Pre-releases count
    only when `current` is one. `one_scheme`: the names are all versions of one thing, whatever they look like.
    """
    mine = parse(current)
    if mine is None:
        return ""
    best, best_rank = "", mine.rank
    for name in names:
        version = parse(name)
        if version is None or version.family != mine.family or (version.pre and not mine.pre):
            continue
        if version.rank > best_rank and (one_scheme or version.shape == mine.shape):
            best, best_rank = name, version.rank
    return best
