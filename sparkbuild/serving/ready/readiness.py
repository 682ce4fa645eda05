"""Waiting for a lane: all ranks alive, port listening, health, model id, one real streamed answer, in this order."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack

from sparkbuild.agent.wire.printable import one_line
from sparkbuild.agent.wire.records import LaneRecord, Ready
from sparkbuild.core.errors import NodeError, NotReadyError, WrongModelError
from sparkbuild.core.interrupt import cancel
from sparkbuild.core.run import Progress, Run
from sparkbuild.serving.lane import LaneSpec
from sparkbuild.serving.ready.answer import Answer, NoAnswer, check
from sparkbuild.serving.ready.watching import Watches

PAUSE = 0.1  # seconds between two looks
SETTLED = 2.0  # seconds that an answer which waiting does not change is seen, before it is believed
LAST = 2.0  # seconds: a last try that is cut off earlier says nothing of the engine
AGAIN = 5.0  # seconds between two tries to find a way to what listens

Door = Callable[[], AbstractContextManager[str]]  # the base URL of what listens, while the block runs


def wait(spec: LaneSpec, nodes: tuple[str, ...], record: LaneRecord, door: Door, run: Run) -> Ready:
    """Wait until the lane really answers; how it did.

    `record` is that of rank 0; `door` opens the way to it, and is not asked before something listens there. Raises
    EngineDiedError as soon as a rank ends, NotReadyError when `ready_timeout` has passed or what it answers will not
    change by waiting, WrongModelError when it answers as another model. The lane is left as it is.
    """
    watches = Watches(run, nodes, spec.recipe, record.get("launch", ""))
    watches.start()
    began = time.monotonic()
    try:
        with ExitStack() as opened:
            answer = _answer(_Way(door, record, opened), spec, watches, run)
    finally:
        watches.end()
    # a time of the node's record is by another clock than this machine's
    launched = began if watches.head.launched is None else watches.head.launched
    return {"seconds": time.monotonic() - launched, "ttft": answer.ttft, "text": answer.text}


class _Way:
    """The way to the lane, opened when it listens; what does not open yet is tried again."""

    def __init__(self, door: Door, record: LaneRecord, opened: ExitStack) -> None:
        self.base = f"http://{record['host']}:{record['port']}"
        self._door = door
        self._opened = opened
        self._is_open = False
        self._again = 0.0

    def is_open(self) -> bool:
        """Whether `base` leads there; NoAnswer says why not when that was found out now."""
        if not self._is_open and time.monotonic() > self._again:
            try:
                self.base = self._opened.enter_context(self._door())
            except NodeError as error:
                self._again = time.monotonic() + AGAIN
                raise NoAnswer(f"it listens, and is not reached from here: {error.what}: {error.found}") from error
            self._is_open = True
        return self._is_open


class _Heard:
    """What it answers, and since when it is always the same."""

    state = "waiting for the process"
    since = 0.0
    _last = ""

    def take(self, error: NoAnswer, seconds: float) -> None:
        """What a question came to; where no time was left for an answer, what it answered before is to be told."""
        if not (error.late and self._last and seconds < LAST):
            self.state = str(error)
        if self._last != self.state:
            self._last, self.since = self.state, time.monotonic()


def _answer(way: _Way, spec: LaneSpec, watches: Watches, run: Run) -> Answer:
    start = time.monotonic()
    deadline = start + spec.ready_timeout
    heard = _Heard()
    head = watches.head
    while True:
        watches.check()
        asked = time.monotonic()
        if head.listening:
            try:
                if way.is_open():
                    return _ask(way.base, spec, watches, deadline)
            except NoAnswer as error:
                watches.check()
                if error.wrong:
                    raise _wrong_model(spec, way.base, error) from error
                heard.take(error, time.monotonic() - asked)
                if error.next and time.monotonic() - heard.since >= SETTLED:
                    raise _never(spec, way.base, error) from error
        elif head.last_line:
            heard.state = "process alive, port not open yet"
        waited = time.monotonic() - start
        if waited > spec.ready_timeout:
            raise _too_late(spec, way.base, heard.state, head.last_line)
        run.report(_progress(heard.state, watches, int(waited), int(spec.ready_timeout)))
        cancel.wait(PAUSE)


def _ask(base: str, spec: LaneSpec, watches: Watches, deadline: float) -> Answer:
    if watches.head.inside:
        raise NoAnswer(
            f"it listens on 127.0.0.1 port {spec.port} alone, which no other machine reaches",
            next='give the engine the address of its node in serve.command: "--host", "{{ host }}"',
        )
    # a first token may take minutes: `ready_timeout` bounds all of it
    return check(base, spec.model_id, patience=deadline - time.monotonic(), meanwhile=watches.check)


def _progress(state: str, watches: Watches, waited: int, budget: int) -> Progress:
    phase = watches.head.phase
    if phase is None or watches.head.listening:
        return Progress(f"ready? {state[:60]}", waited, budget, "s")
    count = f" {phase.done}/{phase.total}" if phase.total else ""
    return Progress(f"ready? {phase.text}{count}", waited, budget, "s")


def _wrong_model(spec: LaneSpec, base: str, error: NoAnswer) -> WrongModelError:
    return WrongModelError(
        f"lane {spec.recipe} answers, but as another model",
        where=base,
        found=str(error),
        wanted=f"model id {spec.model_id}",
        next="set model_id in the recipe to what the engine serves, or give the engine that name",
    )


def _never(spec: LaneSpec, base: str, error: NoAnswer) -> NotReadyError:
    """It is left running all the same: what is wrong may be with what we ask, and a load takes hours."""
    recipe = spec.recipe
    return NotReadyError(
        f"lane {recipe} runs, and will not be ready by waiting; it is left running",
        where=base,
        found=str(error),
        wanted="an engine that lists its models and completes a chat, without a key",
        next=f"{error.next}; doit logs {recipe} shows its log, doit stop:{recipe} ends it",
    )


def _too_late(spec: LaneSpec, base: str, state: str, last_line: str) -> NotReadyError:
    recipe = spec.recipe
    return NotReadyError(
        f"lane {recipe} was not ready after {spec.ready_timeout:g} s; it is left running",
        where=base,
        found=f"{state}; last line of its log: {one_line(last_line, 200) or '(none)'}",
        wanted=f"a streamed answer within serve.ready_timeout = {spec.ready_timeout:g} s",
        next=f"doit serve:{recipe} goes on waiting, doit logs {recipe} -f shows it, doit stop:{recipe} ends it",
    )
