"""How long a file system that does not answer is waited for: a NAS that hangs gives no error, it gives nothing.

A thread that waits for one cannot be ended, by nobody; so who waits is another thread, and the process ends without it.
What counts is one question to the file system (see questions.asking): one that is slow, and answers, takes its time.
"""

from __future__ import annotations

import os
import shlex
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import copy_context
from functools import partial
from typing import TYPE_CHECKING, TypeVar

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


def bounded(look: Callable[[], _T], *, about: str = "") -> _T:
    """What `look` returns or raises. Raises SilentError when a question of it to a file system stays open, or when it
    does not go on and nobody noted what it asked. `about`: the folder that is named then, and not looked at again.
    Threads that `look` starts belong to it when they run in its context. Of looks within each other each has its own
    bound.
    """
    if about and about in _given_up:
        raise silent(questions.Question(about, 0.0, None, of_source=False), LOOK)
    me, outer = object(), questions.look_of.get()
    results: list[_T] = []
    errors: list[BaseException] = []

    def run() -> None:
        questions.look_of.set(me)
        try:
            results.append(look())
        except BaseException as error:  # noqa: BLE001 - raised again by the thread that waits
            errors.append(error)

    questions.begin(me)
    looker = _idle.pop() if _idle else _Looker()
    looker.start(partial(copy_context().run, run))
    limit = AFTER if _given_up or _hurries else LOOK
    silence: SilentError | None = None
    while not (ended := looker.ends(_STEP)) and silence is None:
        questions.goes_on(outer)
        question, seconds = questions.waited(me)
        if question and seconds > limit:
            silence = silent(question, seconds)
        elif question is None and questions.still(me) > LOOK:
            silence = silent(questions.Question(about, 0.0, me, of_source=False), questions.still(me))
    questions.end(me, given_up=not ended)
    if silence is not None and not ended:  # its thread is left waiting
        _given_up.append(about or silence.fields["where"])
        raise silence
    _idle.append(looker)
    if errors:
        raise errors[0]
    return results[0]


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
