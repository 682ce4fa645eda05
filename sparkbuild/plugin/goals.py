"""From the workspace to goals: every image, artifact, staged folder, lane and report, each with its key. No I/O."""

from __future__ import annotations

import os

import msgspec

from sparkbuild.core.errors import ConfigError
from sparkbuild.core.goal import Goal
from sparkbuild.images.venv import VenvSpec, folder_in_store, image_goal
from sparkbuild.nodes.artifacts import ArtifactSpec, artifact_goal, path_in_store
from sparkbuild.serving.lane import LaneSpec, lane_goal
from sparkbuild.staging.files import FilesSpec, files_goal
from sparkbuild.workspace.workspace import Image, Recipe, Workspace


class Goals(msgspec.Struct):
    """All goals of a workspace by task name, in the order in which they are listed."""

    by_task: dict[str, Goal]
    lanes: dict[str, Goal]
    problems: dict[str, ConfigError]

    def add(self, goal: Goal) -> Goal:
        """Keep a goal; the same goal asked for twice is one."""
        return self.by_task.setdefault(goal.task, goal)


def assemble(workspace: Workspace) -> Goals:
    """Make all goals. A recipe that cannot be served as written is a problem of its own and blocks no other."""
    goals = Goals({}, {}, dict(workspace.problems))
    nodes_of = {name: _nodes(workspace, recipe) for name, recipe in workspace.recipes.items()}
    image_nodes = _image_nodes(workspace, nodes_of)
    for name, image in workspace.images.items():
        for node in image_nodes[name]:
            goals.add(_image(image, node, several=len(image_nodes[name]) > 1))
    artifact_nodes = _artifact_nodes(workspace, nodes_of)
    for name, recipe in workspace.recipes.items():
        nodes = nodes_of[name]
        if len(nodes) != 1:
            goals.problems[f"recipes/{name}"] = ConfigError(
                f"recipe {name} is for a cluster of {len(nodes)} nodes; runtime `process` serves on one",
                where=f"recipes/{name}/recipe.toml",
                next="give it a cluster of one node",
            )
            continue
        _recipe(workspace, recipe, nodes[0], goals, artifact_nodes, image_nodes)
    return goals


def _nodes(workspace: Workspace, recipe: Recipe) -> tuple[str, ...]:
    return tuple(workspace.config.clusters[recipe.spec.cluster].nodes)


def _image_nodes(workspace: Workspace, nodes_of: dict[str, tuple[str, ...]]) -> dict[str, list[str]]:
    """Every image on every node that a recipe needs it on; an image nobody uses can still be built, on the first node."""
    found: dict[str, dict[str, None]] = {name: {} for name in workspace.images}
    for name, recipe in workspace.recipes.items():
        used = [recipe.spec.image] + ([recipe.spec.bench.image] if recipe.spec.bench else [])
        for image in used:
            found[image].update(dict.fromkeys(nodes_of[name]))
    first = next(iter(workspace.config.nodes))
    return {name: list(nodes) or [first] for name, nodes in found.items()}


def _artifact_nodes(workspace: Workspace, nodes_of: dict[str, tuple[str, ...]]) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for name, recipe in workspace.recipes.items():
        for block in recipe.spec.staging:
            found.setdefault(block.src, set()).update(nodes_of[name])
    return found


def _image(image: Image, node: str, *, several: bool) -> Goal:
    spec = VenvSpec(
        name=image.name,
        lock=image.spec.lock,
        requirements=os.path.join(image.dir, image.spec.requirements),
        files=tuple(os.path.join(image.dir, name) for name in image.spec.files),
        imports=tuple(image.spec.imports),
        python=image.spec.python,
    )
    return image_goal(node, spec, image.inputs, suffix=f":{node}" if several else "")


def _recipe(
    workspace: Workspace,
    recipe: Recipe,
    node: str,
    goals: Goals,
    artifact_nodes: dict[str, set[str]],
    image_nodes: dict[str, list[str]],
) -> None:
    def image_on(name: str) -> Goal:
        return goals.add(_image(workspace.images[name], node, several=len(image_nodes[name]) > 1))

    staged: dict[str, Goal] = {}
    for block in recipe.spec.staging:
        lock, component = block.src.removeprefix("artifact:").split("/", 1)
        artifact = workspace.locks[lock].artifact(component)
        spec = ArtifactSpec(artifact.filename, artifact.sha256, artifact.wheel, artifact.url)
        goal = artifact_goal(node, lock, component, spec)
        if len(artifact_nodes[block.src]) > 1:
            goal = msgspec.structs.replace(goal, task=f"{goal.task}:{node}")
        files = FilesSpec(
            dst=block.dst or os.path.join("staged", recipe.name, block.id),
            archive=path_in_store(spec),
            members=tuple(block.members),
            sha256=spec.sha256,
            min_free=block.min_free,
        )
        staged[block.id] = goals.add(
            files_goal(recipe=recipe.name, node=node, block_id=block.id, spec=files, artifact_goal=goals.add(goal))
        )
    image = image_on(recipe.spec.image)
    lane = goals.add(_lane(workspace, recipe, node, image, staged))
    goals.lanes[recipe.name] = lane
    if recipe.spec.bench is not None:
        from sparkbuild.bench.kind import bench_goal  # noqa: PLC0415 - a workspace without benches need not load it

        harness = image_on(recipe.spec.bench.image)
        used = (workspace.images[name].lock for name in (recipe.spec.image, recipe.spec.bench.image))
        locks = {lock.name: lock.sha256 for lock in used}
        goals.add(bench_goal(recipe.name, recipe.spec.cluster, recipe.spec.bench, lane, harness, locks=locks))


def _lane(workspace: Workspace, recipe: Recipe, node: str, image: Goal, staged: dict[str, Goal]) -> Goal:
    serve = recipe.spec.serve
    lock = workspace.images[recipe.spec.image].lock
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
        image=folder_in_store(image),
        staged={block: goal.spec.dst for block, goal in staged.items()},
        lock=f"{lock.name}@{lock.sha256}",
        gates=tuple(recipe.spec.gates),
    )
    return lane_goal(recipe.spec.cluster, (node,), spec, image, staged, recipe.inputs)
