"""How long a file system that does not answer is waited for: a NAS that hangs gives no error, it gives nothing.

A thread that waits for one cannot be ended, by nobody; so who waits is another thread, and the process ends without it.
What counts is one question to the file system (see questions.asking): one that is slow, and answers, takes its time.
"""

from __future__ import annotations

import os
import shlex
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import copy_context
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, TypeVar, cast

from sparkbuild.agent.disk import questions
from sparkbuild.agent.wire.protocol import AgentError

if TYPE_CHECKING:
    from sparkbuild.agent.wire.protocol import Reporter

LOOK = 20.0  # seconds for one question of a plan
WORK = 180.0  # of a staging: a server that restarts takes a minute and a half until it lets its clients go on
TELL = 3.0  # until somebody is told
AFTER = 2.0  # for each further look, when one was given up: most often it is the same NAS
_STEP = 0.05
_T = TypeVar("_T")
Look = tuple[Callable[[], object], str]  # and the folder that it is about, "" for none
_given_up: list[str] = []
_hurries: list[bool] = []


class SilentError(AgentError):
    """A file system does not answer: of what is on it nothing can be said."""


class _Looker:
    """A thread that carries out one look after the other. To make a thread takes longer than most looks."""

    def __init__(self) -> None:
        self._work: Callable[[], object] = int
        self._begin, self._ended = threading.Lock(), threading.Lock()
        self._begin.acquire()
        self._ended.acquire()
        threading.Thread(target=self._run, daemon=True).start()

    def start(self, work: Callable[[], object]) -> None:
        """Have it carried out; it raises nothing."""
        self._work = work
        self._begin.release()

    def ends(self, seconds: float) -> bool:
        """Wait for its end; False when that does not come in time. True once for each start."""
        return self._ended.acquire(timeout=seconds)

    def _run(self) -> None:
        while self._begin.acquire():
            self._work()
            self._work = int
            self._ended.release()


_idle: list[_Looker] = []


class Outcome(NamedTuple):
    """What a look returned, or what it raised: a SilentError when it was given up."""

    value: object
    error: BaseException | None


class _Round:
    """Looks that one thread carries out, until one of them is given up: that thread waits on, and carries out no more.
    To hand each look to a thread and back would take longer than most looks.
    """

    def __init__(self, looks: Iterable[Look], outcomes: list[Outcome]) -> None:
        self._looks = looks
        self._outcomes = outcomes
        self._guard = threading.Lock()
        self._present: tuple[object, str] | None = None  # whose questions are asked now, and the folder it is about

    def carry_out(self) -> None:
        """By the thread that may have to be left."""
        for look, about in self._looks:
            me = object()
            questions.begin(me)
            self._present = me, about
            questions.look_of.set(me)
            outcome = _outcome(look, about)
            if not self._end(me, outcome, given_up=False):
                return

    def _end(self, me: object, outcome: Outcome, *, given_up: bool) -> bool:
        """Either thread ends a look, whichever is first; False for the other one."""
        with self._guard:
            if self._present is None or self._present[0] is not me:
                return False
            self._present = None
            questions.end(me, given_up=given_up)
            self._outcomes.append(outcome)
            return True

    def gives_up(self) -> bool:
        """By the thread that waits: whether the present look is given up, and its thread left."""
        present = self._present
        if present is None:
            return False
        me, about = present
        question, seconds = questions.waited(me)
        if question is None:
            question, seconds = questions.Question(about, 0.0, me, of_source=False), questions.still(me)
            limit = LOOK
        else:
            limit = AFTER if _given_up or _hurries else LOOK
        if seconds <= limit:
            return False
        error = silent(question, seconds)
        if not self._end(me, Outcome(None, error), given_up=True):
            return False  # it has ended just now
        _given_up.append(about or error.fields["where"])
        return True


def _outcome(look: Callable[[], object], about: str) -> Outcome:
    if about and about in _given_up:
        return Outcome(None, silent(questions.Question(about, 0.0, None, of_source=False), LOOK))
    try:
        return Outcome(copy_context().run(look), None)
    except BaseException as error:  # noqa: BLE001 - raised again by the thread that waits
        return Outcome(None, error)


def each(looks: Sequence[Look]) -> list[Outcome]:
    """What came of each look, one after the other. One is given up, and the next begun, when a question of it to a file
    system stays open, or when it does not go on and nobody noted what it asked. Threads that a look starts belong to it
    when they run in its context. Of looks within each other each has its own bound.
    """
    outer = questions.look_of.get()
    outcomes: list[Outcome] = []
    while len(outcomes) < len(looks):
        work = _Round(looks[len(outcomes) :], outcomes)
        looker = _idle.pop() if _idle else _Looker()
        looker.start(partial(copy_context().run, work.carry_out))
        while not looker.ends(_STEP):
            questions.goes_on(outer)
            if work.gives_up():
                break
        else:
            _idle.append(looker)
    return outcomes


def bounded(look: Callable[[], _T], *, about: str = "") -> _T:
    """What `look` returns or raises. Raises SilentError when it is given up, as of `each`. `about`: the folder that is
    named then, and not looked at again.
    """
    (outcome,) = each([(look, about)])
    if outcome.error is not None:
        raise outcome.error
    return cast("_T", outcome.value)


@contextmanager
def watched(reporter: Reporter, *, kept: str = "", bound: float | None = None) -> Iterator[None]:
    """Tell when a question to a file system stays open, and end this process with an error when it stays so for more
    than WORK seconds; it is not ended where somebody else sees to that, after `bound` seconds. `kept`: what is not lost
    when it is left.
    """
    ended = threading.Event()
    limit = WORK if bound is None else bound

    def watch() -> None:
        told = ""
        while not ended.wait(_STEP * 4):
            question, seconds = questions.waited()
            if question is None:
                told = ""
                continue
            if seconds > limit and bound is None:
                reporter.emit("error", **silent(question, seconds).fields)
                leave(1)
            if seconds > TELL and told != question.path:
                told = question.path
                text = f"waiting for the file system of {told}, which does not answer; given up after {limit:.0f} s"
                text += f"; ctrl-C leaves it at once{f', and keeps {kept}' if kept else ''}"
                reporter.log(text)
                reporter.emit("progress", phase=text, bytes=0, total=None)

    threading.Thread(target=watch, daemon=True).start()
    try:
        yield
    finally:
        ended.set()


def hurry() -> None:
    """A file system of this node did not answer a while ago, and most often it is asked again: it is given up soon."""
    _hurries.append(True)


def hangs() -> bool:
    """Whether a thread of this process is left waiting."""
    return bool(_given_up)


def leave(code: int) -> None:
    """End this process though a thread of it cannot be ended: who reads what we say is told first that it ended."""
    for fd in (1, 2):
        os.close(fd)
    os._exit(code)


def silent(question: questions.Question, seconds: float) -> SilentError:
    """The error for a file system that does not answer."""
    near = shlex.quote(os.path.dirname(question.path))
    return SilentError(
        f"the file system of {'the source' if question.of_source else 'staged data'} does not answer",
        kind="node",
        where=question.path,
        found=f"no answer in {seconds:.0f} s",
        wanted="a file system that answers",
        next=f"on that node: timeout 5 ls -d {near}; look at the mount and at the NAS, then run again",
    )
