"""Docker images in a store, as `doit image:` leaves them: layers of random bytes above a busybox, made in no time."""

from __future__ import annotations

import hashlib
import io
import json
import platform
import random
import tarfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from sparkbuild.core.goal import Goal, Uri
from sparkbuild.core.key import Key
from sparkbuild.images.docker import DockerSpec, archive_in_store, reference, sync_goal
from tests.rack.image import ARCHITECTURE, busybox_layer

MACHINE = ARCHITECTURE.get(platform.machine(), platform.machine())


@dataclass(frozen=True)
class Made:
    """An image in a store, and the goal of having it there."""

    goal: Goal
    sizes: tuple[int, ...]
    diff_ids: tuple[str, ...]

    @property
    def reference(self) -> str:
        return reference(self.goal.spec.name, self.goal.key)

    @property
    def bytes(self) -> int:
        return sum(self.sizes)

    def on(self, node: str) -> Goal:
        return sync_goal(node, self.goal)


def make(
    store: Path,
    layers: Sequence[tuple[str, int]],
    *,
    name: str = "made",
    holder: str = "local",
    architecture: str = MACHINE,
    salt: str = "",
) -> Made:
    """An image with a layer of about so many MB for each (seed, MB): the same seed gives the same layer. `store` is its
    holder's, as a path on this machine.
    """
    blobs = store / "blobs" / "sha256"
    blobs.mkdir(parents=True, exist_ok=True)
    found = [_keep(blobs, busybox_layer()), *(_keep(blobs, _random_layer(*layer)) for layer in layers)]
    diff_ids = [f"sha256:{digest}" for digest, _ in found]
    key = Key({"kind": "docker", "layers": [list(layer) for layer in layers], "for": architecture, "salt": salt})
    labels = {
        "sparkbuild.key": key.digest,
        "sparkbuild.parts": json.dumps(key.parts, sort_keys=True, separators=(",", ":")),
        "sparkbuild.lock": "made@0",
        "sparkbuild.layers": json.dumps(diff_ids, separators=(",", ":")),
    }
    config = {
        "architecture": architecture,
        "os": "linux",
        "created": "1970-01-01T00:00:00Z",
        "config": {"Env": ["PATH=/bin"], "Cmd": ["/bin/sh"], "Labels": labels},
        "rootfs": {"type": "layers", "diff_ids": diff_ids},
    }
    text = json.dumps(config, sort_keys=True, separators=(",", ":")).encode()
    folder = store / archive_in_store(name, key)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_bytes(text)
    sizes = [size for _, size in found]
    receipt = {
        "format": "sparkbuild-archive/v2",
        "name": name,
        "reference": reference(name, key),
        "key": key.digest,
        "parts": key.parts,
        "lock": "made@0",
        "layers": diff_ids,
        "sizes": sizes,
        "config": f"sha256:{hashlib.sha256(text).hexdigest()}",
        "architecture": architecture,
        "gates": [],
        "bytes": sum(sizes),
        "at": time.time(),
    }
    (folder / "receipt.json").write_text(json.dumps(receipt))
    spec = DockerSpec(
        name=name, lock="made@0", debs=(), requirements="", python="3.11", files=(), env={}, entrypoint=(),
        command=("/bin/sh",), platform=f"linux/{architecture}",
    )  # fmt: skip
    goal = Goal(task=f"image:{name}", uri=Uri("archive", holder, name), key=key, doc="", spec=spec, transient=True)
    return Made(goal, tuple(sizes), tuple(diff_ids))


def _keep(blobs: Path, content: bytes) -> tuple[str, int]:
    digest = hashlib.sha256(content).hexdigest()
    if not (blobs / digest).exists():
        (blobs / digest).write_bytes(content)
    return digest, len(content)


def _random_layer(seed: str, size_mb: int) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        entry = tarfile.TarInfo(f"data/{seed}")
        entry.size, entry.mode = size_mb << 20, 0o644
        source = random.Random(seed)
        tar.addfile(entry, io.BytesIO(b"".join(source.randbytes(1 << 20) for _ in range(size_mb))))
    return out.getvalue()
