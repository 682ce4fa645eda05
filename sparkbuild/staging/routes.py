"""Where each staged folder takes its bytes from: the source is read once, for the first that lacks them. Pure."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping

from sparkbuild.core.goal import Goal
from sparkbuild.core.plan import OK, RUN, Step

SOURCE = ""  # reads the source itself


def routes(steps: Iterable[Step], holders: Mapping[str, Iterable[str]]) -> dict[str, str]:
    """By target of each step that stages: the node it takes the bytes from, its own one where another folder there has
    them, SOURCE for the one that reads the source. A step whose folder an earlier one makes is left out: it has nothing
    to do then.

    `holders` maps keys to the nodes of folders that have the data, the first one last. As staging.chain does it, where
    the steps begin in the order of the plan.
    """
    wanted = [step for step in steps if step.goal.uri.scheme == "staged"]
    having = {key: list(nodes) for key, nodes in holders.items()}
    for step in wanted:
        if step.state == OK and step.goal.spec.shared:
            having.setdefault(step.goal.key.digest, []).insert(0, step.goal.node)
    sources: dict[str, str] = {}
    again = repeated(wanted)
    for step in wanted:
        if step.state == RUN and step.goal.target not in again:
            nodes = having.setdefault(step.goal.key.digest, []) if step.goal.spec.shared else []
            sources[step.goal.target] = _giver(step.goal.node, nodes)
            nodes.append(step.goal.node)
    return sources


def _giver(node: str, having: list[str]) -> str:
    """The last one that has it, or will; the node itself where it has."""
    return node if node in having else having[-1] if having else SOURCE


def repeated(steps: Iterable[Step]) -> dict[str, Goal]:
    """By target of each step to be made: the goal of an earlier one, of the same folder and key, that makes it too."""
    first: dict[tuple[str, str, str], Goal] = {}
    makers = {}
    for step in steps:
        goal = step.goal
        if goal.uri.scheme == "staged" and step.state == RUN:
            maker = first.setdefault((goal.node, os.path.normpath(goal.spec.dst), goal.key.digest), goal)
            if maker is not goal:
                makers[goal.target] = maker
    return makers
