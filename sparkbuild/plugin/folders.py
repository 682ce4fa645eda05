"""Which goal has which folder of a node: no two make different things in one folder, or one inside the other.

By the names of folders, in their absolute form; what links lead to, the agent sees (agent.owned).
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from sparkbuild.core.errors import ConfigError
from sparkbuild.core.goal import Goal
from sparkbuild.workspace.stagingfolders import in_store
from sparkbuild.workspace.workspace import Recipe, Workspace


class Folders:
    """The folders of all staged data and exports, as they are claimed one after the other."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._claimed: dict[tuple[str, str], Goal] = {}
        self._around: dict[tuple[str, str], Goal] = {}  # each folder above a claimed one; one of those that are in it

    def claim(self, recipe: Recipe, block: str, goal: Goal) -> None:
        """Note the folder of a goal. Raises ConfigError when another goal has it, or one that encloses it or is in it;
        the same data in the same folder is one.
        """
        node = goal.node
        path = in_store(str(self._workspace.root), self._workspace.config.nodes[node].store, goal.spec.dst)
        same = self._claimed.get((node, path))
        if same is not None:
            if same.key != goal.key:
                raise _refused(recipe, block, goal, same, f"stage different data into one folder of {node}")
            return
        above = list(_above(path))
        other = self._around.get((node, path))
        other = other or next((self._claimed[node, one] for one in above if (node, one) in self._claimed), None)
        if other is not None:
            raise _refused(recipe, block, goal, other, f"stage into folders of {node} that overlap")
        self._claimed[node, path] = goal
        for one in above:
            self._around.setdefault((node, one), goal)


def _above(path: str) -> Iterator[str]:
    while path != "/":
        path = os.path.dirname(path)
        yield path


def _refused(recipe: Recipe, block: str, goal: Goal, other: Goal, what: str) -> ConfigError:
    exported = goal.uri.scheme == "export"
    name = goal.task.rpartition(":")[2] if exported else block
    same = goal.spec.dst == other.spec.dst
    found = f", also of {other.task}" if same else f", and {other.spec.dst} of {other.task}"
    return ConfigError(
        f"two blocks {what}",
        where=f"{recipe.dir}/recipe.toml",
        found=f"{goal.spec.dst}{found}",
        wanted="a folder of its own for each",
        next=f"give {'export' if exported else 'block'} `{name}` another {'path' if exported else 'dst'}, or none",
    )
