"""Waiting for a lane: all ranks alive, port listening, health, model id, one real streamed answer, in this order."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

from sparkbuild.core.errors import NotReadyError, WrongModelError
from sparkbuild.core.interrupt import cancel
from sparkbuild.core.run import Progress, Run
from sparkbuild.serving.answer import Answer, NoAnswer, check
from sparkbuild.serving.lane import LaneSpec
from sparkbuild.serving.watching import Watches

if TYPE_CHECKING:
    import httpx

PAUSE = 0.1  # seconds between two looks


def wait(spec: LaneSpec, nodes: tuple[str, ...], record: dict[str, Any], base: str, run: Run) -> dict[str, Any]:
    """Wait until the lane really answers at `base`; {"seconds": since its launch, "ttft": s, "text": what it said}.

    `record` is that of rank 0. Raises EngineDiedError as soon as a rank ends, NotReadyError when `ready_timeout` has
    passed, WrongModelError when it answers as another model. The lane is left as it is.
    """
    import httpx  # noqa: PLC0415 - costs 70 ms, and listing tasks must not pay for it

    timeout = httpx.Timeout(10.0, read=None)  # a first token may take minutes; `ready_timeout` bounds all of it
    watches = Watches(run, nodes, spec.recipe, str(record.get("launch") or ""))
    watches.start()
    began = time.monotonic()
    try:
        with httpx.Client(base_url=base, timeout=timeout, trust_env=False) as client:
            answer = _answer(client, spec, watches, run)
    finally:
        watches.end()
    # the node's clock says when it was launched; how long was waited here is true whatever that clock says
    seconds = max(time.time() - record["launched_at"], time.monotonic() - began)
    return {"seconds": seconds, "ttft": answer.ttft, "text": answer.text}


def _answer(client: httpx.Client, spec: LaneSpec, watches: Watches, run: Run) -> Answer:
    start = time.monotonic()
    deadline = start + spec.ready_timeout
    state = "waiting for the process"
    head = watches.head
    while True:
        watches.check()
        if head.listening:
            try:
                return _ask(client, spec, watches, deadline)
            except NoAnswer as error:
                watches.check()
                if error.wrong:
                    raise _wrong_model(spec, str(client.base_url), error) from error
                state = str(error)
        elif head.last_line:
            state = "process alive, port not open yet"
        waited = time.monotonic() - start
        if waited > spec.ready_timeout:
            raise _too_late(spec, str(client.base_url), state, head.last_line)
        run.report(_progress(state, watches, int(waited), int(spec.ready_timeout)))
        cancel.wait(PAUSE)


def _progress(state: str, watches: Watches, waited: int, budget: int) -> Progress:
    phase = watches.head.phase
    if phase is None or watches.head.listening:
        return Progress(f"ready? {state[:60]}", waited, budget, "s")
    count = f" {phase.done}/{phase.total}" if phase.total else ""
    return Progress(f"ready? {phase.text}{count}", waited, budget, "s")


def _ask(client: httpx.Client, spec: LaneSpec, watches: Watches, deadline: float) -> Answer:
    """Ask in a thread: an engine that accepts and says nothing must hold up neither a ctrl-C nor the news of its death.

    The thread ends with the client, which closes when this raises.
    """
    box: list[Answer | BaseException] = []

    def ask() -> None:
        try:
            box.append(check(client, spec.model_id))
        except BaseException as error:  # noqa: BLE001 - handed over to the waiting thread
            box.append(error)

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    while thread.is_alive():
        thread.join(PAUSE)
        cancel.check()
        if thread.is_alive():
            watches.check()
            if time.monotonic() > deadline:
                raise NoAnswer("it accepts requests and does not answer them")
    outcome = box[0]
    if isinstance(outcome, BaseException):
        raise outcome
    return outcome


def _wrong_model(spec: LaneSpec, base: str, error: NoAnswer) -> WrongModelError:
    return WrongModelError(
        f"lane {spec.recipe} answers, but as another model",
        where=base,
        found=str(error),
        wanted=f"model id {spec.model_id}",
        next="set model_id in the recipe to what the engine serves, or give the engine that name",
    )


def _too_late(spec: LaneSpec, base: str, state: str, last_line: str) -> NotReadyError:
    recipe = spec.recipe
    return NotReadyError(
        f"lane {recipe} was not ready after {spec.ready_timeout:g} s; it is left running",
        where=base,
        found=f"{state}; last line of its log: {last_line[:200] or '(none)'}",
        wanted=f"a streamed answer within serve.ready_timeout = {spec.ready_timeout:g} s",
        next=f"doit serve:{recipe} goes on waiting, doit logs {recipe} -f shows it, doit stop:{recipe} ends it",
    )
