"""How long a file system that does not answer is waited for: a NAS that hangs gives no error, it gives nothing.

A thread that waits for one cannot be ended, by nobody; so who waits is another thread, and the process ends without it.
What counts is one question to the file system (see nas.patient): a source that is slow, and answers, takes its time.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

from sparkbuild.agent.disk import nas
from sparkbuild.agent.wire.protocol import AgentError

if TYPE_CHECKING:
    from sparkbuild.agent.wire.protocol import Reporter

LOOK = 20.0  # seconds for one question of a plan
WORK = 180.0  # of a staging: a server that restarts takes a minute and a half until it lets its clients go on
TELL = 3.0  # until somebody is told
_AFTER = 2.0  # for each further look, when one was given up: most often it is the same NAS
_STEP = 0.05
_T = TypeVar("_T")
_given_up: list[str] = []


def bounded(look: Callable[[], _T]) -> _T:
    """What `look` returns or raises. Raises AgentError, kind node, when a question of it to a NAS stays open."""
    results: list[_T] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(look())
        except BaseException as error:  # noqa: BLE001 - raised again by the thread that waits
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    limit = _AFTER if _given_up else LOOK
    while thread.is_alive():
        thread.join(_STEP)
        path, seconds = nas.waited(thread.ident)
        if seconds > limit and thread.is_alive():
            _given_up.append(path)
            raise silent(path, seconds)
    if errors:
        raise errors[0]
    return results[0]


@contextmanager
def watched(reporter: Reporter) -> Iterator[None]:
    """Tell when a question to a NAS stays open, and end this process with an error when it stays so for too long. What
    was copied is kept, and gone on with.
    """
    ended = threading.Event()

    def watch() -> None:
        told = ""
        while not ended.wait(_STEP * 4):
            path, seconds = nas.waited()
            if seconds > WORK:
                reporter.emit("error", **silent(path, seconds).fields)
                leave(1)
            if seconds > TELL and told != path:
                told = path
                text = f"waiting for the file system of {path}, which does not answer; given up after {WORK:.0f} s"
                text += "; ctrl-C leaves it at once, and keeps what was copied"
                reporter.log(text)
                reporter.emit("progress", phase=text, bytes=0, total=None)
            elif not seconds:
                told = ""

    threading.Thread(target=watch, daemon=True).start()
    try:
        yield
    finally:
        ended.set()


def hangs() -> bool:
    """Whether a thread of this process is left waiting."""
    return bool(_given_up)


def leave(code: int) -> None:
    """End this process though a thread of it cannot be ended: who reads what we say is told first that it ended."""
    for fd in (1, 2):
        os.close(fd)
    os._exit(code)


def silent(path: str, seconds: float) -> AgentError:
    """The error for a file system that does not answer."""
    return AgentError(
        "the file system of the source does not answer",
        kind="node",
        where=path,
        found=f"no answer in {seconds:.0f} s",
        wanted="a file system that answers",
        next=f"on that node: timeout 5 ls -d {os.path.dirname(path)}; look at the mount and at the NAS, then run again",
    )
