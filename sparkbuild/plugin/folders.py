"""Which goal has which folder of a node: no two make different things in one folder, or one inside the other.

By the names of folders, in their absolute form; what links lead to, the agent sees (agent.owned).
"""

from __future__ import annotations

import os

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

    def claim(self, recipe: Recipe, block: str, goal: Goal) -> str:
        """Note the folder of a goal; returns its absolute form. Raises ConfigError when another goal has it, or one
        that encloses it or is in it; the same data in the same folder is one.
        """
        node = goal.node
        path = in_store(str(self._workspace.root), self._workspace.config.nodes[node].store, goal.spec.dst)
        same = self._claimed.get((node, path))
        if same is not None:
            if same.key != goal.key:
                raise _refused(recipe, block, goal, same, f"stage different data into one folder of {node}")
            return path
        other, above, new = self._around.get((node, path)), path, []
        # What is above a claimed folder is claimed by nobody, nor is anything above that: no need to go on.
        while other is None and above != "/" and (node, above := os.path.dirname(above)) not in self._around:
            other = self._claimed.get((node, above))
            new.append(above)
        if other is not None:
            raise _refused(recipe, block, goal, other, f"stage into folders of {node} that overlap")
        self._claimed[node, path] = goal
        self._around.update(((node, one), goal) for one in new)
        return path


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
