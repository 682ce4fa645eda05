"""Where this workspace launched its lanes: a hint, so that a lane is found after its recipe or its nodes were changed.

One empty file for each, `.sparkbuild/lanes/<recipe>/<node>`: made before a launch, removed when the lane is stopped
there. To look costs one listing; two runs never write the same bytes, so nothing is locked.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from typing import TYPE_CHECKING

from sparkbuild.core import STATE
from sparkbuild.core.writable import writing

if TYPE_CHECKING:
    from sparkbuild.core.goal import Goal
    from sparkbuild.serving.ranks import Seen


def _folder(root: str, *names: str) -> str:
    return os.path.join(root, STATE, "lanes", *names)


def _listing(path: str) -> list[str]:
    try:
        return sorted(os.listdir(path))
    except OSError:
        return []


def noted(root: str) -> dict[str, tuple[str, ...]]:
    """Recipes that were launched and not stopped since, with the nodes, whatever became of either."""
    by_recipe = {recipe: nodes_of(root, recipe) for recipe in _listing(_folder(root))}
    return {recipe: nodes for recipe, nodes in by_recipe.items() if nodes}


def nodes_of(root: str, recipe: str) -> tuple[str, ...]:
    """The nodes on which a recipe was launched and not stopped since."""
    return tuple(_listing(_folder(root, recipe)))


def note(root: str, recipe: str, nodes: Iterable[str]) -> None:
    """A launch is about to begin there."""
    with writing(_folder(root, recipe)):
        os.makedirs(_folder(root, recipe), exist_ok=True)
        for node in nodes:
            with open(_folder(root, recipe, node), "ab"):
                pass


def forget(root: str, recipe: str, nodes: Iterable[str]) -> None:
    """It does not run there any more."""
    for node in nodes:
        with contextlib.suppress(OSError):
            os.unlink(_folder(root, recipe, node))
    with contextlib.suppress(OSError):  # another node is left in it
        os.rmdir(_folder(root, recipe))


def elsewhere(goal: Goal, seen: Iterable[Seen], root: str) -> tuple[str, ...]:
    """Nodes it was launched on and its goal does not have, by this workspace's notes and the records of what lives."""
    named = dict.fromkeys(nodes_of(root, goal.spec.recipe))
    for rank in seen:
        if rank.alive:
            named.update(dict.fromkeys(rank.launched_on))
    return tuple(node for node in named if node not in goal.nodes)
