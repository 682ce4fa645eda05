"""From a recipe's `image = "name@sha256:..."` to the goals of having it on the recipe's nodes. No I/O."""

from __future__ import annotations

from collections.abc import Iterable

from sparkbuild.core.goal import Goal
from sparkbuild.images.prebuilt import PrebuiltSpec, prebuilt_goal
from sparkbuild.workspace.reference import Reference, is_reference, parse
from sparkbuild.workspace.workspace import Workspace


def prebuilt_goals(workspace: Workspace, text: str, nodes: Iterable[str]) -> list[Goal]:
    """The goal on each of the nodes, in their order."""
    image = parse(text)
    users = (recipe for recipe in workspace.recipes.values() if is_reference(recipe.spec.image))
    same = [recipe for recipe in users if parse(recipe.spec.image) == image]
    everywhere = tuple(dict.fromkeys(node for recipe in same for node in workspace.nodes_of(recipe)))
    places = tuple(f"{recipe.dir}/recipe.toml" for recipe in same)
    spec = PrebuiltSpec(_name(image), image, everywhere, workspace.config.images.pull == "each", places)
    return [prebuilt_goal(node, spec) for node in nodes]


def _name(image: Reference) -> str:
    """Two images of one name are two tasks."""
    mark = image.digest.partition(":")[2][:8] or (image.tag or "latest").lower()
    return f"{image.name}-{mark}"
