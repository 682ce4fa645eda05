"""What `--stage=auto|skip|force` asks of the staged data below a lane: a look, nothing, or to be read in full."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from sparkbuild.app.rooms import folder_of, rooms
from sparkbuild.core.errors import NotMadeError, SparkbuildError
from sparkbuild.core.goal import Goal
from sparkbuild.core.plan import OK, RUN, Step, Verdict, closure
from sparkbuild.core.reasons import Reason

if TYPE_CHECKING:
    from sparkbuild.nodes.cluster import Nodes

AUTO, SKIP, FORCE = "auto", "skip", "force"
SKIPPED = Verdict(OK, (), 0, None, "not looked at (--stage=skip)")


class StageChoice:
    """What --stage says of this run's staged goals; of those it does not name, auto."""

    def __init__(self) -> None:
        self._by_target: dict[str, str] = {}

    def __bool__(self) -> bool:
        return bool(self._by_target)

    def choose(self, goals: Iterable[Goal], value: str) -> None:
        """Take the option's value for the staged goals below those of `goals` that are lanes."""
        checked(value)
        lanes = [goal for goal in goals if goal.uri.scheme == "lane"]
        if value != AUTO:
            schemes = ("staged", "export") if value == SKIP else ("staged",)
            self._by_target |= {goal.target: value for goal in closure(lanes) if goal.uri.scheme in schemes}

    def skips(self, goal: Goal) -> bool:
        """Whether staged data is taken as it is, unseen."""
        return self._by_target.get(goal.target) == SKIP

    def forces(self, goal: Goal) -> bool:
        """Whether staged data is read in full and mended, though it may look right."""
        return self._by_target.get(goal.target) == FORCE


def checked(value: str) -> str:
    """The option's value. Raises SparkbuildError for one that is none."""
    if value not in (AUTO, SKIP, FORCE):
        raise SparkbuildError(f"--stage takes auto, skip or force, and {value or 'nothing'} is none of these")
    return value


def forced(verdict: Verdict) -> Verdict:
    """What looks right is read in full all the same."""
    if verdict.state != OK:
        return verdict
    return Verdict(RUN, (Reason("stage", "is read in full and mended (--stage=force)"),), 0, verdict.fact)


def missing(nodes: Nodes, step: Step, choice: StageChoice) -> SparkbuildError | None:
    """Why a lane cannot be launched with the data that is there: a folder of it is not."""
    if step.goal.uri.scheme != "lane" or step.state == OK:
        return None
    skipped = [goal for goal in closure([step.goal]) if choice.skips(goal) and goal.uri.scheme == "staged"]
    by_target = rooms(nodes, skipped)
    gone = [goal for goal in skipped if goal.target in by_target and by_target[goal.target]["exists"] is False]
    if not gone:
        return None
    return NotMadeError(
        f"{step.goal.task} cannot be launched with --stage=skip: what it is to read is not there",
        found="\n".join(f"{goal.node} has no folder {folder_of(nodes, goal)} ({goal.task})" for goal in gone),
        next=f"doit {step.goal.task}, which stages it",
    )
