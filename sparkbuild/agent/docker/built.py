"""Docker on a build node: what it makes images for, and whether it has one as it was built there."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from sparkbuild.agent.docker.engine import SOCKET, Dockerd, DockerdError, layers_of
from sparkbuild.agent.docker.images import architecture_of
from sparkbuild.agent.wire.lanelabels import KEY

if TYPE_CHECKING:
    from sparkbuild.agent.wire.images import BuildEngine, BuildResult


def built(engine: Dockerd, reference: str, key: str) -> BuildResult | None:
    """The layers and gates of an image that was built here, by its labels; None when docker does not have it so."""
    image = engine.image(reference)
    labels = ((image or {}).get("Config") or {}).get("Labels") or {}
    if image is None or labels.get(KEY) != key:
        return None
    layers = layers_of(image)
    try:
        gates = json.loads(labels["sparkbuild.gates"])
    except (KeyError, ValueError, RecursionError):
        return None
    listed = json.dumps(layers, sort_keys=True, separators=(",", ":"))
    return {"layers": layers, "gates": gates} if labels.get("sparkbuild.layers") == listed else None


def engine_of(socket: str) -> BuildEngine:
    """What this node's docker builds for, or why it cannot be asked."""
    try:
        return {"architecture": architecture_of(Dockerd(socket or SOCKET))}
    except DockerdError as error:
        return {"silent": error.problem, "next": error.fields["next"]}


def built_here(socket: str, reference: str, key: str) -> BuildResult | None:
    """As `built`; None also when docker cannot be asked."""
    try:
        return built(Dockerd(socket or SOCKET), reference, key)
    except DockerdError:
        return None
