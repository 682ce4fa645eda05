"""Does what is to be staged fit on the disks? Asked of the nodes for staged data that is stale, and told in plans."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from sparkbuild.core.plan import RUN, Plan, Step
from sparkbuild.core.reasons import Reason
from sparkbuild.nodes.survey import survey
from sparkbuild.plugin import units
from sparkbuild.staging.eviction import Need

if TYPE_CHECKING:
    from sparkbuild.core.goal import Goal
    from sparkbuild.plugin.session import Session

Room = dict[str, Any]


def folder_of(session: Session, goal: Goal) -> str:
    """The folder that a goal stages into, as an absolute path on its node."""
    return os.path.normpath(os.path.join(session.nodes.store(goal.node), goal.spec.dst))


def rooms(session: Session, goals: Iterable[Goal]) -> dict[str, Room]:
    """What agent.room says of the folder of each staged goal, by target; those of a silent node are left out."""
    by_node: dict[str, list[Goal]] = {}
    for goal in goals:
        by_node.setdefault(goal.node, []).append(goal)
    paths = {node: sorted({folder_of(session, goal) for goal in asked}) for node, asked in by_node.items()}
    queries = {node: {"scheme": "room", "paths": paths[node]} for node in paths}
    answers = survey(session.nodes.agent, queries) if queries else {}
    found = {}
    for node, asked in by_node.items():
        for goal in asked:
            room = answers[node].get("rooms", {}).get(folder_of(session, goal))
            if room is not None:
                found[goal.target] = room
    return found


def needs(session: Session, made: Plan) -> list[Need]:
    """What the plan would write to each file system. What cannot be said beforehand is left out."""
    steps = [step for step in made if step.goal.uri.scheme == "staged" and step.state == RUN and step.bytes]
    if not steps:
        return []
    return needed(steps, rooms(session, [step.goal for step in steps]))


def needed(steps: Iterable[Step], found: Mapping[str, Room]) -> list[Need]:
    """One need for each file system of each node. Pure."""
    sums: dict[tuple[str, str], Need] = {}
    for step in steps:
        goal, room = step.goal, found.get(step.goal.target)
        if room is None or room["free"] is None:
            continue
        write = max(0, (step.bytes or 0) - room["held"])
        new = Need(goal.node, room["device"], (goal.task,), write, room["free"], goal.spec.min_free)
        old = sums.get((goal.node, room["device"]))
        if old is not None:
            tasks, least = (*old.tasks, goal.task), max(old.min_free, new.min_free)
            new = msgspec.structs.replace(new, tasks=tasks, write=old.write + write, min_free=least)
        sums[goal.node, room["device"]] = new
    return list(sums.values())


def told(session: Session, made: Plan) -> Plan:
    """The plan, with a further reason for staged data that does not fit. It is no more than an estimate, so it stops
    nothing: staging itself counts again, and what other tools left there may be all that is wanted.
    """
    short = {task: need for need in needs(session, made) if need.short for task in need.tasks}
    if not short:
        return made
    steps = (
        msgspec.structs.replace(step, reasons=(*step.reasons, Reason("room", text(short[step.goal.task], step.goal))))
        if step.goal.task in short
        else step
        for step in made
    )
    return Plan(tuple(steps))


def text(need: Need, goal: Goal) -> str:
    """One line: what is to be written, what is free, what must stay so, and the command that makes room."""
    more = len(need.tasks) - 1
    with_others = f" (with {more} other{'s' if more > 1 else ''} on that disk)" if more else ""
    spare = f", {units.size(need.min_free)} must stay free" if need.min_free else ""
    recipe = goal.uri.path.partition("/")[0]
    return (
        f"does not fit: {units.size(need.write)} to write{with_others}, {units.size(need.free)} free{spare}; "
        f"doit stage:{recipe} --evict"
    )
