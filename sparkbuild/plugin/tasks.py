"""What a workspace's dodo.py imports: its tasks and doit's settings."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sparkbuild.plugin.action import Proc
from sparkbuild.plugin.checker import FactChecker
from sparkbuild.plugin.factory import group_of, stop_task, task_of
from sparkbuild.plugin.lockfiles import check_task, pin_task
from sparkbuild.plugin.session import STATE_FILE, session

__all__ = ["Proc", "config", "task_sparkbuild"]


def config(**settings: Any) -> dict[str, Any]:
    """doit's settings for a workspace; `settings` override single ones.

    A bare `doit` selects nothing: it would stop every lane and start every bench otherwise.
    """
    return {
        "backend": "sparkbuild",
        "dep_file": STATE_FILE,
        "check_file_uptodate": FactChecker,
        "reporter": "sparkbuild",
        "default_tasks": [],
        "num_process": 4,
        "par_type": "thread",
        "verbosity": 0,
        **settings,
    }


def task_sparkbuild() -> Iterator[dict[str, Any]]:
    """All tasks of the workspace."""
    here = session()
    groups: dict[str, list[str]] = {}
    for task, goal in here.goals.by_task.items():
        yield task_of(goal)
        pieces = task.split(":")
        for end in range(2, len(pieces)):
            groups.setdefault(":".join(pieces[:end]), []).append(task)
    for name, members in groups.items():
        if name not in here.goals.by_task:
            basename, _, rest = name.partition(":")
            yield group_of(basename, rest, f"{basename} all of {rest} ({len(members)})", members)
    for recipe, lane in here.goals.lanes.items():
        yield stop_task(recipe, lane.nodes[0], lane.spec.stop_grace)
    for problem in here.goals.problems:
        folder, _, name = problem.partition("/")
        if folder == "recipes" and name not in here.goals.lanes:
            # a lane that runs must stay stoppable while its recipe is being edited
            yield from (stop_task(name, node, 15.0) for node in list(here.workspace.config.nodes)[:1])
    yield check_task(here)
    for name in here.workspace.locks:
        yield pin_task(here, name)
