"""The disks below folders that are staged into: how much room there is, asked of the nodes."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from sparkbuild.agent.wire.nodes import ROOM
from sparkbuild.nodes.ask import survey

if TYPE_CHECKING:
    from sparkbuild.core.goal import Goal
    from sparkbuild.nodes.cluster import Nodes

Room = dict[str, Any]


def folder_of(nodes: Nodes, goal: Goal) -> str:
    """The folder that a goal stages into, as an absolute path on its node."""
    return os.path.normpath(os.path.join(nodes.store(goal.node), goal.spec.dst))


def rooms(nodes: Nodes, goals: Iterable[Goal]) -> dict[str, Room]:
    """What agent.machine.room says of the folder of each staged goal, by target; a silent node's are left out."""
    by_node: dict[str, list[Goal]] = {}
    for goal in goals:
        by_node.setdefault(goal.node, []).append(goal)
    paths = {node: sorted({folder_of(nodes, goal) for goal in asked}) for node, asked in by_node.items()}
    queries = {node: {"scheme": ROOM, "paths": paths[node]} for node in paths}
    answers = survey(nodes.agent, queries) if queries else {}
    found = {}
    for node, asked in by_node.items():
        for goal in asked:
            room = answers[node].get("rooms", {}).get(folder_of(nodes, goal))
            if room is not None:
                found[goal.target] = room
    return found
