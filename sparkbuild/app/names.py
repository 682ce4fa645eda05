"""What can be named in a workspace, with the line that `doit list` has for it: plain data, without the goals behind."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from sparkbuild.core.errors import ConfigError
from sparkbuild.workspace.shapes.schema import Config

if TYPE_CHECKING:
    from sparkbuild.app.goals.goals import Goals
    from sparkbuild.workspace.shapes.workspace import Workspace


TASK = "serve:"  # before a recipe's name, where locks are named as well


class Stop(NamedTuple):
    """The nodes a lane may run on, in rank order, and the seconds it gets to end by itself."""

    nodes: tuple[str, ...]
    grace: float


class Names(NamedTuple):
    """`docs` are the lines of goals, by task. `groups`: names that stand for several goals (`stage`, `stage:demo`,
    `stage:demo:dgx1`) and the tasks of these; what is no part of a group is all there is of one that would be empty
    without it, but for the groups of a basename. `lanes`: by recipe. `reproducible` are images that are built here,
    `pinnable` recipes with an image of a registry. `problems`: by part (`recipes/demo`), why it cannot be used.
    """

    config: Config
    docs: dict[str, str]
    groups: dict[str, list[str]]
    lanes: dict[str, Stop]
    locks: tuple[str, ...]
    reproducible: tuple[str, ...]
    pinnable: tuple[str, ...]
    problems: dict[str, ConfigError]


def names_of(workspace: Workspace, goals: Goals) -> Names:
    """The names in a workspace that was read."""
    from sparkbuild.app.goals.prebuilt import registry_images  # noqa: PLC0415 - names that are remembered need none of it
    from sparkbuild.images.dockerfile import DockerfileSpec  # noqa: PLC0415 - as above

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
