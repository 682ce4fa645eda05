"""Waiting for a lane: all ranks alive, port listening, health, model id, one real streamed answer, in this order."""

from __future__ import annotations

import time
from typing import Any

from sparkbuild.agent.wire.printable import one_line
from sparkbuild.core.errors import NotReadyError, WrongModelError
from sparkbuild.core.interrupt import cancel
from sparkbuild.core.run import Progress, Run
from sparkbuild.serving.answer import Answer, NoAnswer, check
from sparkbuild.serving.lane import LaneSpec
from sparkbuild.serving.watching import Watches

PAUSE = 0.1  # seconds between two looks
SETTLED = 2.0  # seconds that an answer which waiting does not change is seen, before it is believed


def wait(spec: LaneSpec, nodes: tuple[str, ...], record: dict[str, Any], base: str, run: Run) -> dict[str, Any]:
    """Wait until the lane really answers at `base`; {"seconds": since its launch, "ttft": s, "text": what it said}.

    `record` is that of rank 0. Raises EngineDiedError as soon as a rank ends, NotReadyError when `ready_timeout` has
    passed or what it answers will not change by waiting, WrongModelError when it answers as another model. The lane is
    left as it is.
    """
    watches = Watches(run, nodes, spec.recipe, str(record.get("launch") or ""))
    watches.start()
    began = time.monotonic()
    try:
        answer = _answer(base, spec, watches, run)
    finally:
        watches.end()
    # the node's clock says when it was launched; how long was waited here is true whatever that clock says
    seconds = max(time.time() - record["launched_at"], time.monotonic() - began)
    return {"seconds": seconds, "ttft": answer.ttft, "text": answer.text}


def _answer(base: str, spec: LaneSpec, watches: Watches, run: Run) -> Answer:
    start = time.monotonic()
    deadline = start + spec.ready_timeout
    state = "waiting for the process"
    settled: tuple[str, float] = ("", 0.0)  # what it answers for good, and since when
    head = watches.head
    while True:
        watches.check()
        if head.listening:
            try:
                return _ask(base, spec, watches, deadline)
            except NoAnswer as error:
                watches.check()
                if error.wrong:
                    raise _wrong_model(spec, base, error) from error
                state = str(error)
                if settled[0] != state:
                    settled = (state, time.monotonic())
                if error.next and time.monotonic() - settled[1] >= SETTLED:
                    raise _never(spec, base, error) from error
        elif head.last_line:
            state = "process alive, port not open yet"
        waited = time.monotonic() - start
        if waited > spec.ready_timeout:
            raise _too_late(spec, base, state, head.last_line)
        run.report(_progress(state, watches, int(waited), int(spec.ready_timeout)))
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
