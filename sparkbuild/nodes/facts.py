"""Facts about goals: one question per node and round, all nodes at once, each answer remembered for the run."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from sparkbuild.core.errors import NodeError, SparkbuildError
from sparkbuild.core.goal import Goal
from sparkbuild.core.run import Agent, Kind
from sparkbuild.nodes import waiting
from sparkbuild.nodes.ask import answers, everywhere

Fact = dict[str, Any]


class Observer:
    """Looks at the nodes for goals of the given kinds.

    A kind with a method `observe(goal) -> fact` is looked at by the operator's own machine (run packages); all others
    through the agents of their nodes. A node that does not answer gives {"unreachable": message} for each of its goals.
    A goal that is on several nodes has the fact {"ranks": {node: fact}}.
    """

    def __init__(self, kinds: Mapping[str, Kind[Any]], agent: Callable[[str], Agent]) -> None:
        self._kinds = kinds
        self._agent = agent
        self._facts: dict[str, Fact] = {}
        self._guard = threading.Lock()

    def fact(self, goal: Goal) -> Fact:
        """What was seen of a goal, looking now if nobody has."""
        with self._guard:
            found = self._facts.get(goal.target)
        if found is None:
            self.look([goal])
            with self._guard:
                found = self._facts[goal.target]
        return found

    def look(self, goals: Iterable[Goal], *, again: bool = False) -> None:
        """Look at all of the goals that were not looked at yet (or at all of them, `again`)."""
        asked_for = tuple(goals)  # a generator may ask this very observer
        with self._guard:
            wanted = [goal for goal in asked_for if again or goal.target not in self._facts]
        by_node: dict[str, list[Goal]] = {}
        for goal in wanted:
            local = getattr(self._kinds[goal.uri.scheme], "observe", None)
            if local is not None:
                self._keep(goal, local(goal))
            else:
                for node in goal.nodes:
                    by_node.setdefault(node, []).append(goal)
        seen = everywhere(tuple(by_node), lambda node: self._ask(node, by_node[node]))
        for goal in dict.fromkeys(goal for asked in by_node.values() for goal in asked):
            if len(goal.nodes) == 1:
                self._keep(goal, seen[goal.nodes[0]][goal.target])
            else:
                self._keep(goal, {"ranks": {node: seen[node][goal.target] for node in goal.nodes}})

    def _ask(self, node: str, goals: list[Goal]) -> dict[str, Fact]:
        kinds = [self._kinds[goal.uri.scheme] for goal in goals]
        queries = [{"scheme": kind.scheme, **kind.query(goal)} for kind, goal in zip(kinds, goals, strict=True)]
        try:
            with waiting.told(node, waiting.sources(queries)):
                found = answers(self._agent(node), node, queries)
        except SparkbuildError as error:
            return {goal.target: {"unreachable": str(error)} for goal in goals}
        return {
            goal.target: {"unreachable": str(fact)} if isinstance(fact, NodeError) else fact
            for goal, fact in zip(goals, found, strict=True)
        }

    def _keep(self, goal: Goal, fact: Fact) -> None:
        with self._guard:
            self._facts[goal.target] = fact
