"""Making a lane so: stop what is in its place, launch, wait until it answers, check what it answers."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from sparkbuild.core.errors import GateError, NodeError, NotReadyError, SparkbuildError
from sparkbuild.core.goal import Goal
from sparkbuild.core.interrupt import Interrupted
from sparkbuild.core.plan import RUN, Verdict
from sparkbuild.core.reasons import Reason
from sparkbuild.core.run import Progress, Run
from sparkbuild.core.state import Made
from sparkbuild.serving import judge
from sparkbuild.serving.judge import Seen
from sparkbuild.serving.lane import LaneSpec

if TYPE_CHECKING:
    from sparkbuild.nodes.cluster import Nodes
    from sparkbuild.serving.launch.launching import Launcher
    from sparkbuild.serving.launch.render import Launch, Rank

# (gates, base_url, model_id, run) -> one record per gate; raises GateError. Handed in: gates are a room of their own.
Checker = Callable[[Sequence[Any], str, str, Run], list[dict[str, Any]]]
Record = dict[str, Any]


class LaneKind:
    """How lanes are looked at and made."""

    scheme = "lane"

    def __init__(self, root: str, nodes: Nodes, checker: Checker) -> None:
        self._root = root
        self._nodes = nodes
        self._checker = checker
        self._made: Launcher | None = None

    @property
    def _launcher(self) -> Launcher:
        if self._made is None:
            from sparkbuild.serving.launch.launching import Launcher  # noqa: PLC0415 - only when a lane is launched or shown

            self._made = Launcher(self._root, self._nodes)
        return self._made

    def query(self, goal: Goal) -> dict[str, Any]:
        """What the agents need to look."""
        return {"recipe": goal.spec.recipe, "port": goal.spec.port, "runtime": goal.spec.runtime}

    def judge(self, goal: Goal, fact: dict[str, Any], last: Made | None) -> Verdict:
        """See judge.judge; a lane that would be launched may still run where its recipe has it no more."""
        found = judge.judge(goal, fact, last)
        if found.state != RUN or "launch" not in judge.steps(goal, fact):
            return found
        from sparkbuild.serving import places  # noqa: PLC0415 - not for a lane that is as it should be
        from sparkbuild.serving.launch import elsewhere  # noqa: PLC0415 - not for a lane that is as it should be

        named = places.elsewhere(goal, judge.ranks_of(goal, fact), self._root)
        more = [Reason("nodes", elsewhere.reason_of(node, known=node in self._nodes.names)) for node in named]
        return msgspec.structs.replace(found, reasons=(*found.reasons, *more)) if more else found

    def launches_of(self, goal: Goal) -> tuple[tuple[Rank, Launch], ...]:
        """The exact argv and environment of each rank that a launch would use."""
        return self._launcher.launches(goal)

    def preflight(self, goal: Goal, verdict: Verdict) -> SparkbuildError | None:
        """Why making the lane would fail, as far as that can be told before anything is built for it."""
        try:
            if "launch" not in judge.steps(goal, verdict.fact):
                self._launcher.launches(goal)
                return None
            found = self._launcher.problems(goal, verdict.fact)
        except SparkbuildError as error:
            return error
        from sparkbuild.serving.launch.launching import refused  # noqa: PLC0415 - as above

        return refused(goal, found) if found else None

    def apply(self, goal: Goal, verdict: Verdict, run: Run) -> int:
        """Do the steps that are missing. Until it is ready, an interrupt or a failure takes down what was launched. A
        launch holds its nodes until all is done: who else wants to launch there is refused, and replaces nothing.
        """
        with ExitStack() as claims:
            return self._apply(goal, verdict, run, claims)

    def _apply(self, goal: Goal, verdict: Verdict, run: Run, claims: ExitStack) -> int:
        spec: LaneSpec = goal.spec
        fact = verdict.fact
        waits = spec.wait and not run.options.get("no_wait")
        todo = judge.steps(goal, fact, force=run.force)
        launch = ""  # the one of this run
        try:
            if "launch" in todo:
                fact, todo, launch = self._launch(goal, fact, run, claims)
            record = self._head(goal, fact).record or {}
            if "ready" in todo:
                if not waits and not self._head(goal, fact).fact.get("answers"):
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
            self._note(goal, record, {"protect": spec.protect}, run)
        return 0

    def _head(self, goal: Goal, fact: dict[str, Any]) -> Seen:
        return judge.ranks_of(goal, fact)[0]

    def _launch(
        self, goal: Goal, fact: dict[str, Any], run: Run, claims: ExitStack
    ) -> tuple[dict[str, Any], tuple[str, ...], str]:
        """Stop what is in the way and start all ranks while nobody else does; the lane's fact then, what is left to do,
        and the launch. Another operator may have launched it meanwhile: then that is the lane, and the launch is "".
        """
        from sparkbuild.serving import places  # noqa: PLC0415 - only when a lane is launched
        from sparkbuild.serving.launch.launching import new_number  # noqa: PLC0415 - as above

        launcher = self._launcher
        launcher.launches(goal)  # a bad template must not stop what runs
        check: Callable[[], None] = lambda: None  # noqa: E731 - nothing to lose on this machine
        if not launcher.is_plain(goal):
            from sparkbuild.serving.launch.hold import held  # noqa: PLC0415 - for launches on other machines

            run.report(Progress("hold the nodes"))
            check = claims.enter_context(held(run.agent, goal.nodes, goal.spec.recipe))
            fact = launcher.look(goal)
            self._must_be_known(goal, fact)
        todo = judge.steps(goal, fact, force=run.force)
        if "launch" not in todo:
            claims.close()
            return fact, todo, ""
        self._refuse(goal, fact)
        launcher.check_consistency(goal)
        self._stop_elsewhere(goal, fact, run)
        if "stop" in todo:
            run.report(Progress("stop the old lane"))
            self._stop(goal, goal.nodes, run)
            if goal.spec.runtime == "docker":
                self._refuse_port(goal)
        started: list[str] = []
        number = new_number()
        places.note(self._root, goal.spec.recipe, goal.nodes)
        try:
            record = launcher.start(goal, run, number, started, check)
        except BaseException as error:
            if started or _may_have_begun(error, sure=launcher.is_plain(goal)):
                self._take_down(goal, run, error, number)
            else:
                places.forget(self._root, goal.spec.recipe, goal.nodes)
            raise
        head = {**self._head(goal, fact).fact, "record": record, "answers": False}
        fact = head if len(goal.nodes) == 1 else {"ranks": {**fact["ranks"], goal.nodes[0]: head}}
        return fact, ("ready", "gates"), number

    def _must_be_known(self, goal: Goal, fact: dict[str, Any]) -> None:
        verdict = judge.judge(goal, fact, None)
        if verdict.state == "unknown":
            raise SparkbuildError(
                f"lane {goal.spec.recipe} is not launched: not all of its nodes answer",
                found="\n".join(reason.text for reason in verdict.reasons),
                next="doit health",
            )

    def _ready(self, goal: Goal, record: Record, run: Run) -> Record:
        from sparkbuild.serving.ready import readiness  # noqa: PLC0415 - only when a lane is waited for

        door = partial(self._nodes.door, goal.nodes[0], record["host"], record["port"])
        ready = readiness.wait(goal.spec, goal.nodes, record, door, run)
        run.note(
            f"ready after {ready['seconds']:.1f} s, first token after {ready['ttft'] * 1000:.0f} ms: {ready['text']!r}"
        )
        return self._note(goal, record, {"ready": ready}, run)

    def _gates(self, goal: Goal, record: Record, run: Run) -> None:
        spec: LaneSpec = goal.spec
        checked = {"key": goal.key.digest, "parts": goal.key.parts, "protect": spec.protect}
        try:
            with self._nodes.door(goal.nodes[0], record["host"], record["port"]) as base:
                results = self._checker(spec.gates, base, spec.model_id, run)
        except GateError as error:
            results = [msgspec.to_builtins(result) for result in error.results]
            self._note(goal, record, {**checked, "gates": results, "served_at": None}, run)
            self._must_run(goal, record, run)
            again = f"doit {goal.task} asks it again, doit stop:{spec.recipe} ends it"
            error.next = f"doit logs {spec.recipe}; the lane runs on: {again}"
            raise
        except Interrupted:
            run.tell(f"the lane runs on without its gates: doit {goal.task} asks them, doit stop:{spec.recipe} ends it")
            raise
        done = {**checked, "gates": results}
        # a lane that only had its gates run again has been serving all along
        if not record.get("served_at"):
            done["served_at"] = time.time()
        self._note(goal, record, done, run)

    def _must_run(self, goal: Goal, record: Record, run: Run) -> None:
        """EngineDiedError when a gate failed because a rank ended, or because somebody stopped the lane."""
        from sparkbuild.serving.ready.watching import TOGETHER, Watches  # noqa: PLC0415 - only after a failure

        launch = str(record.get("launch") or "")
        watches = Watches(run, goal.nodes, goal.spec.recipe, launch, moment="while its gates were asked")
        watches.check_for(TOGETHER)

    def _note(self, goal: Goal, record: Record, fields: dict[str, Any], run: Run) -> Record:
        request = {"recipe": goal.spec.recipe, "launch": record.get("launch", ""), "set": fields}
        noted: Record = run.call(goal.nodes[0], "note", request)["record"]
        return noted

    def _stop_elsewhere(self, goal: Goal, fact: dict[str, Any], run: Run) -> None:
        """Stop the ranks on nodes that the lane has no more."""
        found = self._launcher.elsewhere(goal, fact)
        refusals = found.refusals(goal)
        if refusals:
            from sparkbuild.serving.launch.launching import refused  # noqa: PLC0415 - only before a launch

            raise refused(goal, refusals)
        if found.runs:
            run.report(Progress("stop the old lane"))
            self._stop(goal, found.runs, run)
        if found.facts:
            from sparkbuild.serving import places  # noqa: PLC0415 - as above

            places.forget(self._root, goal.spec.recipe, found.facts)

    def _stop(self, goal: Goal, nodes: tuple[str, ...], run: Run) -> None:
        from sparkbuild.serving.launch.stop import failure, stop_lane  # noqa: PLC0415 - only when a lane is stopped

        spec: LaneSpec = goal.spec
        done = stop_lane(self._nodes, spec.recipe, nodes, spec.stop_grace, note=run.note)
        for one in done:
            run.note(one.text or f"nothing ran on {one.node}")
        error = failure(spec.recipe, done)
        if error is not None:
            raise error

    def _take_down(self, goal: Goal, run: Run, cause: BaseException, launch: str) -> None:
        """Stop what this launch started, and nothing else: by now another one may be in its place."""
        from sparkbuild.serving import places  # noqa: PLC0415 - as above
        from sparkbuild.serving.launch.stop import failure, stop_lane  # noqa: PLC0415 - as above

        spec: LaneSpec = goal.spec
        run.note("taking the lane down again: it was not ready")
        nodes, grace = goal.nodes, spec.stop_grace
        done = stop_lane(self._nodes, spec.recipe, nodes, grace, launch=launch, final=True, note=run.note)
        places.forget(self._root, spec.recipe, [one.node for one in done if one.error is None])
        left = failure(spec.recipe, done)
        if left is None:
            run.tell(f"lane {spec.recipe} was not ready: it was taken down on {', '.join(nodes)}")
        else:
            run.note(str(left))
            run.tell(str(left))
            if isinstance(cause, SparkbuildError):
                cause.found = f"{cause.found}\n{left.what}\n{left.found}".strip()
                cause.next = left.next

    def _refuse_port(self, goal: Goal) -> None:
        """What was stopped held the port, or hid who does."""
        from sparkbuild.serving.launch.launching import port_taken, refused  # noqa: PLC0415 - only before a launch

        found = port_taken(goal, judge.ranks_of(goal, self._launcher.look(goal)))
        if found:
            raise refused(goal, found)

    def _refuse(self, goal: Goal, fact: dict[str, Any]) -> None:
        """Before the old lane is stopped: may it be, and would the launch fail?"""
        from sparkbuild.serving.launch.launching import port_taken, refused  # noqa: PLC0415 - only before a launch
        from sparkbuild.serving.launch.preflight import refusals  # noqa: PLC0415 - as above

        seen = judge.ranks_of(goal, fact)
        found = refusals(goal, seen, replaces=any(one.alive for one in seen)) + port_taken(goal, seen)
        if found:
            raise refused(goal, found)


def _may_have_begun(error: BaseException, *, sure: bool) -> bool:
    """False when the node refused: what runs there then is not of this launch. An interrupt may come while the node is
    at it, and so may a lost connection; `sure`: there is no connection to lose.
    """
    return not isinstance(error, SparkbuildError) or (isinstance(error, NodeError) and not sure)
