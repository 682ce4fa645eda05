"""Lanes: a recipe running on a cluster. The goal, and the parts of its key."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from sparkbuild.core.goal import Goal, Input, Uri
from sparkbuild.core.key import Key
from sparkbuild.workspace.shapes.schema import Docker, Mount

# What can change without starting the engine again: these parts are only checked against the running lane.
CHECKED_PARTS = frozenset({"gates"})
_ARGUMENTS = ("gates", "model", "args", "head_args", "worker_args", "network", "mounts")


class LaneSpec(msgspec.Struct, frozen=True):
    """How one recipe is served. The texts of `command`, `model`, `args`, `head_args`, `worker_args`, `env` and `mounts`
    are templates; `staged` maps block ids to folders on the node (relative to its store unless absolute); `image` is
    the image's folder in the store for a process, its reference for docker, where `image_paths` are its `python` and
    `files` inside the container and `image_entrypoint` is what it was assembled with. `min_memory` in bytes, times in
    seconds. `staged_ranks` names the ranks of a block that not all have. `exports` by id: {"path": folder on the node,
    as in `staged`, "target": where a container sees it, "block": whose ranks have it}. `cluster` is its name,
    `fabric` the network it is to talk over, "" for the one its nodes share.
    """

    recipe: str
    folder: str
    command: tuple[str, ...]
    env: dict[str, str]
    secrets: tuple[str, ...]
    port: int
    model_id: str
    ready_timeout: float
    stop_grace: float
    protect: bool
    image: str
    staged: dict[str, str]
    lock: str
    gates: tuple[Any, ...]
    runtime: str = "process"
    model: str = ""
    args: tuple[str, ...] = ()
    head_args: tuple[str, ...] = ()
    worker_args: tuple[str, ...] = ()
    network: str = "auto"
    min_memory: int = 0
    wait: bool = True
    mounts: tuple[Mount, ...] = ()
    docker: Docker = Docker()
    image_paths: dict[str, str] = {}
    image_entrypoint: tuple[str, ...] = ()
    cluster: str = "local"
    fabric: str = ""
    staged_ranks: dict[str, tuple[int, ...]] = {}
    exports: dict[str, dict[str, str]] = {}


def lane_goal(
    cluster: str,
    nodes: tuple[str, ...],
    spec: LaneSpec,
    *,
    images: Sequence[Goal],
    staged: Sequence[Mapping[str, tuple[Goal, ...]]],
    inputs: tuple[Input, ...],
    exports: Sequence[Mapping[str, Goal]] = (),
) -> Goal:
    """The goal of the recipe being served by the cluster. `images`, `staged` and `exports` are those of each node, in
    rank order. Images are the same everywhere; a block or export is what the first rank that has it makes, and follows
    from that on others.
    """
    blocks: dict[str, tuple[Goal, ...]] = {}
    for of_node in staged:
        blocks = {**of_node, **blocks}
    parts: dict[str, object] = {
        "runtime": spec.runtime,
        "image": images[0].key.short,
        "staged": {name: "+".join(goal.key.short for goal in goals) for name, goals in blocks.items()},
        **_plain({name: getattr(spec, name) for name in ("command", "env", "secrets", "port", "model_id")}),
        "files": {item.path.removeprefix(f"{spec.folder}/"): item.sha256 for item in inputs},
        **_plain({name: getattr(spec, name) for name in _ARGUMENTS}),
        "nodes": list(nodes),
    }
    if spec.runtime == "docker":
        parts["docker"] = {name: value for name, value in _plain(spec.docker).items() if name != "keep"}
    if len(nodes) > 1:
        parts["fabric"] = spec.fabric
    if any(exports):
        parts["exports"] = {name: goal.key.short for of_node in reversed(exports) for name, goal in of_node.items()}
    needs = [*images, *(goal for of_node in staged for goals in of_node.values() for goal in goals)]
    needs += [goal for of_node in exports for goal in of_node.values()]
    return Goal(
        task=f"serve:{spec.recipe}",
        uri=Uri("lane", cluster, spec.recipe),
        key=Key(parts),
        doc=f"serve {spec.model_id} on {cluster}, port {spec.port}",
        spec=spec,
        needs=tuple({goal.target: goal for goal in needs}.values()),
        inputs=inputs,
        pools=nodes,
        hosts=nodes,
    )


def _plain(value: Any) -> Any:
    """A setting as it will be read back from a record: lists, no tuples."""
    return msgspec.json.decode(msgspec.json.encode(value))


def launch_parts(parts: Mapping[str, object]) -> Mapping[str, object]:
    """The parts that decide what runs."""
    return {name: value for name, value in parts.items() if name not in CHECKED_PARTS}


def files_folder(inputs: Sequence[Input]) -> str:
    """The name of the folder of the recipe's files on a node: other content is another folder."""
    text = "".join(f"{item.sha256} {item.path}\n" for item in sorted(inputs, key=lambda item: item.path))
    return f"files-{hashlib.sha256(text.encode()).hexdigest()[:12]}"
