"""From the workspace to goals: every image, artifact, staged folder, lane and report, each with its key. No I/O."""

from __future__ import annotations

import os
from typing import Any

import msgspec

from sparkbuild.app.goals import builds
from sparkbuild.app.goals.goals import Goals
from sparkbuild.app.goals.pinnedurls import is_url
from sparkbuild.app.goals.prebuilt import prebuilt_goals, prebuilt_references
from sparkbuild.app.goals.stagings import Stagings, is_for
from sparkbuild.bench.goal import bench_goal
from sparkbuild.core.errors import ConfigError, LockError
from sparkbuild.core.goal import Goal
from sparkbuild.images.docker import FILES, DockerSpec, archive_goal, python_in, reference, sync_goal
from sparkbuild.images.dockerfile import built_goal
from sparkbuild.images.prune import BUILT, SERVED, UNUSED, PruneSpec, prune_goal
from sparkbuild.images.venv import VenvSpec, folder_in_store, image_goal
from sparkbuild.serving.lane import LaneSpec, lane_goal
from sparkbuild.staging.blocks import Staged
from sparkbuild.staging.exports import Export
from sparkbuild.upstream.artifacts import ArtifactSpec, artifact_goal
from sparkbuild.upstream.sources import source_goal
from sparkbuild.workspace.images.bases import base_of
from sparkbuild.workspace.images.dockerfileimage import unpublished
from sparkbuild.workspace.images.imagefile import place_of
from sparkbuild.workspace.load import LOCAL
from sparkbuild.workspace.locks.reference import is_reference
from sparkbuild.workspace.locks.sourcelock import SourceLock
from sparkbuild.workspace.shapes.schema import DockerfileImage, DockerImage, VenvImage
from sparkbuild.workspace.shapes.stagingschema import FilesStaging
from sparkbuild.workspace.shapes.workspace import Image, Recipe, Workspace


def assemble(workspace: Workspace) -> Goals:
    """Make all goals. A recipe that cannot be served as written is a problem of its own and blocks no other."""
    goals = Goals({}, {}, dict(workspace.problems))
    builder = _Builder(workspace, goals)
    for name, image in workspace.images.items():
        if not isinstance(image.spec, VenvImage):
            builder.archive(image)  # though no node may need it
        for node in builder.image_nodes[name]:
            builder.image(name, node)
    for lock in workspace.locks.values():
        for component in lock.sources():
            try:
                builder.source(lock, component)
            except LockError as error:
                goals.problems.setdefault(f"locks/{lock.name}", error)
    for name, recipe in workspace.recipes.items():
        try:
            builder.recipe(recipe, workspace.nodes_of(recipe))
        except ConfigError as error:
            goals.problems[f"recipes/{name}"] = error
    builder.prunes()
    return goals


class _Builder:
    """Makes goals; knows on which nodes each image and artifact is wanted, since names carry the node only then."""

    def __init__(self, workspace: Workspace, goals: Goals) -> None:
        self.workspace = workspace
        self.goals = goals
        self.image_nodes = _image_nodes(workspace)
        self.artifact_nodes = _artifact_nodes(workspace)
        self.stagings = Stagings(workspace, goals.add, self._artifact)

    def image(self, name: str, node: str) -> Goal:
        """An image on a node: built there, or, for a docker image, brought there."""
        image = self.workspace.images[name]
        if not isinstance(image.spec, VenvImage):
            return self.goals.add(sync_goal(node, self.archive(image)))
        spec = VenvSpec(
            name=image.name,
            lock=image.spec.lock,
            requirements=os.path.join(image.dir, image.spec.requirements),
            files=_places(image, image.spec.files),
            imports=tuple(image.spec.imports),
            python=image.spec.python,
        )
        suffix = f":{node}" if len(self.image_nodes[name]) > 1 else ""
        return self.goals.add(image_goal(node, spec, image.inputs, suffix=suffix))

    def archive(self, image: Image) -> Goal:
        """A docker image in a store: assembled on this machine, or built on its build node."""
        made = self.goals.by_task.get(f"image:{image.name}")
        if made is not None:
            return made
        if isinstance(image.spec, DockerfileImage):
            return self._built(image, image.spec)
        if isinstance(image.spec, DockerImage):
            return self._assembled(image, image.spec)
        raise TypeError(f"{image.name} is no docker image")

    def _assembled(self, image: Image, settings: DockerImage) -> Goal:
        specs = tuple(builds.artifact_spec(image.lock, component) for component in settings.debs)
        spec = DockerSpec(
            name=image.name,
            lock=f"{image.lock.name}@{image.lock.sha256}",
            debs=specs,
            requirements=os.path.join(image.dir, settings.requirements) if settings.requirements else "",
            python=settings.python,
            files=_places(image, settings.files),
            env=settings.env,
            entrypoint=settings.entrypoint,
            command=settings.command,
            platform=settings.platform,
        )
        fetched = tuple(
            self._artifact(LOCAL, image.lock.name, component, artifact)
            for component, artifact in zip(settings.debs, specs, strict=True)
        )
        return self.goals.add(archive_goal(LOCAL, spec, image.inputs, fetched))

    def _built(self, image: Image, settings: DockerfileImage) -> Goal:
        """Its sources and artifacts come to this machine, its base into the docker of the build node."""
        missing = unpublished(image.lock, settings.sources)
        sources = {name: self.source(image.lock, name) for name in settings.sources if name not in missing}
        base = base_of(image)
        under = self.archive(self.workspace.images[base]) if base else None
        spec = builds.spec_of(image, settings, under, sources)
        needs = [*sources.values()]
        needs += [self._artifact(LOCAL, image.lock.name, name, one) for name, one in spec.artifacts.items()]
        if under is not None:
            there = self.image(base, settings.build_node)
            if settings.build_node not in self.image_nodes[base]:  # nobody but this build wants it there
                there = self.goals.by_task[there.task] = msgspec.structs.replace(there, transient=True)
            needs.append(there)
        return self.goals.add(built_goal(settings.build_node, spec, image.inputs, tuple(needs)))

    def prunes(self) -> None:
        """On every node, the removal of older images. Where docker is nowhere in use, only when it is asked for."""
        workspace = self.workspace
        images = [image for image in workspace.images.values() if not isinstance(image.spec, VenvImage)]
        wanted = tuple(reference(image.name, self.archive(image).key) for image in images)
        wanted += tuple(prebuilt_references(workspace))
        # what a recipe that cannot be read runs in, nobody can say
        prebuilt = not any(name.startswith("recipes/") for name in self.goals.problems)
        broken = [name.partition("/")[2] for name in self.goals.problems if name.startswith("images/")]
        served = {
            node
            for recipe in workspace.recipes.values()
            if recipe.spec.serve.runtime == "docker"
            for node in workspace.nodes_of(recipe)
        }
        built_on = {image.spec.build_node for image in images if isinstance(image.spec, DockerfileImage)}
        for node in workspace.config.nodes:
            use = SERVED if node in served else BUILT if node in built_on else UNUSED
            keep = workspace.config.images.keep
            spec = PruneSpec(keep, wanted, tuple(broken), use, prebuilt=prebuilt, builds=node in built_on)
            self.goals.add(prune_goal(node, spec, asked_for=not (images or served)))

    def source(self, lock: SourceLock, component: str) -> Goal:
        """A git source on this machine. Raises LockError when the lock does not pin all of it."""
        return self.goals.add(source_goal(LOCAL, builds.source_spec(lock, component)))

    def _artifact(self, node: str, lock: str, component: str, spec: ArtifactSpec) -> Goal:
        suffix = f":{node}" if len(self.artifact_nodes[f"artifact:{lock}/{component}"]) > 1 else ""
        offline = self.workspace.config.nodes[node].offline
        source = self._artifact(LOCAL, lock, component, spec) if offline else None
        return self.goals.add(artifact_goal(node, lock, component, spec, suffix=suffix, source=source))

    def recipe(self, recipe: Recipe, nodes: tuple[str, ...]) -> None:
        """All goals of a recipe: what it stages on each node, its lane, its report."""
        blocks, exports = self.stagings.of(recipe, nodes)
        if is_reference(recipe.spec.image):
            images = [self.goals.add(goal) for goal in prebuilt_goals(self.workspace, recipe.spec.image, nodes)]
        else:
            images = [self.image(recipe.spec.image, node) for node in nodes]
        lane = self.goals.add(self._lane(recipe, nodes, images, (blocks, exports)))
        self.goals.lanes[recipe.name] = lane
        bench = recipe.spec.bench
        if bench is not None:
            used = (self.workspace.images.get(name) for name in (recipe.spec.image, bench.image))
            locks = {image.lock.name: image.lock.sha256 for image in used if image is not None}
            harness = self.image(bench.image, LOCAL)
            self.goals.add(bench_goal(recipe.name, recipe.spec.cluster, bench, lane, harness, locks=locks))

    def _lane(
        self,
        recipe: Recipe,
        nodes: tuple[str, ...],
        images: list[Goal],
        made: tuple[list[dict[str, Staged]], list[dict[str, Export]]],
    ) -> Goal:
        blocks, exports = made
        serve = recipe.spec.serve
        image = self.workspace.images.get(recipe.spec.image)
        cluster = recipe.spec.cluster
        in_docker = serve.runtime == "docker"
        spec = LaneSpec(
            recipe=recipe.name,
            folder=recipe.dir,
            command=tuple(serve.command),
            env=serve.env,
            secrets=tuple(serve.secrets),
            port=serve.port,
            model_id=recipe.spec.model_id,
            ready_timeout=serve.ready_timeout,
            stop_grace=serve.stop_grace,
            protect=recipe.spec.protect,
            image_paths=_paths_in(images[0].spec),
            image_entrypoint=tuple(getattr(images[0].spec, "entrypoint", ())),
            image=reference(images[0].spec.name, images[0].key) if in_docker else folder_in_store(images[0]),
            staged={name: one.path for of_node in blocks for name, one in of_node.items()},
            exports={
                name: {"path": one.path, "target": one.target, "block": one.block}
                for of_node in exports
                for name, one in of_node.items()
            },
            staged_ranks={block.id: block.only_ranks for block in recipe.spec.staging if block.only_ranks},
            lock=f"{image.lock.name}@{image.lock.sha256}" if image else recipe.spec.image,
            gates=tuple(recipe.spec.gates),
            runtime=serve.runtime,
            model=serve.model,
            args=serve.args,
            head_args=serve.head_args,
            worker_args=serve.worker_args,
            network=serve.network,
            min_memory=serve.min_memory,
            wait=serve.wait,
            mounts=serve.mounts,
            docker=serve.docker,
            cluster=cluster,
            fabric=self.workspace.config.clusters[cluster].fabric,
        )
        goals = [{name: one.goals for name, one in of_node.items()} for of_node in blocks]
        exported = [{name: one.goal for name, one in of_node.items()} for of_node in exports]
        return lane_goal(cluster, nodes, spec, images=images, staged=goals, inputs=recipe.inputs, exports=exported)


def _image_nodes(workspace: Workspace) -> dict[str, list[str]]:
    """Every image on every node that a recipe needs it on; one that nobody uses can still be built, on the first. A
    docker image that nobody uses is on no node: it is assembled on this machine.
    """
    found: dict[str, dict[str, None]] = {name: {} for name in workspace.images}
    for recipe in workspace.recipes.values():
        if recipe.spec.image in found:
            found[recipe.spec.image].update(dict.fromkeys(workspace.nodes_of(recipe)))
        if recipe.spec.bench:
            found[recipe.spec.bench.image][LOCAL] = None  # a harness runs on this machine and asks the lane from here
    first = next(iter(workspace.config.nodes))
    for name, unused in workspace.images.items():
        if not found[name] and isinstance(unused.spec, VenvImage):
            found[name][first] = None
    return {name: list(nodes) for name, nodes in found.items()}


def _artifact_nodes(workspace: Workspace) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for recipe in workspace.recipes.values():
        for block in recipe.spec.staging:
            nodes = workspace.nodes_of(recipe)
            # what a node without internet needs is fetched by this machine
            offline = any(workspace.config.nodes[node].offline for node in nodes)
            if isinstance(block, FilesStaging) and not block.src.startswith("/"):
                name = f"artifact:url/{block.sha256[:12]}" if is_url(block) else block.src
                wanted = (node for rank, node in enumerate(nodes) if is_for(block, rank))
                found.setdefault(name, set()).update(wanted, {LOCAL} if offline else ())
    for image in workspace.images.values():
        components = {DockerImage: "debs", DockerfileImage: "artifacts"}.get(type(image.spec), "")
        for component in getattr(image.spec, components, ()) if components else ():
            found.setdefault(f"artifact:{image.lock.name}/{component}", set()).add(LOCAL)
    return found


def _paths_in(spec: Any) -> dict[str, str]:
    """What a recipe may name as {{ image... }} in a docker image; of one that a Dockerfile makes, nothing is known."""
    return {"python": python_in(spec), "files": FILES} if isinstance(spec, DockerSpec) else {}


def _places(image: Image, files: tuple[str, ...]) -> tuple[str, ...]:
    """The `files` of an image, relative to the workspace."""
    return tuple("/".join(place_of(image.dir, file)) for file in files)
