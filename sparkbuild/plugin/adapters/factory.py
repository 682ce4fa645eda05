"""The one place where goals, and names for several of them, become doit tasks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from sparkbuild.app.names import Stop
from sparkbuild.core.goal import Goal
from sparkbuild.plugin.adapters import docs
from sparkbuild.plugin.adapters.goalaction import GoalAction, StopAction

DoitTask = dict[str, object]  # what a task creator of doit yields: doit alone says what is in it

_PARAMS: dict[str, list[dict[str, object]]] = {
    "lane": [
        {"name": "no_wait", "long": "no-wait", "type": bool, "default": False, "help": "launch, do not wait for it"},
        {
            "name": "stage",
            "long": "stage",
            "default": "auto",
            "help": "auto; skip: take the staged data as it is, unseen; force: read all of it",
        },
    ],
    "staged": [
        {
            "name": "evict",
            "long": "evict",
            "type": bool,
            "default": False,
            "help": "first remove staged data of others, as far as there is no room; a group takes it too",
        },
    ],
    "report": [
        {"name": "label", "long": "label", "default": "", "help": "label of the run package [the recipe's]"},
        {"name": "again", "long": "again", "type": bool, "default": False, "help": "run though a package exists"},
    ],
}


def task_of(goal: Goal) -> DoitTask:
    """The doit task of a goal.

    The target carries the key: another key is another target, so existence means correctness and an empty state file
    does no harm. There is no task_dep, setup or teardown: order comes from the targets alone.
    """
    basename, _, name = goal.task.partition(":")
    return {
        "basename": basename,
        "name": name,
        "doc": goal.doc,
        "actions": [GoalAction(goal)],
        "targets": [goal.target],
        "file_dep": [need.target for need in goal.needs] + [item.path for item in goal.inputs],
        "meta": {"goal": goal},
        "params": _PARAMS.get(goal.uri.scheme, []),
    }


def groups_of(groups: Mapping[str, list[str]]) -> Iterator[DoitTask]:
    """Names for several tasks. Those of a basename are made by doit."""
    for group, members in groups.items():
        basename, _, name = group.partition(":")
        if name:
            doc = docs.group(group, members)
            yield {"basename": basename, "name": name, "doc": doc, "actions": None, "task_dep": members}


def stop_tasks(stops: Mapping[str, Stop]) -> Iterator[DoitTask]:
    """Stopping a lane: always does its work, which is nothing when the lane does not run."""
    for recipe, where in stops.items():
        yield {
            "basename": "stop",
            "name": recipe,
            "doc": docs.stop(recipe, where),
            "actions": [StopAction(recipe, where.nodes, where.grace)],
        }
