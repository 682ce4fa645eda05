"""How lanes are looked at and judged. Cheap to import: what launches one is loaded when one is launched or shown."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import msgspec

from sparkbuild.agent.wire.lanes import LANE, LaneAsk
from sparkbuild.core.errors import SparkbuildError
from sparkbuild.core.goal import Goal
from sparkbuild.core.plan import RUN, Verdict
from sparkbuild.core.reasons import Reason
from sparkbuild.core.run import Run
from sparkbuild.core.state import Made
from sparkbuild.serving import judge, places
from sparkbuild.serving.launch import elsewhere
from sparkbuild.serving.ranks import LaneSeen, ranks_of

if TYPE_CHECKING:
    from sparkbuild.nodes.cluster import Nodes
    from sparkbuild.serving.launch.making import Checker, Maker
    from sparkbuild.serving.launch.render import Launch, Rank


class LaneKind:
    """See Kind."""

    scheme = LANE

    def __init__(self, root: str, nodes: Nodes, checker: Checker) -> None:
        self._root = root
        self._nodes = nodes
        self._checker = checker

    @cached_property
    def _maker(self) -> Maker:
        from sparkbuild.serving.launch.making import Maker  # noqa: PLC0415 - not for a lane that is as it should be

        return Maker(self._root, self._nodes, self._checker)

    def query(self, goal: Goal) -> LaneAsk:
        """What the agents need to look."""
        return LaneAsk(recipe=goal.spec.recipe, port=goal.spec.port, runtime=goal.spec.runtime)

    def judge(self, goal: Goal, fact: LaneSeen, last: Made | None) -> Verdict:
        """See judge.judge; a lane that would be launched may still run where its recipe has it no more."""
        verdict = judge.judge(goal, fact, last)
        if verdict.state != RUN or "launch" not in judge.steps(goal, fact):
            return verdict
        named = places.elsewhere(goal, ranks_of(goal, fact), self._root)
        more = [Reason("nodes", elsewhere.reason_of(node, known=node in self._nodes.names)) for node in named]
        return msgspec.structs.replace(verdict, reasons=(*verdict.reasons, *more)) if more else verdict

    def launches_of(self, goal: Goal) -> tuple[tuple[Rank, Launch], ...]:
        """The exact argv and environment of each rank that a launch would use."""
        return self._maker.launcher.launches(goal)

    def preflight(self, goal: Goal, verdict: Verdict) -> SparkbuildError | None:
        """Why making the lane would fail, as far as that can be told before anything is built for it."""
        return self._maker.preflight(goal, verdict)

    def apply(self, goal: Goal, verdict: Verdict, run: Run) -> int:
        """Do the steps that are missing; see Maker.make."""
        return self._maker.make(goal, verdict, run)
