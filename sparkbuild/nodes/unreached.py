"""A node that does not answer: what stands in place of its facts, and what is judged from that."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypedDict, final

from sparkbuild.core.goal import Goal
from sparkbuild.core.plan import UNKNOWN, Verdict
from sparkbuild.core.reasons import Reason


@final
class Unreached(TypedDict):
    """In place of a fact: why the node could not be asked."""

    unreachable: str


def unreached(goal: Goal, fact: Mapping[str, object]) -> Verdict:
    """The verdict on a goal whose fact is an Unreached. `if "unreachable" in fact` tells mypy what is left."""
    return Verdict(UNKNOWN, (Reason("node", f"{goal.node} does not answer: {fact['unreachable']}"),), None)
