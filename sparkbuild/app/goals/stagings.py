"""From the [[staging]] blocks of a recipe to the goals on its nodes: what is staged, what is exported of it. No I/O."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from sparkbuild.app.goals import builds
from sparkbuild.app.goals.chained import circle, maker
from sparkbuild.app.goals.folders import Folders
from sparkbuild.app.goals.pinnedurls import pinned_urls
from sparkbuild.core.errors import ConfigError
from sparkbuild.core.goal import Goal
from sparkbuild.staging.blocks import Archive, Place, Staged, source_of, staged
from sparkbuild.staging.exports import Export, exports
from sparkbuild.upstream.artifacts import ArtifactSpec, path_in_store
from sparkbuild.workspace.locks.artifact import url_filename
from sparkbuild.workspace.shapes.stagingschema import ComposedExport, FilesStaging, HubStaging, Staging
from sparkbuild.workspace.shapes.workspace import Recipe, Workspace


class Stagings:
    """Makes these goals. `add` keeps a goal; `artifact` makes that of an artifact: (node, lock, component, spec)."""

    def __init__(
        self,
        workspace: Workspace,
        add: Callable[[Goal], Goal],
        artifact: Callable[[str, str, str, ArtifactSpec], Goal],
    ) -> None:
        self._workspace, self._add, self._artifact = workspace, add, artifact
        self._claimed = Folders(workspace)
        self._pinned = pinned_urls(workspace.recipes)
        # by node, in the order of the recipes and their blocks; each with its folder
        self._made: dict[str, list[tuple[str, Goal]]] = {}

    def of(self, recipe: Recipe, nodes: tuple[str, ...]) -> tuple[list[dict[str, Staged]], list[dict[str, Export]]]:
        """The blocks and the exports of each node, by id, in rank order. Raises ConfigError."""
        blocks: list[dict[str, Staged]] = []
        found: list[dict[str, Export]] = []
        over = _laid_over(recipe.spec.staging)
        for rank, node in enumerate(nodes):
            place = Place(recipe.name, node, rank, len(nodes))
            here = [block for block in recipe.spec.staging if is_for(block, rank)]
            blocks.append({one.id: self._staged(recipe, one, place, linked=one.id in over) for one in here})
            found.append({})
            for block in here:
                if isinstance(block, HubStaging):
                    made = zip(block.exports, exports(block, place, blocks[-1]), strict=True)
                    found[-1] |= {one.id: self._exported(recipe, one, chosen=bool(spec.path)) for spec, one in made}
        return blocks, found

    def _staged(self, recipe: Recipe, block: Staging, place: Place, *, linked: bool) -> Staged:
        made = staged(block, place, self._archive(block, place.node), linked=linked)
        paths = [self._claimed.claim(recipe, block.id, goal, chosen=bool(block.dst)) for goal in made.goals]
        goals = tuple(self._add(self._after_its_source(goal)) for goal in made.goals)
        for path, goal in zip(paths, goals, strict=True):
            self._refuse_circle(recipe, block, path, goal)
        self._made.setdefault(place.node, []).extend(zip(paths, goals, strict=True))
        return Staged(made.path, goals)

    def _after_its_source(self, goal: Goal) -> Goal:
        """The goal; where a block before this one makes what it is staged from, that comes first."""
        found = maker(goal, self._made.get(goal.node, ()))
        return goal if found is None else msgspec.structs.replace(goal, needs=(*goal.needs, found))

    def _refuse_circle(self, recipe: Recipe, block: Staging, path: str, goal: Goal) -> None:
        """A block that is staged from what is made of it can never be."""
        way = circle(path, goal, self._made.get(goal.node, ()))
        if way:
            tasks = [one.task for one in way]
            raise ConfigError(
                "blocks are staged from each other in a circle" if len(way) > 1 else "a block is staged from itself",
                where=f"{recipe.dir}/recipe.toml",
                found=", ".join(f"{one.task} from {source_of(one.spec.what)}" for one in way),
                wanted=f"a `src` that is not made of {tasks[0]}"
                if len(way) > 1
                else "a `src` that is not its own `dst`",
                next=f"correct `src` of block `{block.id}`, or of another of them",
            )

    def _exported(self, recipe: Recipe, export: Export, *, chosen: bool) -> Export:
        self._claimed.claim(recipe, export.block, export.goal, chosen=chosen)
        goal = self._add(export.goal)
        if goal.target != export.goal.target:
            raise ConfigError(
                f"an export has the name of something else that the block stages: {goal.task}",
                where=f"{recipe.dir}/recipe.toml",
                found=f"export `{export.id}` of block `{export.block}`",
                next="give the export another id",
            )
        return msgspec.structs.replace(export, goal=goal)

    def _archive(self, block: Staging, node: str) -> Archive | None:
        """What is fetched before a block can be staged from it."""
        if not isinstance(block, FilesStaging) or block.src.startswith("/"):
            return None
        if block.src.startswith("artifact:"):
            lock, component = block.src.removeprefix("artifact:").split("/", 1)
            spec = builds.artifact_spec(self._workspace.locks[lock], component)
            name = spec.filename
        else:
            lock, component = "url", block.sha256[:12]
            spec = self._pinned[block.sha256]
            name = url_filename(block.src)
        return Archive(self._artifact(node, lock, component, spec), path_in_store(spec), spec.sha256, name)


def is_for(block: Staging, rank: int) -> bool:
    """Whether a rank has a block."""
    return not block.only_ranks or rank in block.only_ranks


def _laid_over(blocks: tuple[Staging, ...]) -> set[str]:
    """The blocks whose files get more names in composed folders."""
    composed = (one for block in blocks if isinstance(block, HubStaging) for one in block.exports)
    return {name for one in composed if isinstance(one, ComposedExport) for name in one.over}
