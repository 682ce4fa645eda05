"""Every task of a workspace: goals, groups of them, and what is done besides."""

from __future__ import annotations

from collections.abc import Iterator

from sparkbuild.app.opened import Opened
from sparkbuild.plugin.actions.locks import check_task, pin_task
from sparkbuild.plugin.actions.lockupdate import update_tasks
from sparkbuild.plugin.actions.lockverify import verify_tasks
from sparkbuild.plugin.actions.repro import repro_tasks
from sparkbuild.plugin.adapters.factory import DoitTask, groups_of, stop_tasks, task_of


def all_tasks(here: Opened) -> Iterator[DoitTask]:
    """As doit's task creators yield them."""
    names = here.catalog.names
    yield from map(task_of, here.catalog.goals.by_task.values())
    yield from groups_of(names.groups)
    yield from stop_tasks(here.stops())
    yield from repro_tasks(here.catalog)
    yield check_task()
    yield from verify_tasks(names)
    yield from update_tasks(names)
    broken = (name.removeprefix("locks/") for name in here.catalog.workspace.problems if name.startswith("locks/"))
    yield from map(pin_task, (*names.locks, *broken))  # pinning anew may be what mends a broken one
