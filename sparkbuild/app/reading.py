"""Reading a workspace from its files: what the user wrote, the goals, and the names of both."""

from __future__ import annotations

from pathlib import Path

from sparkbuild.app import remembered
from sparkbuild.app.goals.assemble import assemble
from sparkbuild.app.goals.goals import Goals
from sparkbuild.app.goals.prebuilt import registry_images
from sparkbuild.app.names import Names, Stop
from sparkbuild.images.dockerfile import DockerfileSpec
from sparkbuild.workspace.load import load
from sparkbuild.workspace.shapes.workspace import Workspace


def read(root: Path) -> tuple[Workspace, Goals, Names]:
    """Read everything, and remember it unless something is wrong: an error is to be found anew, with its line."""
    with remembered.remembering(root) as memory:
        workspace = load(root)
        goals = assemble(workspace)
        names = _names_of(workspace, goals)
        if not goals.problems:
            memory.names, memory.contents = names, (workspace, goals, names)
    return workspace, goals, names


def _names_of(workspace: Workspace, goals: Goals) -> Names:
    """The names in a workspace that was read."""
    archives = (goal for goal in goals.by_task.values() if goal.uri.scheme == "archive")
    return Names(
        workspace.config,
        {task: goal.doc for task, goal in goals.by_task.items()},
        _groups(goals),
        {recipe: Stop(lane.nodes, lane.spec.stop_grace) for recipe, lane in goals.lanes.items()},
        tuple(workspace.locks),
        tuple(goal.spec.name for goal in archives if isinstance(goal.spec, DockerfileSpec)),
        tuple(registry_images(workspace)),
        goals.problems,
    )


def _groups(goals: Goals) -> dict[str, list[str]]:
    groups: dict[str, list[str]] = {}
    for task in goals.by_task:
        pieces = task.split(":")
        for end in range(1, len(pieces)):
            name = ":".join(pieces[:end])
            if name not in goals.by_task:
                groups.setdefault(name, []).append(task)
    for name, tasks in tuple(groups.items()):
        parts = [task for task in tasks if goals.is_part(task)]
        groups[name] = parts or (tasks if ":" in name else [])
    return {name: tasks for name, tasks in groups.items() if tasks}
