"""Which goal has which folder of a node: no two make different things in one folder, or one inside the other.

By the names of folders, in their absolute form; what links lead to, the agent sees (agent.owned).
"""

from __future__ import annotations

import os
from typing import NamedTuple

from sparkbuild.core.errors import ConfigError
from sparkbuild.core.goal import Goal
from sparkbuild.workspace.recipes.folders import in_store
from sparkbuild.workspace.shapes.workspace import Recipe, Workspace


class _Claim(NamedTuple):
    """Who has a folder. `chosen`: the recipe names it; else it is the one that each block and export has by default."""

    recipe: Recipe
    block: str
    goal: Goal
    chosen: bool


class Folders:
    """The folders of all staged data and exports, as they are claimed one after the other."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._claimed: dict[tuple[str, str], _Claim] = {}
        self._around: dict[tuple[str, str], _Claim] = {}  # each folder above a claimed one; one of those that are in it

    def claim(self, recipe: Recipe, block: str, goal: Goal, *, chosen: bool) -> str:
        """Note the folder of a goal; returns its absolute form. Raises ConfigError when another goal has it, or one
        that encloses it or is in it; the same data in the same folder is one.
        """
        node, mine = goal.node, _Claim(recipe, block, goal, chosen)
        path = in_store(str(self._workspace.root), self._workspace.config.nodes[node].store, goal.spec.dst)
        same = self._claimed.get((node, path))
        if same is not None:
            if same.goal.key != goal.key:
                raise _refused(mine, same, f"stage different data into one folder of {node}")
            return path
        other, above, new = self._around.get((node, path)), path, []
        # What is above a claimed folder is claimed by nobody, nor is anything above that: no need to go on.
        while other is None and above != "/" and (node, above := os.path.dirname(above)) not in self._around:
            other = self._claimed.get((node, above))
            new.append(above)
        if other is not None:
            raise _refused(mine, other, f"stage into folders of {node} that overlap")
        self._claimed[node, path] = mine
        self._around.update(((node, one), mine) for one in new)
        return path


def _refused(mine: _Claim, other: _Claim, what: str) -> ConfigError:
    """The error for two of which one must move: the one whose folder somebody has named, rather than the one that has
    what it has by default.
    """
    first, second = (other, mine) if other.chosen and not mine.chosen else (mine, other)
    exported = first.goal.uri.scheme == "export"
    name = first.goal.task.rpartition(":")[2] if exported else first.block
    dst, taken = first.goal.spec.dst, second.goal.spec.dst
    others = f", also of {second.goal.task}" if dst == taken else f", and {taken} of {second.goal.task}"
    key = "path" if exported else "dst"
    move = f"give {'export' if exported else 'block'} `{name}` of recipe {first.recipe.name} another {key}"
    return ConfigError(
        f"two blocks {what}",
        where=f"{first.recipe.dir}/recipe.toml",
        found=f"{dst} of {first.goal.task}{others}",
        wanted="a folder of its own for each",
        next=f"{move}, or none" if first.chosen else move,
    )
