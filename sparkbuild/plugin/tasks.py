"""What a workspace's dodo.py imports: its tasks and doit's settings."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sparkbuild.app.work import STATE_FILE
from sparkbuild.plugin.actions.locks import check_task, pin_task
from sparkbuild.plugin.actions.lockupdate import update_tasks
from sparkbuild.plugin.actions.lockverify import verify_tasks
from sparkbuild.plugin.actions.repro import repro_tasks
from sparkbuild.plugin.adapters.action import Proc
from sparkbuild.plugin.adapters.checker import FactChecker
from sparkbuild.plugin.adapters.current import current, opened
from sparkbuild.plugin.adapters.factory import group_doc, group_of, stop_task, task_of

__all__ = ["Proc", "config", "task_sparkbuild"]


def config(**settings: Any) -> dict[str, Any]:
    """Doit's settings for a workspace; `settings` override single ones.

    A bare `doit` selects nothing: it would stop every lane and start every bench otherwise.
    """
    return {
        "backend": "sparkbuild",
        "dep_file": STATE_FILE,
        "check_file_uptodate": FactChecker,
        "reporter": "sparkbuild",
        "default_tasks": [],
        "num_process": 8,  # a relay feeds those nodes together whose steps are at work together
        "par_type": "thread",
        "verbosity": 0,
        **settings,
    }


def task_sparkbuild() -> Iterator[dict[str, Any]]:
    """All tasks of the workspace."""
    here = opened()
    catalog = here.catalog
    if not current.listing:  # `doit list` prints goals without paying for a thousand doit tasks
        for goal in catalog.goals.by_task.values():
            yield task_of(goal)
        for name, members in catalog.groups.items():
            basename, _, rest = name.partition(":")
            if rest:  # the group of a basename is made by doit
                yield group_of(basename, rest, group_doc(name, members), members)
    for recipe, (nodes, grace) in here.stops().items():
        yield stop_task(recipe, nodes, grace)
    yield from repro_tasks(catalog)
    yield check_task()
    yield from verify_tasks(catalog.workspace)
    yield from update_tasks(catalog.workspace)
    broken = (name.removeprefix("locks/") for name in catalog.workspace.problems if name.startswith("locks/"))
    for name in (*catalog.workspace.locks, *broken):  # pinning anew may be what mends a broken one
        yield pin_task(name)
