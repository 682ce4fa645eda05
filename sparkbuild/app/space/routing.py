"""A plan's rows of staging say which reads the source, and which takes the bytes from another node or folder."""

from __future__ import annotations

from collections.abc import Callable, Container
from typing import TYPE_CHECKING

import msgspec

from sparkbuild.core import units
from sparkbuild.core.plan import RUN, Plan, Route, Step
from sparkbuild.core.reasons import Reason
from sparkbuild.staging.routes import SOURCE, repeated, routes

if TYPE_CHECKING:
    from sparkbuild.core.goal import Goal


def told(made: Plan, holders: Callable[[Goal], list[tuple[str, str]]], refused: Container[str] = ()) -> Plan:
    """The plan with a line for each step that stages what several nodes want. `holders`: other folders that have
    what a goal stages, with their nodes. Targets that are `refused` read nothing, and give nothing.
    """
    tried = [step for step in made if step.goal.target not in refused]
    again = repeated(tried)
    nodes_with: dict[str, list[str]] = {}
    for step in tried:
        if step.goal.uri.scheme == "staged" and step.state == RUN and step.goal.spec.shared:
            known = nodes_with.setdefault(step.goal.key.digest, [])
            known += [node for node, _ in holders(step.goal) if node not in known]
    found = routes(tried, {key: nodes[::-1] for key, nodes in nodes_with.items()})

    def seen(step: Step) -> Step:
        target = step.goal.target
        if target in again:
            text = f"comes with {again[target].task}: it is the same folder"
            return msgspec.structs.replace(step, bytes=0, reasons=(*step.reasons, Reason("route", text, remark=True)))
        return _with(step, found[target]) if target in found else step

    return Plan(tuple(map(seen, made)))


def _with(step: Step, giver: str) -> Step:
    if not step.goal.spec.shared or step.bytes == 0:
        return step
    route, text = Route.NODE, f"takes it from {giver}, over the fabric"
    if giver == SOURCE:
        route, text = Route.SOURCE, "reads the source"
    elif giver == step.goal.node:
        route, text = Route.FOLDER, f"copies it from another folder of {giver}"
    return msgspec.structs.replace(step, route=route, reasons=(*step.reasons, Reason("route", text, remark=True)))


def total(made: Plan) -> str:
    """The bytes of a plan's staging: from the sources, between nodes, and within one; "" when all are read there."""
    sums = dict.fromkeys(Route, 0)
    for step in made:
        if step.goal.uri.scheme == "staged":
            sums[step.route] += step.bytes or 0
    if sums[Route.NODE] == sums[Route.FOLDER] == 0:
        return ""
    return ", ".join(
        f"{units.size(sums[route])} {route.value}" for route in Route if sums[route] or route is Route.SOURCE
    )
