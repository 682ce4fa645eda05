"""The one place where a goal becomes a doit task."""

from __future__ import annotations

from typing import Any

from sparkbuild.core.goal import Goal
from sparkbuild.plugin.adapters.action import GoalAction, StopAction

_PARAMS: dict[str, list[dict[str, Any]]] = {
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


def task_of(goal: Goal) -> dict[str, Any]:
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


def group_doc(name: str, members: list[str]) -> str:
    """What `doit list` says of a group."""
    basename, _, rest = name.partition(":")
    if basename != "stage":
        return f"{basename} all of {rest} ({len(members)})"
    recipe, *place = rest.split(":")
    block = f" as block {place[1]}" if place[1:] else ""
    node = f" on {place[0]}" if place else ""
    return f"stage all that {recipe} wants{block}{node} ({len(members)} step{'s' if len(members) != 1 else ''})"


def group_of(basename: str, name: str, doc: str, members: list[str]) -> dict[str, Any]:
    """A name for several tasks."""
    return {"basename": basename, "name": name, "doc": doc, "actions": None, "task_dep": members}


def stop_task(recipe: str, nodes: tuple[str, ...], grace: float) -> dict[str, Any]:
    """Stopping a lane: always does its work, which is nothing when the lane does not run."""
    doc = f"stop the lane of {recipe} on {', '.join(nodes)}"
    return {"basename": "stop", "name": recipe, "doc": doc, "actions": [StopAction(recipe, nodes, grace)]}
