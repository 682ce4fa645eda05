"""From a recipe's `image = "name:tag@sha256:..."` to the goals of having it on the recipe's nodes. No I/O."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from sparkbuild.core.goal import Goal
from sparkbuild.images.docker import reference
from sparkbuild.images.prebuilt import PrebuiltSpec, prebuilt_goal
from sparkbuild.nodes.cluster import LOCAL
from sparkbuild.workspace.locks.reference import Reference, is_reference, parse
from sparkbuild.workspace.shapes.workspace import Workspace


def prebuilt_goals(workspace: Workspace, text: str, nodes: Iterable[str]) -> list[Goal]:
    """The goal on each of the nodes, in their order."""
    image = _meant(parse(text))
    same = [name for name, one in registry_images(workspace).items() if _meant(one) == image]
    recipes = [workspace.recipes[name] for name in same]
    everywhere = tuple(dict.fromkeys(node for recipe in recipes for node in workspace.nodes_of(recipe)))
    spec = PrebuiltSpec(_name(image), image, everywhere, workspace.config.images.pull == "each", tuple(same))
    return [prebuilt_goal(node, spec) for node in nodes]


def prebuilt_references(workspace: Workspace) -> list[str]:
    """The names that images of a registry have on nodes, of all that recipes run in now."""
    specs = [PrebuiltSpec(_name(image), image, ()) for image in map(_meant, registry_images(workspace).values())]
    return sorted({reference(spec.name, prebuilt_goal(LOCAL, spec).key) for spec in specs})


def registry_images(workspace: Workspace) -> dict[str, Reference]:
    """The images of a registry that recipes run in, as they are written, by recipe."""
    recipes = workspace.recipes.items()
    return {name: parse(recipe.spec.image) for name, recipe in recipes if is_reference(recipe.spec.image)}


def _meant(image: Reference) -> Reference:
    """Two recipes that came by an image by different tags mean the same one."""
    return msgspec.structs.replace(image, tag="") if image.digest else image


def _name(image: Reference) -> str:
    """Two images of one name are two tasks."""
    mark = image.digest.partition(":")[2][:8] or (image.tag or "latest").lower()
    return f"{image.name}-{mark}"
