"""Images in this node's docker: is the one of that name the one that was made, by its labels and by its layers."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, TypedDict

from sparkbuild.agent.docker.engine import SOCKET, Dockerd, DockerdError, layers_of
from sparkbuild.agent.wire.lanelabels import KEY

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sparkbuild.agent.docker.answers import Image, Info
    from sparkbuild.agent.wire.dockerimages import (
        EngineRoom,
        ImageAbsent,
        ImageFact,
        OwnImageQuery,
        PrebuiltQuery,
    )  # fmt: skip
    from sparkbuild.agent.wire.receipts import Parts

_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}  # as the engine names its own -> as images name theirs


class Wanted(TypedDict):
    """An image of ours; with a key of "" its layers are all that counts. `layers` [] are not known."""

    reference: str
    key: str
    architecture: str
    layers: list[str]


def observe(query: OwnImageQuery | PrebuiltQuery) -> ImageFact | ImageAbsent:
    """Whether docker has an image, and if not, what it lacks of it."""
    engine = Dockerd(query["docker"] or SOCKET)
    try:
        image = engine.image(query["reference"])
        pinned = None
        if "pinned" in query:
            pinned = engine.image(query["pinned"]) if query["pinned"] else None
            why = _unproven(image, query["reference"], query["layers"], query["pinned"])
        else:
            why = problem(image, query)
        room = _engine(engine, query["store"])
        if image is None or why:
            lacking = missing(engine, query["layers"]) if query["layers"] else None
            absent: ImageAbsent = {
                "present": False,
                "problem": why,
                "missing": lacking,
                "architecture": str((pinned or {}).get("Architecture", "")),
                "arrived": _arrived(query, set(lacking or ())),
                "pinned": pinned is not None,
                "engine": room,
            }
            if image is not None:
                absent["parts"] = _parts(image)
            return absent
    except DockerdError as error:
        return {"present": False, "silent": error.problem, "next": error.fields["next"]}
    return {
        "present": True,
        "bytes": image["Size"],
        "layers": layers_of(image),
        "architecture": image["Architecture"],
        "pinned": pinned is not None,
        "engine": room,
    }


def missing(engine: Dockerd, layers: Sequence[str]) -> list[str]:
    """Those of an image's layers, from the bottom, that docker does not have.

    Docker keeps a layer by all that is below it, so a layer counts only on top of the same ones: what matters is how
    many of the lowest layers any other image begins with.
    """
    most = 0
    for row in engine.images(every=True) if layers else ():
        image = engine.image(row["Id"].partition(":")[2])
        have = layers_of(image) if image else []
        same = next((index for index, pair in enumerate(zip(have, layers, strict=False)) if len(set(pair)) > 1), None)
        most = max(most, min(len(have), len(layers)) if same is None else same)
    return list(layers[most:])


def problem(image: Image | None, query: Wanted) -> str:
    """What is wrong with an image (ImageInspect); "" when it is right, or not there at all.

    A label alone proves nothing: it can be put on any image. So the layers must be those that the label lists, and
    those that are known from elsewhere. Without a key, these layers are all that counts.
    """
    if image is None:
        return ""
    if not layers_of(image):
        return _incomplete(query["reference"])
    if not query["key"]:
        return _unproven(image, query["reference"], query["layers"], "")
    labels = (image.get("Config") or {}).get("Labels") or {}
    layers = layers_of(image)
    key = str(labels.get(KEY, ""))
    listed = labels.get("sparkbuild.layers") == json.dumps(layers, separators=(",", ":"))
    told = (
        (not key, "is another image there, without a label of ours"),
        (key != query["key"], f"is another image there: its key is {key[:12]}"),
        (not listed, "has our label, but not the layers that the label lists"),
        (bool(query["layers"]) and layers != query["layers"], "has our label, but not the layers that were made"),
        (image.get("Architecture") != query["architecture"], f"is for {image.get('Architecture')}"),
    )
    return next((f"{query['reference']} {text}" for wrong, text in told if wrong), "")


def _unproven(image: Image | None, reference: str, known_layers: list[str], pinned: str) -> str:
    """Why an image that others made does not count; "" when it does, or is not there at all. Its digest in the registry
    is lost on the way from node to node, but not its layers.
    """
    if image is not None and not layers_of(image):
        return _incomplete(reference)
    if image is None or pinned in (image.get("RepoDigests") or ()):
        return ""
    return "" if known_layers == layers_of(image) else f"{reference} is another image there"


def _incomplete(reference: str) -> str:
    """What docker's containerd store says of an image of which it left a blob out."""
    return f"docker has {reference} without all of its content"


def _parts(image: Image) -> Parts | None:
    """The key's parts by the label, to tell what is different; only for that."""
    try:
        parts = json.loads(image["Config"]["Labels"]["sparkbuild.parts"])
    except (KeyError, TypeError, ValueError, RecursionError):
        return None
    return parts if isinstance(parts, dict) else None


def _arrived(query: OwnImageQuery | PrebuiltQuery, wanted: set[str]) -> int:
    """Bytes of the wanted layers that an earlier try left in the store."""
    folder = os.path.join(query["store"], query["incoming"])
    arrived = 0
    for layer, size in zip(query["layers"], query["sizes"], strict=False):
        if layer in wanted:
            name = os.path.join(folder, layer.partition(":")[2])
            arrived += next((min(size, _size(path)) for path in (name, f"{name}.part") if os.path.exists(path)), 0)
    return arrived


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0


def _engine(engine: Dockerd, store: str) -> EngineRoom:
    """What decides whether the image can be brought here."""
    info = engine.info()
    rows = info.get("DriverStatus") or ()
    containerd = any("io.containerd.snapshotter" in str(value) for row in rows for value in row)
    root = str(info.get("DockerRootDir") or "/var/lib/docker")
    while not os.path.exists(store):  # a store is made when it is first used
        store = os.path.dirname(store)
    return {
        "architecture": _architecture(info),
        "store": "containerd" if containerd else str(info.get("Driver", "")),
        "root": root,
        "free": _free(root),
        "store_free": _free(store),
        "shared": _device(root) == _device(store),
    }


def architecture_of(engine: Dockerd) -> str:
    """What this node's images are for, as images name it: "amd64"."""
    return _architecture(engine.info())


def _architecture(info: Info) -> str:
    machine = info.get("Architecture", "")
    return _ARCHITECTURES.get(machine, machine)


def _device(path: str) -> int:
    """The file system of a path; that of its folder where we may not look into it."""
    try:
        return os.stat(path).st_dev
    except OSError:
        return os.stat(os.path.dirname(path)).st_dev


def _free(path: str) -> int | None:
    try:
        disk = os.statvfs(path)
    except OSError:
        return None
    return disk.f_bavail * disk.f_frsize
