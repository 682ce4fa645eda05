"""What can be named in a workspace, with the line that `doit list` has for it: plain data, without the goals behind."""

from __future__ import annotations

from typing import NamedTuple

from sparkbuild.core.errors import ConfigError
from sparkbuild.workspace.shapes.schema import Config

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
