"""What was seen: the facts of goals, the verdicts on them, and how this workspace remembers to have made them."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from typing import Any

from sparkbuild.app.catalog import Catalog
from sparkbuild.app.kinds import kinds
from sparkbuild.app.stagechoice import SKIPPED, StageChoice
from sparkbuild.app.target import bench_target
from sparkbuild.core.goal import Goal
from sparkbuild.core.plan import OK, Verdict
from sparkbuild.core.pools import Pools
from sparkbuild.core.run import Kind, Run
from sparkbuild.core.state import Made, StateStore
from sparkbuild.nodes.cluster import Nodes
from sparkbuild.nodes.facts import Fact, Observer


class Observed:
    """Looks at nodes when it is first asked of a goal, and remembers the answer for the run. `choice` is what --stage
    asks of staged data: a look, unless the command sets it.
    """

    def __init__(self, catalog: Catalog, nodes: Nodes, pools: Pools, state: StateStore) -> None:
        self.catalog = catalog
        self.nodes = nodes
        self.choice = StageChoice()
        benches = any(recipe.spec.bench for recipe in catalog.workspace.recipes.values())
        self.kinds: Mapping[str, Kind[Any]] = kinds(
            str(catalog.root), nodes, pools, self._target if benches else None, self.holders, forced=self.choice.forces
        )
        self._observer = Observer(self.kinds, nodes.agent)
        self._state = state
        self._last: dict[str, Made] | None = None
        self._guard = threading.Lock()

    def last(self, goal: Goal) -> Made | None:
        """How the goal was last made, as this workspace remembers it."""
        return self.made_before().get(str(goal.uri))

    def made_before(self) -> Mapping[str, Made]:
        """How everything was last made, by its name without the key; what has no goal any more too."""
        with self._guard:
            if self._last is None:
                self._last = self._state.all_made()
            return self._last

    def fact(self, goal: Goal) -> Fact:
        """What was seen of a goal."""
        return self._observer.fact(goal)

    def look(self, goals: Iterable[Goal], *, again: bool = False) -> None:
        """Ask all nodes of the goals at the same time: for those not looked at yet, or `again` for all."""
        self._observer.look([goal for goal in goals if not self.choice.skips(goal)], again=again)

    def judge(self, goal: Goal) -> Verdict:
        """What the facts say of one goal alone."""
        if self.choice.skips(goal):
            return SKIPPED
        kind, fact = self.kinds[goal.uri.scheme], self.fact(goal)
        verdict = kind.judge(goal, fact, None)
        # how it was last made only explains: a look at which all is well need not open the state file
        return verdict if verdict.state == OK else kind.judge(goal, fact, self.last(goal))

    def look_again(self, goal: Goal) -> Verdict:
        """Judge a goal by new facts."""
        self.look([goal], again=True)
        return self.judge(goal)

    def holders(self, goal: Goal) -> list[tuple[str, str]]:
        """Other folders that have what a goal stages, whole, with their nodes; those of its own node come first."""
        mine = (goal.node, goal.spec.dst)
        same = [
            other
            for other in self.catalog.goals.by_task.values()
            if other.uri.scheme == goal.uri.scheme
            and other.key.digest == goal.key.digest
            and (other.node, other.spec.dst) != mine
        ]
        same.sort(key=lambda other: other.node != goal.node)
        self.look(same)
        return list(dict.fromkeys((other.node, other.spec.dst) for other in same if self.judge(other).state == OK))

    def _target(self, goal: Goal, run: Run) -> Any:
        del run
        return bench_target(goal, self.look_again, self.nodes)
