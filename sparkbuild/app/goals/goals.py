"""All goals of a workspace, by the names of their tasks."""

from __future__ import annotations

import msgspec

from sparkbuild.core.errors import ConfigError
from sparkbuild.core.goal import Goal


class Goals(msgspec.Struct):
    """All goals of a workspace by task name, in the order in which they are listed."""

    by_task: dict[str, Goal]
    lanes: dict[str, Goal]
    problems: dict[str, ConfigError]

    def add(self, goal: Goal) -> Goal:
        """Keep a goal; the same goal asked for twice is one."""
        return self.by_task.setdefault(goal.task, goal)

    def is_part(self, task: str) -> bool:
        """Whether a goal belongs to the groups and patterns that its name fits: a base that only the build of another
        image wants on its build node is made for that build, or by its own name.
        """
        goal = self.by_task.get(task)
        return goal is None or not (goal.transient and goal.uri.scheme == "image")
