"""Images of kind `dockerfile`: what goes into one, its key, and its goal: built and exported on its build node."""

from __future__ import annotations

import os
from typing import Any

import msgspec

from sparkbuild.core.goal import Goal, Input, Uri
from sparkbuild.core.key import Key
from sparkbuild.upstream.artifacts import ArtifactSpec

# Raise it when the agent makes something else of the same inputs: every image is then built anew.
BUILDER = 1
Arg = str | int | bool


class Base(msgspec.Struct, frozen=True):
    """What an image is built from: `reference` as docker knows it. `key` is that of an image of the workspace, "" for a
    pinned one, which may be pulled by its digest.
    """

    name: str
    reference: str
    key: str = ""


class Source(msgspec.Struct, frozen=True):
    """A git source: `identity` is what its content follows from, `archive` its tar in the store, `patches` files of the
    workspace.
    """

    component: str
    identity: Any
    archive: str
    patches: tuple[str, ...] = ()


class Gate(msgspec.Struct, frozen=True):
    """A command that must pass inside the image; see workspace.shapes.schema.ImageGate."""

    id: str
    command: tuple[str, ...]
    expect: str
    timeout: float
    env: dict[str, str]


class DockerfileSpec(msgspec.Struct, frozen=True):
    """What goes into the image. Paths are relative to the workspace; `lock` is `name@sha256`; `epoch` unix seconds;
    `args` are not secret. `unpublished` says of components why they cannot be had: {component: why}.
    """

    name: str
    folder: str
    lock: str
    base: Base | None
    dockerfile: str
    sources: tuple[Source, ...]
    artifacts: dict[str, ArtifactSpec]
    files: tuple[str, ...]
    args: dict[str, Arg]
    secrets: tuple[str, ...]
    network: bool
    platform: str
    epoch: int
    gates: tuple[Gate, ...]
    unpublished: dict[str, str] = {}

    @property
    def architecture(self) -> str:
        """As docker names it: amd64, arm64."""
        return self.platform.partition("/")[2]


def key_of(spec: DockerfileSpec, inputs: tuple[Input, ...]) -> Key:
    """The key of an image. The rendered Dockerfile follows from the template and the other parts, so it need not be
    rendered for that; the base counts by its key, a source by its tree. Whatever rendering.values_of lets a template
    see is in a part, or is sorted away there: canonical JSON has no order of names.
    """
    hashes = {item.path: item.sha256 for item in inputs}
    parts: dict[str, object] = {"kind": "dockerfile", "platform": spec.platform, "builder": BUILDER}
    parts["base"] = "scratch" if spec.base is None else spec.base.key or spec.base.reference
    if spec.base is not None and spec.base.key:
        parts["name of base"] = spec.base.name
    parts["dockerfile"] = hashes[spec.dockerfile]
    for source in spec.sources:
        parts[f"source {source.component}"] = source.identity
        if source.patches:
            parts[f"patches {source.component}"] = [hashes[path] for path in source.patches]
    for component, artifact in spec.artifacts.items():
        parts[f"artifact {component}"] = artifact.sha256
        parts[f"name of artifact {component}"] = artifact.filename  # `COPY artifacts/* /opt/` copies it
    for component, why in spec.unpublished.items():
        parts[f"unpublished {component}"] = why
    for path in spec.files:
        parts[f"file {os.path.basename(path)}"] = hashes[path]
    parts |= {"args": dict(spec.args), "secrets": sorted(spec.secrets), "network": spec.network, "epoch": spec.epoch}
    # lists, not tuples: parts are compared with those that were read back from JSON
    parts["gates"] = [{**msgspec.to_builtins(gate), "command": list(gate.command)} for gate in spec.gates]
    return Key(parts)


def built_goal(node: str, spec: DockerfileSpec, inputs: tuple[Input, ...], needs: tuple[Goal, ...]) -> Goal:
    """The goal of having the image built and exported on its build node. `needs` bring its sources and artifacts to the
    machine that makes the context, and a base of the workspace into the build node's docker.
    """
    return Goal(
        task=f"image:{spec.name}",
        uri=Uri("archive", node, spec.name),
        key=key_of(spec, inputs),
        doc=f"docker image {spec.name}, built on {node} from locks/{spec.lock.partition('@')[0]}.source.lock",
        spec=spec,
        needs=needs,
        inputs=inputs,
        pools=("build",) if node == "local" else ("build", node),
        transient=True,
    )


def missing(spec: DockerfileSpec) -> str:
    """Why it cannot be built at all: what it needs and nobody published; "" when all can be had."""
    lock = f"locks/{spec.lock.partition('@')[0]}.source.lock"
    told = [f"{component}: {why}" for component, why in spec.unpublished.items()]
    return f"{lock} cannot pin what is not public: {'; '.join(told)}" if told else ""
