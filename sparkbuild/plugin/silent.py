"""What keeps goals unknown: each node that says nothing once, in full, however many goals are on it."""

from __future__ import annotations

from collections.abc import Iterable

from sparkbuild.core.errors import NodeError
from sparkbuild.core.plan import UNKNOWN, Step


def silent(steps: Iterable[Step]) -> NodeError | None:
    """One error for all steps that are unknown, None when none is. It names the tasks, and what their reasons say, each
    once.
    """
    # what only waits for an answer says nothing new
    unknown = [step for step in steps if step.state == UNKNOWN and not step.waits]
    if not unknown:
        return None
    texts = dict.fromkeys(reason.text for step in unknown for reason in step.reasons)
    tasks = [step.goal.task for step in unknown]
    return NodeError(
        f"nothing is made: the state of {', '.join(tasks[:4])}{f' and {len(tasks) - 4} more' if tasks[4:] else ''}"
        " is not known",
        found="\n".join(texts),
        wanted="an answer of all nodes; with -c the goals of the others are made",
        next="doit health",
    )
