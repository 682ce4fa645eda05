"""Export an image of this node's docker by content: one `docker save`, its layers split off while it passes, each
checked by its sha256; beside them the config and a receipt.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from typing import TYPE_CHECKING, Any

from sparkbuild.agent.disk.files import write_json
from sparkbuild.agent.disk.held import created, remove_tree
from sparkbuild.agent.disk.lock import locked
from sparkbuild.agent.docker.changes import DockerWork
from sparkbuild.agent.docker.engine import SOCKET, layers_of
from sparkbuild.agent.image import archives
from sparkbuild.agent.image.archives import PART, RECEIPT_FORMAT, config_of, folder_of
from sparkbuild.agent.image.saved import Saved, saved
from sparkbuild.agent.store import layerstore
from sparkbuild.agent.wire.lanelabels import KEY
from sparkbuild.agent.wire.protocol import AgentError, Reporter, integrity_error

if TYPE_CHECKING:
    from sparkbuild.agent.wire.images import ExportRequest, ExportResult
    from sparkbuild.agent.wire.receipts import ArchiveReceipt


def run(request: ExportRequest, reporter: Reporter) -> ExportResult:
    """Take the image apart. Errors: kind "integrity" when the image is not the one of that key, or what docker gives is
    not what it says; "space", "node". What was exported before and is right is not written again.
    """
    folder = folder_of(request["store"], request["name"], request["key"][:12])
    base = os.path.dirname(folder)
    os.makedirs(base, exist_ok=True)
    with locked(os.path.join(base, ".lock"), f"image {request['name']}"):
        archives.sweep(base)
        part = f"{folder}{PART}"
        os.makedirs(part)
        try:
            with layerstore.writing(request["store"]):
                receipt = _export(request, part, reporter)
                archives.finish(part, folder, reporter)
        except BaseException:
            remove_tree(part)
            raise
        finally:
            archives.collect(request["store"], reporter)
        return {"bytes": receipt["bytes"], "layers": receipt["layers"]}


def _export(request: ExportRequest, part: str, reporter: Reporter) -> ArchiveReceipt:
    engine = DockerWork(request["docker"] or SOCKET, timeout=3600.0)  # before the first byte, docker copies all of it
    inspected = engine.image(request["reference"])
    labels = ((inspected or {}).get("Config") or {}).get("Labels") or {}
    if inspected is None or (labels.get(KEY) != request["key"] and not request.get("prebuilt")):
        raise integrity_error(
            f"{request['reference']} is not in docker as it was built",
            found=f"key {labels.get('sparkbuild.key', 'none')}" if inspected else "no such image",
            next="run again: it is built anew",
        )
    layers = layers_of(inspected)
    if not layers:
        raise AgentError(
            f"docker has {request['reference']} without all of its content",
            kind="node",
            next=f"docker image rm {request['reference']} there, then run again",
        )
    work = os.path.join(layerstore.folder_of(request["store"]), f"{request['name']}.part")
    remove_tree(work)
    os.makedirs(work)
    try:
        total = int(inspected.get("Size") or 0)
        image = saved(
            engine, request["reference"], set(layers), work, lambda done: reporter.progress("save", done, total)
        )
        sizes = _keep(request["store"], image, layers)
    finally:
        remove_tree(work)
    with created(config_of(part)) as file:
        file.write(image.config)
        os.fsync(file.fileno())
    receipt: ArchiveReceipt = {
        "format": RECEIPT_FORMAT,
        "name": request["name"],
        "reference": request["reference"],
        "key": request["key"],
        "parts": request["parts"],
        "lock": request["lock"],
        "layers": layers,
        "sizes": sizes,
        "config": f"sha256:{hashlib.sha256(image.config).hexdigest()}",
        "architecture": str(inspected["Architecture"]),
        "gates": request["gates"],
        "bytes": sum(sizes),
        "at": time.time(),
    }
    write_json(os.path.join(part, "receipt.json"), receipt)
    return receipt


def _listed(config: bytes) -> Any:
    """The layers that an image's config names."""
    try:
        return json.loads(config)["rootfs"]["diff_ids"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


def _keep(store: str, image: Saved, layers: list[str]) -> list[int]:
    """Give the layers their names; their sizes in order."""
    listed = _listed(image.config)
    lacking = [digest for digest in layers if digest not in image.layers]
    if lacking or listed != layers:
        raise integrity_error(
            "docker saved something else than the image",
            found=f"without {', '.join(lacking)}" if lacking else f"layers {listed}"[:1000],
            wanted=f"layers {layers}",
            next="run again; if it stays so, docker's store is damaged",
        )
    sizes = {digest: os.path.getsize(path) for digest, path in image.layers.items()}
    for digest in dict.fromkeys(layers):
        layerstore.keep(store, image.layers[digest], digest)
    return [sizes[digest] for digest in layers]
