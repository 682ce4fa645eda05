"""A workspace as it was read: the config, and the images, recipes and locks that are in order."""

from __future__ import annotations

from pathlib import Path

import msgspec

from sparkbuild.core.errors import ConfigError
from sparkbuild.core.goal import Input
from sparkbuild.workspace.locks.sourcelock import SourceLock
from sparkbuild.workspace.shapes.schema import Config, ImageFile, RecipeFile


class Image(msgspec.Struct, frozen=True):
    """An image. `dir` is relative to the workspace; `inputs` are its requirements and `files`, its
    Dockerfile and patches, hashed.

    Its lock was compared with the files it pins, and pins the requirements.
    """

    name: str
    dir: str
    spec: ImageFile
    lock: SourceLock
    inputs: tuple[Input, ...]


class Recipe(msgspec.Struct, frozen=True):
    """A recipe. `dir` is relative to the workspace; `inputs` are its `files`, hashed.

    Its cluster, images and staging sources exist in the workspace it came with.
    """

    name: str
    dir: str
    spec: RecipeFile
    inputs: tuple[Input, ...]


class Workspace(msgspec.Struct, frozen=True, eq=False):
    """What is in order, and in `problems` what is not, under `recipes/<name>`, `images/<name>` or `locks/<name>`."""

    root: Path
    config: Config
    images: dict[str, Image]
    recipes: dict[str, Recipe]
    locks: dict[str, SourceLock]
    problems: dict[str, ConfigError]

    def nodes_of(self, recipe: Recipe) -> tuple[str, ...]:
        """The nodes a recipe runs on; the position is the rank."""
        return self.config.clusters[recipe.spec.cluster].nodes
