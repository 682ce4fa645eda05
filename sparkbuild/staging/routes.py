"""Where each node takes staged bytes from: the source is read once, by the first node that lacks them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from sparkbuild.core.plan import OK, RUN, Step

SOURCE = ""  # reads the source itself


def routes(steps: Iterable[Step], holders: Mapping[str, str]) -> dict[str, str]:
    """By target of each step that stages: the node it takes the bytes from, SOURCE for the one that reads the source.

    `holders` maps keys to a node outside of the plan that has the data. As staging.chain does it, where the nodes begin
    in the order of the plan.
    """
    found: dict[str, str] = {}
    last: dict[str, str] = dict(holders)
    wanted = [step for step in steps if step.goal.uri.scheme == "staged"]
    for step in wanted:
        if step.state == OK and step.goal.spec.shared:
            last.setdefault(step.goal.key.digest, step.goal.node)
    for step in wanted:
        if step.state == RUN:
            key = step.goal.key.digest
            found[step.goal.target] = last.get(key, SOURCE) if step.goal.spec.shared else SOURCE
            last[key] = step.goal.node
    return found
