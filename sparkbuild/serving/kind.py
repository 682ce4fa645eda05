"""Making a lane so: stop what is in its place, launch, wait until it answers, check what it answers."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from sparkbuild.core.errors import GateError, NotReadyError, PortInUseError, SparkbuildError
from sparkbuild.core.goal import Goal
from sparkbuild.core.plan import Verdict
from sparkbuild.core.run import Progress, Run
from sparkbuild.core.state import Made
from sparkbuild.serving import lane
from sparkbuild.serving.lane import LaneSpec

if TYPE_CHECKING:
    from sparkbuild.serving.render import Launch

# (gates, base_url, model_id, run) -> one record per gate; raises GateError. Handed in: gates are a room of their own.
Checker = Callable[[Sequence[Any], str, str, Run], list[dict[str, Any]]]


class LaneKind:
    """How lanes are looked at and made."""

    scheme = "lane"

    def __init__(self, root: str, store: Callable[[str], str], checker: Checker) -> None:
        self._root = root
        self._store = store
        self._checker = checker

    def query(self, goal: Goal) -> dict[str, Any]:
        """What the agent needs to look."""
        return {"recipe": goal.spec.recipe, "port": goal.spec.port}

    def judge(self, goal: Goal, fact: dict[str, Any], last: Made | None) -> Verdict:
        """See lane.judge."""
        return lane.judge(goal, fact, last)

    def launch_of(self, goal: Goal) -> Launch:
        """The exact argv and environment that a launch would use."""
        from sparkbuild.serving import render  # noqa: PLC0415 - only when a lane is launched or shown

        spec: LaneSpec = goal.spec
        node = goal.nodes[0]
        where = f"{spec.folder}/recipe.toml"
        values = render.context(self._root, self._store(node), node, spec)
        return render.launch(spec, values, render.read_secrets(self._root, spec.secrets, where))

    def apply(self, goal: Goal, verdict: Verdict, run: Run) -> int:
        """Do the steps that are missing. Until it is ready, an interrupt or a failure takes the lane down again."""
        spec: LaneSpec = goal.spec
        node = goal.nodes[0]
        fact = verdict.fact
        todo = lane.steps(goal, fact, force=run.force)
        record = fact.get("record")
        launch = self.launch_of(goal) if "launch" in todo else None  # a bad template must not stop what runs
        if "stop" in todo:
            self._refuse(goal, fact)
            run.report(Progress("stop the old lane"))
            run.call(node, "stop", {"recipe": spec.recipe, "grace": spec.stop_grace})
        if "ready" in todo:
            record = self._bring_up(goal, launch, record, run)
        if "gates" in todo:
            self._gates(goal, record, run)
        if "protect" in todo:
            self._note(goal, record, {"protect": spec.protect}, run)
        return 0

    def _bring_up(self, goal: Goal, launch: Launch | None, record: Any, run: Run) -> dict[str, Any]:
        """From a launch, or a lane that is starting, to one that answers."""
        launched = False
        try:
            if launch is not None:
                launched = True  # before it is: an interrupt may come while the node is at it
                try:
                    record = self._launch(goal, launch, run)
                except SparkbuildError:
                    launched = False  # refused
                    raise
            return self._ready(goal, record, run)
        except NotReadyError:
            raise  # left running: a cold load may take hours, and killing it would lose them
        except BaseException:
            if launched:
                self._take_down(goal, run)
            raise

    def _launch(self, goal: Goal, launch: Launch, run: Run) -> dict[str, Any]:
        spec: LaneSpec = goal.spec
        run.report(Progress("launch"))
        for name, value in launch.shown_env().items():
            run.note(f"env {name}={value}")
        request = {
            "recipe": spec.recipe,
            "key": goal.key.digest,
            "parts": goal.key.parts,
            "argv": launch.argv,
            "env": launch.env,
            "host": spec.host,
            "port": spec.port,
            "model_id": spec.model_id,
            "protect": spec.protect,
            "lock": spec.lock,
        }
        record: dict[str, Any] = run.call(goal.nodes[0], "launch", request)["record"]
        return record

    def _ready(self, goal: Goal, record: dict[str, Any], run: Run) -> dict[str, Any]:
        from sparkbuild.serving import readiness  # noqa: PLC0415 - only when a lane is waited for

        ready = readiness.wait(goal.spec, goal.nodes[0], record, run)
        run.note(
            f"ready after {ready['seconds']:.1f} s, first token after {ready['ttft'] * 1000:.0f} ms: {ready['text']!r}"
        )
        return self._note(goal, record, {"ready": ready}, run)

    def _gates(self, goal: Goal, record: dict[str, Any], run: Run) -> None:
        spec: LaneSpec = goal.spec
        base = f"http://{record['host']}:{record['port']}"
        checked = {"key": goal.key.digest, "parts": goal.key.parts, "protect": spec.protect}
        try:
            results = self._checker(spec.gates, base, spec.model_id, run)
        except GateError as error:
            results = [msgspec.to_builtins(result) for result in error.results]
            self._note(goal, record, {**checked, "gates": results, "served_at": None}, run)
            raise
        done = {**checked, "gates": results}
        # a lane that only had its gates run again has been serving all along
        done["served_at"] = record.get("served_at") or time.time()
        self._note(goal, record, done, run)

    def _note(self, goal: Goal, record: dict[str, Any], fields: dict[str, Any], run: Run) -> dict[str, Any]:
        request = {"recipe": goal.spec.recipe, "pid": record["pid"], "set": fields}
        noted: dict[str, Any] = run.call(goal.nodes[0], "note", request)["record"]
        return noted

    def _take_down(self, goal: Goal, run: Run) -> None:
        spec: LaneSpec = goal.spec
        run.note("taking the lane down again: it was not ready")
        run.agent(goal.nodes[0]).call("stop", {"recipe": spec.recipe, "grace": spec.stop_grace}, final=True)

    def _refuse(self, goal: Goal, fact: dict[str, Any]) -> None:
        """Before the old lane is stopped: is it protected, would the launch fail?"""
        spec: LaneSpec = goal.spec
        record, holder = fact["record"], fact.get("port_holder")
        if record.get("protect") or spec.protect:
            raise SparkbuildError(
                f"lane {spec.recipe} is protected and is not replaced",
                found=f"process {record['pid']}, launched from another state of the recipe",
                next=f"doit stop:{spec.recipe}, then doit serve:{spec.recipe}",
            )
        if holder:
            who = f"process {holder['pid']} of {holder['user'] or 'another user'}: {holder['command']}"
            other = holder.get("lane")
            raise PortInUseError(
                f"port {spec.port} is in use; the lane that runs is left alone",
                where=f"node {goal.nodes[0]}",
                found=f"lane {other} ({who})" if other else who,
                wanted="a free port",
                next=f"doit stop:{other}" if other else "stop that process, or set another serve.port in the recipe",
            )
