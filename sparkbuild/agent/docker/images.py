"""Images in this node's docker: is the one of that name the one that was made, by its labels and by its layers."""

from __future__ import annotations

import json
import os
from typing import Any

from sparkbuild.agent.docker.engine import SOCKET, Dockerd, DockerdError, layers_of
from sparkbuild.agent.wire.lanelabels import KEY

_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}  # as the engine names its own -> as images name theirs


def observe(query: dict[str, Any]) -> dict[str, Any]:
    """Query {"store", "docker", "reference", "key", "layers", "sizes", "architecture", "incoming"}; `layers` are the
    diff ids that are known from elsewhere, [] when none are; `incoming` is where in the store blobs arrive.

    {"present", "problem", "bytes", "layers", "architecture", "parts", "engine": {"architecture", "store", "root",
    "free", "store_free", "shared"}}: what is free for docker and for the store (None: not known), and whether that is
    the same disk. When it is not present also "missing": those of `layers` that docker does not have (None: they are
    not known), and "arrived": how many bytes of these are in the store. With "pinned" in the query, "pinned" is whether
    docker has it by that name, and "architecture" is then told, too. {"silent": why} when docker cannot be asked: that
    is neither present nor missing.
    """
    engine = Dockerd(query["docker"] or SOCKET)
    try:
        found = engine.image(query["reference"])
        pinned = engine.image(query["pinned"]) if query.get("pinned") else None
        about = {"pinned": pinned is not None, "engine": _engine(engine, query["store"])}
        why = _unproven(found, query) if "pinned" in query else problem(found, query)
        if found is None or why:
            lacking = missing(engine, query["layers"]) if query["layers"] else None
            fact = {
                "present": False,
                "problem": why,
                "missing": lacking,
                "architecture": str((pinned or {}).get("Architecture", "")),
                "arrived": _arrived(query, set(lacking or ())),
                **about,
            }
            return fact if found is None else {**fact, "parts": _parts(found)}
    except DockerdError as error:
        return {"present": False, "silent": error.problem, "next": error.fields["next"]}
    return {
        "present": True,
        "bytes": found["Size"],
        "layers": layers_of(found),
        "architecture": found["Architecture"],
        **about,
    }


def missing(engine: Dockerd, layers: list[str]) -> list[str]:
    """Those of an image's layers, from the bottom, that docker does not have.

    Docker keeps a layer by all that is below it, so a layer counts only on top of the same ones: what matters is how
    many of the lowest layers any other image begins with.
    """
    most = 0
    rows = engine.rows("/images/json?all=1") if layers else []
    for row in rows:
        found = engine.image(str(row["Id"]).partition(":")[2])
        have = layers_of(found or {})
        same = next((index for index, pair in enumerate(zip(have, layers, strict=False)) if len(set(pair)) > 1), None)
        most = max(most, min(len(have), len(layers)) if same is None else same)
    return layers[most:]


def problem(found: dict[str, Any] | None, query: dict[str, Any]) -> str:
    """What is wrong with an image (ImageInspect); "" when it is right, or not there at all.

    A label alone proves nothing: it can be put on any image. So the layers must be those that the label lists, and
    those that are known from elsewhere. Without a key, these layers are all that counts.
    """
    if found is None:
        return ""
    if not layers_of(found):
        return _incomplete(query)
    if not query["key"]:
        return _unproven(found, {**query, "pinned": ""})
    labels = (found.get("Config") or {}).get("Labels") or {}
    layers = layers_of(found)
    key = str(labels.get(KEY, ""))
    listed = labels.get("sparkbuild.layers") == json.dumps(layers, separators=(",", ":"))
    told = (
        (not key, "is another image there, without a label of ours"),
        (key != query["key"], f"is another image there: its key is {key[:12]}"),
        (not listed, "has our label, but not the layers that the label lists"),
        (query["layers"] and layers != query["layers"], "has our label, but not the layers that were made"),
        (found.get("Architecture") != query["architecture"], f"is for {found.get('Architecture')}"),
    )
    return next((f"{query['reference']} {text}" for wrong, text in told if wrong), "")


def _unproven(found: dict[str, Any] | None, query: dict[str, Any]) -> str:
    """Why an image that others made does not count; "" when it does, or is not there at all. Its digest in the registry
    is lost on the way from node to node, but not its layers.
    """
    if found is not None and not layers_of(found):
        return _incomplete(query)
    if found is None or query["pinned"] in (found.get("RepoDigests") or ()):
        return ""
    layers = layers_of(found)
    return "" if query["layers"] == layers else f"{query['reference']} is another image there"


def _incomplete(query: dict[str, Any]) -> str:
    """What docker's containerd store says of an image of which it left a blob out."""
    return f"docker has {query['reference']} without all of its content"


def _parts(found: dict[str, Any]) -> dict[str, Any] | None:
    """The key's parts by the label, to tell what is different; only for that."""
    try:
        parts = json.loads(found["Config"]["Labels"]["sparkbuild.parts"])
    except (KeyError, TypeError, ValueError, RecursionError):
        return None
    return parts if isinstance(parts, dict) else None


def _arrived(query: dict[str, Any], wanted: set[str]) -> int:
    """Bytes of the wanted layers that an earlier try left in the store."""
    folder = os.path.join(query["store"], query.get("incoming", ""))
    found = 0
    for layer, size in zip(query["layers"], query.get("sizes") or (), strict=False):
        if layer in wanted:
            name = os.path.join(folder, layer.partition(":")[2])
            found += next((min(size, _size(path)) for path in (name, f"{name}.part") if os.path.exists(path)), 0)
    return found


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0


def _engine(engine: Dockerd, store: str) -> dict[str, Any]:
    """What decides whether the image can be brought here."""
    info = engine.get("/info")
    status = info.get("DriverStatus") or []
    containerd = any("io.containerd.snapshotter" in str(value) for row in status for value in row)
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
    return _architecture(engine.get("/info"))


def _architecture(info: dict[str, Any]) -> str:
    found = str(info.get("Architecture", ""))
    return _ARCHITECTURES.get(found, found)


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
