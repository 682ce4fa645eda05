"""A plan's rows of staging say which node reads the source, and which takes the bytes from another node."""

from __future__ import annotations

from collections.abc import Container
from typing import TYPE_CHECKING

import msgspec

from sparkbuild.core.plan import Plan, Step
from sparkbuild.core.reasons import Reason
from sparkbuild.plugin import units
from sparkbuild.staging.routes import SOURCE, routes

if TYPE_CHECKING:
    from sparkbuild.plugin.session import Session


def told(session: Session, made: Plan, refused: Container[str] = ()) -> Plan:
    """The plan with a line for each step that stages what several nodes want. Targets that are `refused` read nothing,
    and give nothing.
    """
    holders = {}
    tried = [step for step in made if step.goal.target not in refused]
    for step in tried:
        if step.goal.uri.scheme == "staged" and step.state == "run" and step.goal.spec.shared:
            here = session.holders(step.goal)
            if here:
                holders[step.goal.key.digest] = here[0][0]
    found = routes(tried, holders)
    return Plan(tuple(_with(step, found[step.goal.target]) if step.goal.target in found else step for step in made))


def _with(step: Step, giver: str) -> Step:
    if not step.goal.spec.shared:
        return step
    text = "reads the source" if giver == SOURCE else f"takes it from {giver}, over the fabric"
    return msgspec.structs.replace(step, reasons=(*step.reasons, Reason("route", text)))


def total(made: Plan) -> str:
    """The bytes of a plan's staging: from the sources, and between nodes; "" when none go between nodes."""
    between = sum(step.bytes or 0 for step in made if _goes_between(step))
    read = sum(step.bytes or 0 for step in made if step.goal.uri.scheme == "staged" and not _goes_between(step))
    return f"{units.size(read)} of it from the source, {units.size(between)} between nodes" if between else ""


def _goes_between(step: Step) -> bool:
    return any(reason.part == "route" and reason.text.startswith("takes") for reason in step.reasons)
