"""What keeps goals unknown: each node that says nothing once, in full, however many goals are on it; and what is known
beforehand to fail.
"""

from __future__ import annotations

from collections.abc import Iterable

from sparkbuild.core.errors import NodeError, NotMadeError, SparkbuildError
from sparkbuild.core.plan import OF_NODES, UNKNOWN, Step


def silent(steps: Iterable[Step]) -> SparkbuildError | None:
    """One error for all steps that are unknown, None when none is. It names the tasks, and what their reasons say, each
    once.
    """
    # what only waits for an answer says nothing new
    unknown = [step for step in steps if step.state == UNKNOWN and not step.waits]
    if not unknown:
        return None
    reasons = [reason for step in unknown for reason in step.reasons]
    tasks = [step.goal.task for step in unknown]
    named = f"{', '.join(tasks[:4])}{f' and {len(tasks) - 4} more' if tasks[4:] else ''}"
    found = "\n".join(dict.fromkeys(reason.text for reason in reasons))
    if not any(reason.part in OF_NODES for reason in reasons):  # all answer, and what they say is no
        what = f"nothing is made: {named} cannot be made"
        return NotMadeError(what, found=found, wanted="what can be made; with -c the other goals are")
    return NodeError(
        f"nothing is made: the state of {named} is not known",
        found=found,
        wanted="an answer of all nodes; with -c the goals of the others are made",
        next="doit health",
    )
