"""What was read: the workspace, its goals, and the names that stand for them. No node is asked for any of it."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from sparkbuild.app import remembered
from sparkbuild.core.errors import ConfigError, SparkbuildError

if TYPE_CHECKING:
    from sparkbuild.app.goals.goals import Goals
    from sparkbuild.app.names import Names
    from sparkbuild.workspace.shapes.workspace import Workspace


# Basename of tasks -> the folder whose parts they are named after, and those which decide what else there is of them.
_MADE_FROM: dict[str, tuple[str, tuple[str, ...]]] = {
    "artifact": ("locks", ("recipes", "images")),
    "bench": ("recipes", ()),
    "image": ("images", ("recipes",)),
    "prune": ("", ("recipes", "images")),
    "serve": ("recipes", ()),
    "source": ("locks", ("images",)),
    "stage": ("recipes", ()),
    "sync": ("images", ("recipes",)),
}

_NAMED_AFTER = {"lock": "locks", "repro": "images"}  # tasks that are no goals


class Catalog:
    """A workspace as it was read once. Raises ConfigError when there is none to read.

    `names` are there at once; the goals behind them are put together when they are asked for.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self._memory = remembered.recall(root)
        self.names: Names = self._contents[2] if self._memory is None else self._memory.names

    @cached_property
    def _contents(self) -> tuple[Workspace, Goals, Names]:
        if self._memory and (contents := self._memory.contents()):
            return contents[0], contents[1], contents[2]
        from sparkbuild.app.reading import read  # noqa: PLC0415 - 30 ms, and what is remembered needs none of it

        return read(self.root)

    @property
    def workspace(self) -> Workspace:
        """What the user wrote."""
        return self._contents[0]

    @property
    def goals(self) -> Goals:
        """What can be made of it."""
        return self._contents[1]

    def relative(self, path: Path) -> str:
        """A path as it is shown and stored: relative to the workspace."""
        try:
            return str(path.relative_to(self.root))
        except ValueError:
            return str(path)

    def problem_for(self, task: str) -> SparkbuildError | None:
        """The configuration error that keeps a task of this name from existing, if there is one."""
        basename, *rest = task.split(":")
        folder = _NAMED_AFTER.get(basename) or _MADE_FROM.get(basename, ("recipes", ()))[0]
        name = "".join(rest[1:2] if basename == "lock" else rest[:1])  # lock:verify:NAME
        return self.names.problems.get(f"{folder}/{name}")

    def lacking(self, names: Iterable[str]) -> dict[str, ConfigError]:
        """The broken parts of the workspace for want of which the groups and patterns among the names may lack goals,
        as `problems`.
        """
        groups = [name for name in names if name not in self.names.docs or name.startswith("prune:")]
        wanted = [name for name in groups if "://" not in name]
        return {
            part: error
            for part, error in self.names.problems.items()
            if any(_may_lack(name, *part.partition("/")[::2]) for name in wanted)
        }


def _may_lack(name: str, folder: str, broken: str) -> bool:
    """Whether a group or pattern would have goals of a broken recipe, image or lock, or may for all one can read."""
    literal, star, _ = name.partition("*")
    wanted = literal if star else f"{literal}:"
    for basename, (by_name, by_any) in _MADE_FROM.items():
        if folder == by_name:
            goals = f"{basename}:{broken}:"
        elif folder in by_any:
            goals = f"{basename}:"
        else:
            continue
        if goals.startswith(wanted) or wanted.startswith(goals):
            return True
    return False
