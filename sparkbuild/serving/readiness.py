"""Waiting for a lane: process alive, port listening, health, model id, one real streamed answer, in this order."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

from sparkbuild.core.errors import EngineDiedError, NotReadyError, SparkbuildError, WrongModelError
from sparkbuild.core.interrupt import Interrupted, cancel
from sparkbuild.core.run import Progress, Run
from sparkbuild.serving.answer import Answer, NoAnswer, check
from sparkbuild.serving.lane import LaneSpec

if TYPE_CHECKING:
    import httpx

PAUSE = 0.1  # seconds between two looks


class _EndWatchError(Exception):
    """Leaves the agent's call; closing its stdin ends the agent."""


class Watch:
    """The node's own view of a starting lane, kept current by a thread."""

    def __init__(self, run: Run, node: str, recipe: str) -> None:
        self.listening = False
        self.ended: dict[str, Any] | None = None
        self.failure: SparkbuildError | None = None
        self.last_line = ""
        self._run = run
        self._node = node
        self._recipe = recipe
        self._leave = threading.Event()

    def start(self) -> None:
        """Begin to watch."""
        threading.Thread(target=self._follow, daemon=True).start()

    def end(self) -> None:
        """Stop watching: noticed with the next event, at most a second later, and nobody needs to wait for that."""
        self._leave.set()

    def _follow(self) -> None:
        try:
            agent = self._run.agent(self._node)
            self.ended = agent.call("watch", {"recipe": self._recipe, "until": "dead"}, self._on_event)
        except (_EndWatchError, Interrupted):
            pass
        except SparkbuildError as error:
            self.failure = error

    def _on_event(self, event: dict[str, Any]) -> None:
        if self._leave.is_set():
            raise _EndWatchError
        if event.get("event") == "state":
            self.listening = bool(event["listening"])
            for line in event["lines"]:
                self._run.note(f"| {line}")
                self.last_line = line.strip() or self.last_line


def wait(spec: LaneSpec, node: str, record: dict[str, Any], run: Run) -> dict[str, Any]:
    """Wait until the lane really answers; {"seconds": since its launch, "ttft": s, "text": what it said}.

    Raises EngineDiedError at once when its process ends, NotReadyError when `ready_timeout` has passed, WrongModelError
    when it answers as another model. The lane is left as it is.
    """
    import httpx  # noqa: PLC0415 - costs 70 ms, and listing tasks must not pay for it

    base = f"http://{record['host']}:{record['port']}"
    timeout = httpx.Timeout(10.0, read=None)  # a first token may take minutes; `ready_timeout` bounds all of it
    watch = Watch(run, node, spec.recipe)
    watch.start()
    try:
        with httpx.Client(base_url=base, timeout=timeout, trust_env=False) as client:
            answer = _answer(client, spec, watch, run)
    finally:
        watch.end()
    return {"seconds": time.time() - record["launched_at"], "ttft": answer.ttft, "text": answer.text}


def _answer(client: httpx.Client, spec: LaneSpec, watch: Watch, run: Run) -> Answer:
    start = time.monotonic()
    deadline = start + spec.ready_timeout
    state = "waiting for the process"
    while True:
        _still_alive(watch, spec)
        if watch.listening:
            try:
                return _ask(client, spec, watch, deadline)
            except NoAnswer as error:
                _still_alive(watch, spec)
                if error.wrong:
                    raise _wrong_model(spec, str(client.base_url), error) from error
                state = str(error)
        elif watch.last_line:
            state = "process alive, port not open yet"
        waited = time.monotonic() - start
        if waited > spec.ready_timeout:
            raise _too_late(spec, str(client.base_url), state, watch.last_line)
        run.report(Progress(f"ready? {state[:60]}", int(waited), int(spec.ready_timeout), "s"))
        cancel.wait(PAUSE)


def _ask(client: httpx.Client, spec: LaneSpec, watch: Watch, deadline: float) -> Answer:
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
            _still_alive(watch, spec)
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


def _still_alive(watch: Watch, spec: LaneSpec) -> None:
    if watch.failure is not None:
        raise watch.failure
    if watch.ended is not None:
        lines = [line for line in watch.ended.get("last_lines") or () if line.strip()]
        raise EngineDiedError(
            f"lane {spec.recipe}: its process ended before it was ready",
            found="\n".join(lines) or "an empty log",
            next=f"doit logs {spec.recipe} shows the whole log",
        )
