"""Does what is to be staged fit on the disks? Asked of the nodes for staged data that is stale."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from sparkbuild.app.rooms import Room, rooms
from sparkbuild.core.plan import RUN, Plan, Step
from sparkbuild.staging.eviction import Need, together

if TYPE_CHECKING:
    from sparkbuild.nodes.cluster import Nodes


def needs(nodes: Nodes, made: Plan) -> list[Need]:
    """What the plan would write to each file system. What cannot be said beforehand counts as nothing."""
    steps = [step for step in made if may_need_room(step)]
    if not steps:
        return []
    return needed(steps, rooms(nodes, [step.goal for step in steps]))


def may_need_room(step: Step) -> bool:
    """Whether a step would write into a staged folder, or may."""
    return step.goal.uri.scheme == "staged" and step.state == RUN and step.bytes != 0


def needed(steps: Iterable[Step], found: Mapping[str, Room]) -> list[Need]:
    """One need for each file system of each node. Pure."""
    disks: dict[tuple[str, str], list[Need]] = {}
    counted = set()
    for step in steps:
        goal, room = step.goal, found.get(step.goal.target)
        if room is None or room["free"] is None:
            continue
        folder = (goal.node, os.path.normpath(goal.spec.dst))
        write = _more(step, room) if folder not in counted else 0  # of two recipes: staged once
        counted.add(folder)
        unsized = step.bytes is None
        keeps = goal.spec.min_free if write or unsized else 0  # what is mended in place takes no room
        disk = (goal.node, room["device"], (goal.task,), write, room["free"], room["total"])
        need = Need(*disk, min_free=keeps, keeper=goal.task, unsized=unsized)
        disks.setdefault((need.node, need.device), []).append(need)
    return [together(of_disk) for of_disk in disks.values()]


def _more(step: Step, room: Room) -> int:
    """Bytes that staging takes of the disk. What stays in exports when it is replaced here is not given back, and what
    is mended is whole again beside it.
    """
    fact = step.verdict.fact or {}
    beside = int(fact.get("beside") or 0)
    more = max(0, _whole(step) - max(0, int(room["held"]) - beside))
    return max(more, beside) if fact.get("problems") else more


def _whole(step: Step) -> int:
    """Bytes of data that a folder has when it is staged, 0 when that is not known."""
    fact = step.verdict.fact or {}
    return int(fact.get("wanted") or (fact.get("bytes") if fact.get("problems") else 0) or step.bytes or 0)
