"""Questions to file systems that may hang: noted while they are open, so that who watches can name them and give up."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import islice
from operator import attrgetter
from typing import NamedTuple, TypeVar

_AT_ONCE = 64  # 0.5 s of a slow disk
_T = TypeVar("_T")


class Question(NamedTuple):
    """What a thread waits for and since when, by time.monotonic(); `look`: on whose behalf, see `look_of`."""

    path: str
    since: float
    look: object
    of_source: bool


look_of: ContextVar[object] = ContextVar("look_of", default=None)  # set by who may give up; readers are started with it
_open: dict[int, Question] = {}  # by thread
_moved: dict[object, float] = {}  # by look that somebody waits for: when it last asked, or was answered
_given_up: set[object] = set()  # looks that nobody waits for any more


@contextmanager
def asking(path: str, *, of_source: bool = False) -> Iterator[None]:
    """Note that the file system of a path is asked something, until it has answered."""
    me, look, now = threading.get_ident(), look_of.get(), time.monotonic()
    outer = _open.get(me)
    _open[me] = Question(path, now, look, of_source)
    goes_on(look)
    try:
        yield
    finally:
        goes_on(look)
        if outer is None:
            del _open[me]
        else:
            _open[me] = outer


def asking_each(path: str, items: Iterable[_T]) -> Iterator[_T]:
    """Items, each of which is a short question to the file system of a path; noted by many at once, which is cheap."""
    rest = iter(items)
    while some := list(islice(rest, _AT_ONCE)):
        with asking(path):
            yield from some


def waited(look: object = None) -> tuple[Question | None, float]:
    """The question that is open for longest (of one look, or of any not given up), and its seconds; or None."""
    asked = [
        question
        for question in list(_open.values())
        if (question.look is look if look else question.look not in _given_up)
    ]
    oldest = min(asked, key=attrgetter("since"), default=None)
    return oldest, time.monotonic() - oldest.since if oldest else 0.0


def begin(look: object) -> None:
    """Somebody waits for a look."""
    _moved[look] = time.monotonic()


def goes_on(look: object) -> None:
    """Note that a look is not stuck: it asked, was answered, or waits for another one that has its own bound."""
    if look in _moved:
        _moved[look] = time.monotonic()


def still(look: object) -> float:
    """For how many seconds a look has asked nothing and been answered nothing: what it waits for was not noted."""
    now = time.monotonic()
    return now - _moved.get(look, now)


def end(look: object, *, given_up: bool) -> None:
    """Nobody waits for this look any more."""
    del _moved[look]
    if given_up:
        _given_up.add(look)
