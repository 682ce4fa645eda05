"""Images of kind `docker`: layers of Debian packages, wheels and files, put together without running any of them.

The result is what assembled.py describes. The same inputs give the same bytes on any node, from any Python.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import time
from typing import TYPE_CHECKING

from sparkbuild.agent.disk.files import write_json
from sparkbuild.agent.disk.held import created, remove_tree
from sparkbuild.agent.disk.lock import locked
from sparkbuild.agent.image import archives
from sparkbuild.agent.image.archives import PART, RECEIPT_FORMAT, config_of, folder_of
from sparkbuild.agent.image.debs import add_links, add_package
from sparkbuild.agent.image.layer import Layer
from sparkbuild.agent.image.wheels import add_wheels
from sparkbuild.agent.store import layerstore
from sparkbuild.agent.store.artifacts import path_of
from sparkbuild.agent.wire.lanelabels import KEY
from sparkbuild.agent.wire.protocol import Reporter

if TYPE_CHECKING:
    from sparkbuild.agent.wire.images import AssembleRequest
    from sparkbuild.agent.wire.receipts import ArchiveReceipt
    from sparkbuild.agent.wire.store import Bytes

_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def run(request: AssembleRequest, reporter: Reporter) -> Bytes:
    """Put the image together. Errors: kind "integrity" when a package or wheel is not the locked one or holds a trap,
    "config" when it does not fit the platform.
    """
    folder = folder_of(request["store"], request["name"], request["key"][:12])
    base = os.path.dirname(folder)
    os.makedirs(base, exist_ok=True)
    with locked(os.path.join(base, ".lock"), f"image {request['name']}"):
        part = f"{folder}{PART}"
        archives.sweep(base)
        with layerstore.writing(request["store"]):
            try:
                receipt = _assemble(request, part, reporter)
            except BaseException:
                remove_tree(part)
                raise
            archives.finish(part, folder, reporter)
        archives.collect(request["store"], reporter)
        return {"bytes": receipt["bytes"]}


def _assemble(request: AssembleRequest, part: str, reporter: Reporter) -> ArchiveReceipt:
    work = os.path.join(part, "work")
    os.makedirs(work)
    layers = []
    for number, layer in enumerate(_layers(request, work, reporter)):
        total = sum(entry.size for entry in layer.entries.values())

        def grew(size: int, number: int = number, total: int = total) -> None:
            reporter.progress(f"write layer {number + 1}", min(size, total), total)  # a tar is larger than its files

        path = os.path.join(work, f"{number}.tar")
        digest = layer.write(path, grew)
        layers.append((digest, path))
        reporter.log(f"layer {number + 1}: sha256:{digest}, {os.path.getsize(path)} bytes")
    diff_ids = [f"sha256:{digest}" for digest, _ in layers]
    config = _config(request, diff_ids)
    with created(config_of(part)) as file:
        file.write(config)
        os.fsync(file.fileno())
    sizes = [os.path.getsize(path) for _, path in layers]
    for diff_id, (_, path) in zip(diff_ids, layers, strict=True):
        layerstore.keep(request["store"], path, diff_id)
    remove_tree(work)
    receipt: ArchiveReceipt = {
        "format": RECEIPT_FORMAT,
        "name": request["name"],
        "reference": request["reference"],
        "key": request["key"],
        "parts": request["parts"],
        "lock": request["lock"],
        "layers": diff_ids,
        "sizes": sizes,
        "config": f"sha256:{hashlib.sha256(config).hexdigest()}",
        "architecture": request["platform"].partition("/")[2],
        "gates": [],
        "bytes": sum(sizes),
        "at": time.time(),
    }
    write_json(os.path.join(part, "receipt.json"), receipt)
    return receipt


def _layers(request: AssembleRequest, work: str, reporter: Reporter) -> list[Layer]:
    """From what changes least to what changes most."""
    architecture = request["platform"].partition("/")[2]
    base, wheels, files = Layer(), Layer(), Layer()
    paths = [path_of(request["store"], deb["sha256"], deb["filename"]) for deb in request["debs"]]
    sizes = [os.path.getsize(path) for path in paths]
    for index, (deb, path) in enumerate(zip(request["debs"], paths, strict=True)):
        reporter.progress("unpack the packages", sum(sizes[:index]), sum(sizes))
        add_package(base, path, deb["sha256"], architecture, work)
    if request["debs"]:
        add_links(base)
    if request["requirements"]:
        folder = os.path.join(work, "wheels")
        os.makedirs(folder)
        add_wheels(
            wheels,
            request["requirements"],
            python=request["python"],
            architecture=architecture,
            work=folder,
            reporter=reporter,
        )
    for name, text in request["files"].items():
        content = base64.b64decode(text)
        mode = 0o755 if content.startswith(b"#!") else 0o644  # not that of the checkout, which git does not keep
        files.add_bytes(f"{request['folder'].lstrip('/')}/{name}", content, mode, name)
    return [layer for layer in (base, wheels, files) if layer.entries]


def _config(request: AssembleRequest, diff_ids: list[str]) -> bytes:
    """The image's config (OCI image-spec, config.md). Its sha256 is the image id on most stores, so it is canonical."""
    system, _, architecture = request["platform"].partition("/")
    env = {"PATH": _PATH, **request["env"]}
    labels = {
        KEY: request["key"],
        "sparkbuild.parts": _text(request["parts"]),
        "sparkbuild.lock": request["lock"],
        "sparkbuild.layers": _text(diff_ids),
    }
    config: dict[str, object] = {"Env": [f"{name}={env[name]}" for name in sorted(env)], "Labels": labels}
    if request["entrypoint"]:
        config["Entrypoint"] = request["entrypoint"]
    if request["command"]:
        config["Cmd"] = request["command"]
    whole = {
        "architecture": architecture,
        "os": system,
        "created": "1970-01-01T00:00:00Z",
        "config": config,
        "rootfs": {"type": "layers", "diff_ids": diff_ids},
        "history": [{"created": "1970-01-01T00:00:00Z", "created_by": "sparkbuild"} for _ in diff_ids],
    }
    return _text(whole).encode()


def _text(value: object) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))
