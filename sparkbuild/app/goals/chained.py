"""Sources that staging itself makes: a block that is staged from the folder of another one stands on it.

By the names of folders: what links in them lead to, no look at the workspace can tell.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

import msgspec

from sparkbuild.core.goal import Goal
from sparkbuild.core.plan import OK, RUN, Plan, Step
from sparkbuild.core.reasons import Reason
from sparkbuild.staging.blocks import source_of


def maker(goal: Goal, others: Iterable[tuple[str, Goal]]) -> Goal | None:
    """The first of the other goals of its node that stages into the folder which a goal stages from, or into a part of
    it; of its own recipe, if there is one. `others` each with its folder, a normal absolute path. Pure.
    """
    source = source_of(goal.spec.what)
    if not source:
        return None
    source = os.path.normpath(source)
    found = [one for path, one in others if _meet(path, source)]
    recipe = goal.uri.path.partition("/")[0]
    return next((one for one in found if one.uri.path.partition("/")[0] == recipe), next(iter(found), None))


def circle(path: str, goal: Goal, others: Iterable[tuple[str, Goal]]) -> tuple[Goal, ...]:
    """The goals that are staged from each other in a circle, a goal with the folder `path` first; () when it is in
    none. `others` as for `maker`. Pure.
    """
    known = [*others, (path, goal)]
    seen: set[str] = set()

    def way(one: Goal) -> tuple[Goal, ...]:
        source = source_of(one.spec.what) if one.uri.scheme == "staged" else ""
        source = source and os.path.normpath(source)
        makers = [made for at, made in known if _meet(at, source)] if source else []
        if any(made.target == goal.target for made in makers):
            return (one,)
        for made in makers:
            if made.target not in seen:
                seen.add(made.target)
                if found := way(made):
                    return (one, *found)
        return ()

    return way(goal)


def awaited(made: Plan) -> Plan:
    """The plan, in which staged data is not refused for a source that is made before it. Pure."""
    stale = {step.goal.target: step for step in made if step.goal.uri.scheme == "staged" and step.state != OK}

    def seen(step: Step) -> Step:
        makers = [need for need in step.goal.needs if need.target in stale]
        return _waiting(step, makers[0]) if makers and source_refused(step) else step

    return Plan(tuple(map(seen, made)))


def source_refused(step: Step) -> bool:
    """Whether the source of a step that stages cannot be staged from, as the node tells it."""
    if step.goal.uri.scheme != "staged" or step.state != RUN:
        return False
    return bool(((step.verdict.fact or {}).get("refused") or {}).get("part") == "source")


def _meet(one: str, other: str) -> bool:
    return f"{one}/".startswith(f"{other}/") or f"{other}/".startswith(f"{one}/")


def _waiting(step: Step, need: Goal) -> Step:
    reason = Reason("source", f"its source is made by {need.task}", remark=True)
    verdict = msgspec.structs.replace(step.verdict, fact={**step.verdict.fact, "refused": {}})
    return msgspec.structs.replace(step, reasons=(*step.reasons, reason), verdict=verdict)
