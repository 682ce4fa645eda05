"""Sources that an earlier step of the same plan makes: it is no mistake that they are not there yet."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable

import msgspec

from sparkbuild.core.goal import Goal
from sparkbuild.core.plan import MAYBE, RUN, Plan, Step
from sparkbuild.core.reasons import Reason
from sparkbuild.staging.blocks import source_of


def awaited(made: Plan, folder: Callable[[Goal], str]) -> Plan:
    """The plan, in which staged data is not refused for a source that an earlier step makes. `folder`: where a goal
    stages, or exports, as an absolute path on its node. By the names of folders: what links in them lead to is not
    asked. Pure.
    """
    steps: list[Step] = []
    for step in made:
        maker = _maker(step, steps, folder) if source_refused(step) else None
        steps.append(step if maker is None else _waiting(step, maker))
    return Plan(tuple(steps))


def source_refused(step: Step) -> bool:
    """Whether the source of a step that stages cannot be staged from, as the node tells it."""
    if step.goal.uri.scheme != "staged" or step.state != RUN:
        return False
    return bool(((step.verdict.fact or {}).get("refused") or {}).get("part") == "source")


def _maker(step: Step, before: Iterable[Step], folder: Callable[[Goal], str]) -> Goal | None:
    source = os.path.normpath(source_of(step.goal.spec.what))
    for other in before:
        goal = other.goal
        if goal.uri.scheme in {"staged", "export"} and goal.node == step.goal.node and other.state in {RUN, MAYBE}:
            made = folder(goal)
            if _holds(made, source) or _holds(source, made):
                return goal
    return None


def _holds(outer: str, inner: str) -> bool:
    return f"{inner}/".startswith(f"{outer}/")


def _waiting(step: Step, maker: Goal) -> Step:
    reason = Reason("source", f"its source is made by {maker.task}")
    verdict = msgspec.structs.replace(step.verdict, fact={**step.verdict.fact, "refused": {}})
    return msgspec.structs.replace(step, reasons=(*step.reasons, reason), verdict=verdict)
