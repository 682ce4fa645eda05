"""Making a lane so: stop what is in its place, launch, wait until it answers, check what it answers."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import msgspec

from sparkbuild.agent.wire.lanes import NOTE, NoteAsk, Noted
from sparkbuild.agent.wire.records import Gate, LaneParts, LaneRecord
from sparkbuild.core.errors import GateError, NodeError, NotReadyError, SparkbuildError
from sparkbuild.core.goal import Goal
from sparkbuild.core.interrupt import Interrupted
from sparkbuild.core.plan import Verdict
from sparkbuild.core.run import Progress, Run
from sparkbuild.serving import judge, places
from sparkbuild.serving.lane import LaneSpec
from sparkbuild.serving.launch.hold import held
from sparkbuild.serving.launch.launching import Launcher, refuse, refused
from sparkbuild.serving.launch.preflight import port_taken, refusals
from sparkbuild.serving.launch.stop import failure, stop_lane
from sparkbuild.serving.ranks import LaneSeen, fact_of, ranks_of
from sparkbuild.serving.ready import readiness
from sparkbuild.serving.ready.watching import TOGETHER, Watches

if TYPE_CHECKING:
    from sparkbuild.nodes.cluster import Nodes

# (gates, base_url, model_id, run) -> one record per gate; raises GateError. Handed in: gates are a room of their own.
Checker = Callable[[Sequence[Any], str, str, Run], list[Gate]]


class Maker:
    """What makes lanes so. `launcher` also shows what a launch would be."""

    def __init__(self, root: str, nodes: Nodes, checker: Checker) -> None:
        self.launcher = Launcher(root, nodes)
        self._root = root
        self._nodes = nodes
        self._checker = checker

    def preflight(self, goal: Goal, verdict: Verdict) -> SparkbuildError | None:
        """Why making the lane would fail, as far as that can be told before anything is built for it."""
        try:
            if "launch" not in judge.steps(goal, verdict.fact):
                self.launcher.launches(goal)
                return None
            reasons = self.launcher.problems(goal, verdict.fact)
        except SparkbuildError as error:
            return error
        return refused(goal, reasons) if reasons else None

    def make(self, goal: Goal, verdict: Verdict, run: Run) -> int:
        """Do the steps that are missing. Until it is ready, an interrupt or a failure takes down what was launched. A
        launch holds its nodes until all is done: who else wants to launch there is refused, and replaces nothing.
        """
        with ExitStack() as claims:
            return self._make(goal, verdict, run, claims)

    def _make(self, goal: Goal, verdict: Verdict, run: Run, claims: ExitStack) -> int:
        spec: LaneSpec = goal.spec
        fact = verdict.fact
        waits = spec.wait and not run.options.get("no_wait")
        todo = judge.steps(goal, fact, force=run.force)
        launch = ""  # the one of this run
        try:
            if "launch" in todo:
                fact, todo, launch = self._launch(goal, fact, run, claims)
            head = ranks_of(goal, fact)[0]
            record = head.recorded
            if "ready" in todo:
                if not waits and not head.fact.get("answers"):
                    run.unfinished = f"launched on {', '.join(goal.nodes)}, not waited for: doit serve:{spec.recipe}"
                    return 0
                record = self._ready(goal, record, run)
        except NotReadyError:
            raise  # left running: a cold load may take hours, and killing it would lose them
        except BaseException as error:
            if launch:
                self._take_down(goal, run, error, launch)
            raise
        if "gates" in todo:
            self._gates(goal, record, run)
        if "protect" in todo:
            self._note(goal, record, Noted(protect=spec.protect), run)
        return 0

    def _launch(self, goal: Goal, fact: LaneSeen, run: Run, claims: ExitStack) -> tuple[LaneSeen, tuple[str, ...], str]:
        """Stop what is in the way and start all ranks while nobody else does; the lane's fact then, what is left to do,
        and the launch. Another operator may have launched it meanwhile: then that is the lane, and the launch is "".
        """
        launcher = self.launcher
        launcher.launches(goal)  # a bad template must not stop what runs
        check: Callable[[], None] = lambda: None  # noqa: E731 - nothing to lose on this machine
        if not launcher.is_plain(goal):
            run.report(Progress("hold the nodes"))
            check = claims.enter_context(held(run.agent, goal.nodes, goal.spec.recipe))
            fact = launcher.look(goal)
            self._must_be_known(goal, fact)
        todo = judge.steps(goal, fact, force=run.force)
        if "launch" not in todo:
            claims.close()
            return fact, todo, ""
        seen = ranks_of(goal, fact)
        refuse(goal, refusals(goal, seen, replaces=any(rank.alive for rank in seen)))
        launcher.check_consistency(goal)
        self._stop_elsewhere(goal, fact, run)
        if "stop" in todo:
            run.report(Progress("stop the old lane"))
            self._stop(goal, goal.nodes, run)
            if goal.spec.runtime == "docker":  # what was stopped held the port, or hid who does
                refuse(goal, port_taken(goal, ranks_of(goal, launcher.look(goal))))
        started: list[str] = []
        number = f"{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}-{uuid.uuid4().hex[:8]}"  # the same on all ranks
        places.note(self._root, goal.spec.recipe, goal.nodes)
        try:
            record = launcher.start(goal, run, number, started, check)
        except BaseException as error:
            if started or _may_have_begun(error, sure=launcher.is_plain(goal)):
                self._take_down(goal, run, error, number)
            else:
                places.forget(self._root, goal.spec.recipe, goal.nodes)
            raise
        facts = {rank.node: rank.fact for rank in seen}
        facts[goal.nodes[0]] = {**seen[0].fact, "record": record, "answers": False}
        return fact_of(goal, facts), ("ready", "gates"), number

    def _must_be_known(self, goal: Goal, fact: LaneSeen) -> None:
        verdict = judge.judge(goal, fact, None)
        if verdict.state == "unknown":
            raise SparkbuildError(
                f"lane {goal.spec.recipe} is not launched: not all of its nodes answer",
                found="\n".join(reason.text for reason in verdict.reasons),
                next="doit health",
            )

    def _ready(self, goal: Goal, record: LaneRecord, run: Run) -> LaneRecord:
        door = partial(self._nodes.door, goal.nodes[0], record["host"], record["port"])
        ready = readiness.wait(goal.spec, goal.nodes, record, door, run)
        text = f"first token after {ready['ttft'] * 1000:.0f} ms: {ready['text']!r}"
        run.note(f"ready after {ready['seconds']:.1f} s, {text}")
        return self._note(goal, record, Noted(ready=ready), run)

    def _gates(self, goal: Goal, record: LaneRecord, run: Run) -> None:
        spec: LaneSpec = goal.spec
        parts = cast("LaneParts", goal.key.parts)  # `lane_goal` makes them, `nodes` among them
        checked = Noted(key=goal.key.digest, parts=parts, protect=spec.protect)
        try:
            with self._nodes.door(goal.nodes[0], record["host"], record["port"]) as base:
                results = self._checker(spec.gates, base, spec.model_id, run)
        except GateError as error:
            checked["gates"] = [msgspec.to_builtins(result) for result in error.results]
            checked["served_at"] = None
            self._note(goal, record, checked, run)
            # EngineDiedError when it failed because a rank ended, or because somebody stopped the lane
            launch = record.get("launch", "")
            watches = Watches(run, goal.nodes, spec.recipe, launch, moment="while its gates were asked")
            watches.check_for(TOGETHER)
            again = f"doit {goal.task} asks it again, doit stop:{spec.recipe} ends it"
            error.next = f"doit logs {spec.recipe}; the lane runs on: {again}"
            raise
        except Interrupted:
            run.tell(f"the lane runs on without its gates: doit {goal.task} asks them, doit stop:{spec.recipe} ends it")
            raise
        checked["gates"] = results
        # a lane that only had its gates run again has been serving all along
        if not record.get("served_at"):
            checked["served_at"] = time.time()
        self._note(goal, record, checked, run)

    def _note(self, goal: Goal, record: LaneRecord, noted: Noted, run: Run) -> LaneRecord:
        ask = NoteAsk(recipe=goal.spec.recipe, launch=record.get("launch", ""), set=noted)
        return run.call(goal.nodes[0], NOTE, ask)["record"]

    def _stop_elsewhere(self, goal: Goal, fact: LaneSeen, run: Run) -> None:
        others = self.launcher.elsewhere(goal, fact)
        refuse(goal, others.refusals(goal))
        if others.runs:
            run.report(Progress("stop the old lane"))
            self._stop(goal, others.runs, run)
        if others.facts:
            places.forget(self._root, goal.spec.recipe, others.facts)

    def _stop(self, goal: Goal, nodes: tuple[str, ...], run: Run) -> None:
        spec: LaneSpec = goal.spec
        done = stop_lane(self._nodes, spec.recipe, nodes, spec.stop_grace, note=run.note)
        for stopped in done:
            run.note(stopped.text or f"nothing ran on {stopped.node}")
        error = failure(spec.recipe, done)
        if error is not None:
            raise error

    def _take_down(self, goal: Goal, run: Run, cause: BaseException, launch: str) -> None:
        """Stop what this launch started, and nothing else: by now another one may be in its place."""
        spec: LaneSpec = goal.spec
        run.note("taking the lane down again: it was not ready")
        nodes, grace = goal.nodes, spec.stop_grace
        done = stop_lane(self._nodes, spec.recipe, nodes, grace, launch=launch, final=True, note=run.note)
        places.forget(self._root, spec.recipe, [stopped.node for stopped in done if stopped.error is None])
        left = failure(spec.recipe, done)
        if left is None:
            run.tell(f"lane {spec.recipe} was not ready: it was taken down on {', '.join(nodes)}")
        else:
            run.note(str(left))
            run.tell(str(left))
            if isinstance(cause, SparkbuildError):
                cause.found = f"{cause.found}\n{left.what}\n{left.found}".strip()
                cause.next = left.next


def _may_have_begun(error: BaseException, *, sure: bool) -> bool:
    """False when the node refused: what runs there then is not of this launch. An interrupt may come while the node is
    at it, and so may a lost connection; `sure`: there is no connection to lose.
    """
    return not isinstance(error, SparkbuildError) or (isinstance(error, NodeError) and not sure)
