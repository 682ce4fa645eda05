"""From an image.toml of kind `dockerfile` to what its goal is made of. No I/O."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from sparkbuild.core.goal import Goal, Input
from sparkbuild.images.docker import reference
from sparkbuild.images.dockerfile import Base, DockerfileSpec, Gate, Source
from sparkbuild.upstream.artifacts import ArtifactSpec
from sparkbuild.upstream.sources import SourceSpec, SubmoduleSpec, path_in_store
from sparkbuild.workspace.images.dockerfileimage import unpublished
from sparkbuild.workspace.images.imagefile import place_of
from sparkbuild.workspace.locks.sourcelock import SourceLock
from sparkbuild.workspace.shapes.schema import DockerfileImage
from sparkbuild.workspace.shapes.workspace import Image


def source_spec(lock: SourceLock, component: str) -> SourceSpec:
    """A git source of a lock as its goal wants it."""
    found = lock.source(component)
    return SourceSpec(
        lock=lock.name,
        component=component,
        repository=found.repository,
        ref=found.ref,
        commit=found.commit,
        tree=found.tree,
        time=found.time,
        submodules=tuple(SubmoduleSpec(one.path, one.repository, one.commit, one.tree) for one in found.submodules),
        patches=tuple(Input(patch.path, patch.sha256) for patch in found.patches),
        lfs=found.lfs,
    )


def spec_of(image: Image, settings: DockerfileImage, base: Goal | None, sources: Mapping[str, Goal]) -> DockerfileSpec:
    """What goes into the image. `base` is the goal of a base of the workspace, `sources` those of the components that
    can be had.
    """
    lock = image.lock
    missing = unpublished(lock, (*settings.sources, *settings.artifacts))
    artifacts = {name: artifact_spec(lock, name) for name in settings.artifacts if name not in missing}
    return DockerfileSpec(
        name=image.name,
        folder=image.dir,
        lock=f"{lock.name}@{lock.sha256}",
        base=_base(settings, lock, base),
        dockerfile=os.path.join(image.dir, settings.dockerfile),
        sources=tuple(
            Source(
                component=name,
                identity=_identity(goal),
                archive=path_in_store(goal),
                patches=tuple(os.path.join(image.dir, path) for path in settings.patches.get(name, ())),
            )
            for name, goal in sources.items()
        ),
        artifacts=artifacts,
        files=tuple("/".join(place_of(image.dir, file)) for file in settings.files),
        args=dict(settings.args),
        secrets=settings.secrets,
        network=settings.network,
        platform=settings.platform,
        epoch=lock.epoch,
        gates=tuple(Gate(gate.id, gate.command, gate.expect, gate.timeout, gate.env) for gate in settings.gates),
        unpublished=missing,
    )


def artifact_spec(lock: SourceLock, component: str) -> ArtifactSpec:
    """An artifact of a lock as its goal wants it."""
    found = lock.artifact(component)
    return ArtifactSpec(found.filename, found.sha256, found.wheel, found.url, lock.path)


def _base(settings: DockerfileImage, lock: SourceLock, base: Goal | None) -> Base | None:
    kind, _, name = settings.base.partition(":")
    if kind == "lock":
        return Base(name, lock.image(name).pinned)
    return Base(name, reference(name, base.key), base.key.digest) if base is not None else None


def _identity(source: Goal) -> Any:
    """What a source's content follows from, without what is not there."""
    parts = {name: value for name, value in source.key.parts.items() if value and name != "exporter"}
    return parts["tree"] if list(parts) == ["tree"] else parts
