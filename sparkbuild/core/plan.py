"""The plan: which goals must be made, in what order and why. Pure: desired goals and verdicts in, steps out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from enum import Enum
from typing import Any

import msgspec

from sparkbuild.core.goal import Goal
from sparkbuild.core.reasons import Reason

OK, RUN, MAYBE, UNKNOWN = "ok", "run", "maybe", "unknown"


class Verdict(msgspec.Struct, frozen=True):
    """What the facts say of one goal alone: `ok`, `run` or `unknown` (its node did not answer).

    `bytes` is what making it would move or write, None when that cannot be known beforehand. `told` says of a goal that
    is ok what there is, in one line for people.
    """

    state: str
    reasons: tuple[Reason, ...] = ()
    bytes: int | None = 0
    fact: Any = None
    told: str = ""


OF_NODES = frozenset({"node", "docker"})  # parts of reasons: nobody knows, since these do not answer
_NEEDED = "needed"  # the part of a reason: whether anybody needs what is only made on demand
_NOT_NEEDED = Verdict(OK, (Reason(_NEEDED, "not needed: what is made from it is complete"),))


class Route(Enum):
    """Where a staging takes its bytes from; the value is how a plan's total says it."""

    SOURCE = "of it from the source"
    NODE = "between nodes"
    FOLDER = "from another folder of the same node"


class Step(msgspec.Struct, frozen=True):
    """One goal in a plan. `maybe`: right by itself, but something it stands on will be made first."""

    goal: Goal
    state: str
    reasons: tuple[Reason, ...]
    bytes: int | None
    verdict: Verdict
    route: Route = Route.SOURCE

    @property
    def unneeded(self) -> bool:
        """True for what is made on demand only, and nobody demands."""
        return self.verdict is _NOT_NEEDED or self.waits

    @property
    def waits(self) -> bool:
        """True for what is made on demand only, while nobody can say whether there is one."""
        return self.verdict.state == UNKNOWN and any(reason.part == _NEEDED for reason in self.verdict.reasons)

    def as_dict(self, command: str) -> dict[str, object]:
        """The step as `doit plan --json` prints it."""
        return {
            "task": self.goal.task,
            "uri": str(self.goal.uri),
            "node": self.goal.node,
            "state": self.state,
            "reasons": [{"part": r.part, "old": r.old, "new": r.new, "text": r.text} for r in self.reasons],
            "bytes": self.bytes,
            "command": command,
        }


class Plan(msgspec.Struct, frozen=True):
    """Steps in an order in which they can be made."""

    steps: tuple[Step, ...]

    def __iter__(self) -> Iterator[Step]:
        return iter(self.steps)

    def of(self, goal: Goal) -> Step | None:
        """The step of one goal, None when the goal is not in this plan."""
        return next((step for step in self.steps if step.goal.uri == goal.uri), None)

    @property
    def stale(self) -> tuple[Step, ...]:
        """The steps that are not `ok`."""
        return tuple(step for step in self.steps if step.state != OK)


def closure(goals: Iterable[Goal]) -> tuple[Goal, ...]:
    """The goals and all they need, each once, needs first."""
    seen: dict[str, Goal] = {}

    def visit(goal: Goal) -> None:
        if goal.target not in seen:
            for need in goal.needs:
                visit(need)
            seen[goal.target] = goal

    for goal in goals:
        visit(goal)
    return tuple(seen.values())


class _Uses:
    """What is known of goals by those that need them, which are judged first."""

    def __init__(self, selected: set[str]) -> None:
        self._useful = set(selected)
        self._lost: dict[str, list[str]] = {}  # by target: tasks that need it, and cannot be made for good

    def for_nothing(self, goal: Goal, fact: Any = None) -> Verdict | None:
        """The verdict of a goal that only others want which cannot be made; None when it may be of use."""
        if goal.target not in self._lost or goal.target in self._useful:
            return None
        reason = Reason(_NEEDED, f"only for {', '.join(self._lost[goal.target])}, which cannot be made")
        return Verdict(UNKNOWN, (reason,), None, fact)

    def judged(self, goal: Goal, verdict: Verdict) -> Verdict:
        """The verdict, or that the goal is for nothing: all that would use it cannot be made, whatever a node says."""
        if verdict.state == RUN:
            verdict = self.for_nothing(goal, verdict.fact) or verdict
        parts = {reason.part for reason in verdict.reasons}
        is_lost = verdict.state == UNKNOWN and bool(parts) and not parts & OF_NODES
        for need in goal.needs:
            if is_lost:
                self._lost.setdefault(need.target, []).append(goal.task)
            else:
                self._useful.add(need.target)
        return verdict


def _waits(nodes: Iterable[str]) -> Verdict | None:
    """The verdict of a goal of which these nodes do not say whether it is needed."""
    text = f"waits to see {', '.join(nodes)}"
    return Verdict(UNKNOWN, (Reason(_NEEDED, text),), None) if nodes else None


def plan(selected: Iterable[Goal], judge: Callable[[Goal], Verdict]) -> Plan:
    """Decide the state of every goal that the selected ones stand on, and of these themselves.

    A transient goal is left alone while all that consumes it is ok, unless it was selected itself. It is unknown while
    something that consumes it is, and nothing else needs it.
    """
    wanted = tuple(selected)
    selected_targets = {goal.target for goal in wanted}
    ordered = closure(wanted)
    # A transient goal is not even looked at while nobody needs it. What consumes a goal stands behind it.
    verdicts: dict[str, Verdict] = {}
    called_for: set[str] = set()
    tentative: set[str] = set()
    unseen: dict[str, dict[str, None]] = {}  # by goal: nodes that do not say whether it is needed
    uses = _Uses(selected_targets)
    for goal in reversed(ordered):
        if not goal.transient or goal.target in selected_targets or goal.target in called_for:
            verdicts[goal.target] = uses.judged(goal, judge(goal))
            if verdicts[goal.target].state == RUN:  # for a node that does not answer, nothing is to be prepared
                called_for.update(need.target for need in goal.needs)
            silent = dict.fromkeys(goal.nodes) if verdicts[goal.target].state == UNKNOWN else {}
        else:
            lost = uses.for_nothing(goal)
            silent = {} if lost else unseen.get(goal.target, {})
            open_question = uses.judged(goal, lost) if lost else _waits(silent)
            if open_question is not None:
                tentative.add(goal.target)
                verdicts[goal.target] = open_question
        if silent:
            for need in goal.needs:
                unseen[need.target] = {**silent, **unseen.get(need.target, {})}
    states: dict[str, str] = {}
    steps = []
    for goal in ordered:
        verdict = verdicts.get(goal.target) or _NOT_NEEDED
        state, reasons = verdict.state, verdict.reasons
        if state == OK:
            # what nobody may need is not waited for by one that is right without it
            waits = [need for need in goal.needs if states[need.target] != OK and need.target not in tentative]
            if waits:
                state = MAYBE
                reasons = tuple(Reason(str(need.uri), f"waits for {need.task}") for need in waits)
        states[goal.target] = state
        steps.append(Step(goal, state, reasons, verdict.bytes, verdict))
    return Plan(tuple(steps))
