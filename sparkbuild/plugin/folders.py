"""Which goal has which folder of a node: no two make different things in one folder, or one inside the other.

By the names of folders, in their absolute form; what links lead to, the agent sees (agent.owned).
"""

from __future__ import annotations

from sparkbuild.core.errors import ConfigError
from sparkbuild.core.goal import Goal
from sparkbuild.workspace.stagingfolders import in_store, is_in
from sparkbuild.workspace.workspace import Recipe, Workspace


class Folders:
    """The folders of all staged data and exports, as they are claimed one after the other."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._by_node: dict[str, dict[str, Goal]] = {}

    def claim(self, recipe: Recipe, block: str, goal: Goal) -> None:
        """Note the folder of a goal. Raises ConfigError when another goal has it, or one that encloses it or is in it;
        the same data in the same folder is one.
        """
        claimed = self._by_node.setdefault(goal.node, {})
        path = in_store(str(self._workspace.root), self._workspace.config.nodes[goal.node].store, goal.spec.dst)
        for taken, other in claimed.items():
            if taken == path:
                if other.key != goal.key:
                    raise _refused(recipe, block, goal, other, f"stage different data into one folder of {goal.node}")
            elif is_in(path, taken) or is_in(taken, path):
                raise _refused(recipe, block, goal, other, f"stage into folders of {goal.node} that overlap")
        claimed.setdefault(path, goal)


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
