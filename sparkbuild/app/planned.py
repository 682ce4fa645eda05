"""What is planned: the steps of this run, why some are refused, and what became of those another run was at."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from sparkbuild.app import stagechoice
from sparkbuild.app.goals import chained
from sparkbuild.app.observed import Observed
from sparkbuild.core.errors import SparkbuildError
from sparkbuild.core.goal import Goal
from sparkbuild.core.plan import OK, RUN, UNKNOWN, Plan, Step, Verdict, closure, plan
from sparkbuild.core.reasons import Reason


class Planned:
    """The steps of this run, by what was seen. `refused`: by target, why this run does not try a goal at all."""

    def __init__(self, observed: Observed) -> None:
        self.observed = observed
        self.refused: dict[str, SparkbuildError] = {}
        self._steps: dict[str, Step] = {}
        self._guard = threading.RLock()

    def plan(self, goals: Iterable[Goal]) -> Plan:
        """The plan for the goals. All nodes are asked at the same time: for what stays, then for what is missing."""
        wanted = tuple(goals)
        selected = {goal.target for goal in wanted}
        ordered = closure(wanted)
        level = [goal for goal in ordered if not goal.transient or goal.target in selected]
        while level:
            self.observed.look(level)
            needed = {need.target: need for goal in level if self._asked(goal).state == RUN for need in goal.needs}
            level = [need for need in needed.values() if need.transient and need.target not in selected]
        steps = _awaited(plan(wanted, self._asked))
        with self._guard:
            self._steps |= {step.goal.target: step for step in steps}
        return steps

    def _asked(self, goal: Goal) -> Verdict:
        """What is to be planned for a goal: what the facts say, and what --stage says beyond that."""
        verdict = self.observed.judge(goal)
        return stagechoice.forced(verdict) if self.observed.choice.forces(goal) else verdict

    def step(self, goal: Goal) -> Step:
        """The goal's step in the plan of this run."""
        with self._guard:
            if goal.target not in self._steps:
                self.plan([goal])
            return self._steps[goal.target]

    def waited_for(self, goal: Goal) -> None:
        """Another run was at the goal: why it is made is said by what it has left, not by what was seen before."""
        step = self.step(goal)
        if step.state != RUN:
            return
        verdict = self.observed.look_again(goal)
        reasons = verdict.reasons if verdict.state != OK else (Reason("run", "another run was at it"),)
        with self._guard:
            self._steps[goal.target] = msgspec.structs.replace(step, reasons=reasons)

    def preflight(self, step: Step) -> SparkbuildError | None:
        """Why making the step's goal would fail, as far as that can be told beforehand: a template, a missing secret, a
        node that serves another lane. A node that does not answer was told already, and what needs none is looked at.
        """
        kind: Any = self.observed.kinds[step.goal.uri.scheme]
        tag = any(reason.part == "tag" for reason in step.verdict.reasons)  # what it means now is worth asking
        looks = step.verdict.state != UNKNOWN or tag or getattr(kind, "preflight_needs_no_node", False)
        if not looks or not hasattr(kind, "preflight"):
            return None
        error: SparkbuildError | None = kind.preflight(step.goal, step.verdict)
        choice = self.observed.choice
        return error or (stagechoice.missing(self.observed.nodes, step, choice) if choice else None)

    def refusals(self, steps: Plan) -> dict[str, SparkbuildError]:
        """Why goals of a plan would fail, by target. What needs one of them is left out: that would be no news, and
        what it says of itself may follow from the same cause.
        """
        errors: dict[str, SparkbuildError] = {}
        refused: set[str] = set()
        for step in steps.stale:
            if not refused.isdisjoint(need.target for need in step.goal.needs):
                refused.add(step.goal.target)
            elif (error := self.preflight(step)) is not None:
                errors[step.goal.target] = error
                refused.add(step.goal.target)
        return errors


def _awaited(steps: Plan) -> Plan:
    """The plan, in which a source that is made before it is needed need not be there yet."""
    if not any((step.verdict.fact or {}).get("refused") for step in steps if step.goal.uri.scheme == "staged"):
        return steps
    return chained.awaited(steps)


def with_refused_images(steps: Plan, refusals: Mapping[str, SparkbuildError]) -> Plan:
    """The plan in which an image that cannot be had is unknown, and says why."""

    def told(step: Step) -> Step:
        error = refusals.get(step.goal.target)
        if error is None or step.goal.uri.scheme != "image":
            return step
        return Step(step.goal, UNKNOWN, (Reason("image", str(error)),), None, step.verdict)

    return Plan(tuple(told(step) for step in steps))
