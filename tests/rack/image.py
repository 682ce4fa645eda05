"""Docker images made here, for `docker load`: a static busybox and what a test wants beside it. Needs no registry."""

from __future__ import annotations

import hashlib
import io
import json
import platform
import shutil
import subprocess
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.rack.proc import RackError

ARCHITECTURE = {"x86_64": "amd64", "aarch64": "arm64"}


@dataclass(frozen=True)
class Image:
    """An image to be: `files` maps absolute paths to contents, all executable, in one layer above busybox.

    The same fields give the same bytes, so also the same image id. In a container, busybox's wget crashes (a static
    glibc that finds no name service): use nc.
    """

    tag: str
    files: Mapping[str, bytes] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    entrypoint: Sequence[str] = ()
    command: Sequence[str] = ("/bin/sh",)
    env: Mapping[str, str] = field(default_factory=dict)
    architecture: str = ""  # default: this machine's

    def tar(self) -> bytes:
        """What `docker save` of it would give, in the form that every docker loads (manifest.json, a tar per layer)."""
        layers = [busybox_layer()]
        if self.files:
            layers.append(_layer({path.lstrip("/"): content for path, content in self.files.items()}, {}))
        digests = [hashlib.sha256(layer).hexdigest() for layer in layers]
        config = {
            "architecture": self.architecture or ARCHITECTURE.get(platform.machine(), platform.machine()),
            "os": "linux",
            "created": "1970-01-01T00:00:00Z",
            "config": {
                "Entrypoint": list(self.entrypoint),
                "Cmd": list(self.command),
                "Env": [f"{name}={value}" for name, value in {"PATH": "/bin", **self.env}.items()],
                "Labels": dict(self.labels),
            },
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}" for digest in digests]},
        }
        text = json.dumps(config).encode()
        name = f"{hashlib.sha256(text).hexdigest()}.json"
        paths = [f"{digest}/layer.tar" for digest in digests]
        manifest = [{"Config": name, "RepoTags": [self.tag], "Layers": paths}]
        entries = {name: text, **dict(zip(paths, layers, strict=True)), "manifest.json": json.dumps(manifest).encode()}
        return _layer(entries, {})


def busybox_layer() -> bytes:
    """Busybox and its links, as a layer."""
    path = shutil.which("busybox")
    content = Path(path).read_bytes() if path else b""
    if not content or b"ld-linux" in content[:4096]:
        raise RackError("images are made of a static busybox: apt-get install busybox-static")
    names = subprocess.run([str(path), "--list"], capture_output=True, text=True, check=True).stdout.split()
    return _layer({"bin/busybox": content}, {f"bin/{name}": "busybox" for name in names if name != "busybox"})


def _layer(files: Mapping[str, bytes], links: Mapping[str, str]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for folder in sorted({str(up) for path in files for up in Path(path).parents if str(up) != "."}):
            entry = tarfile.TarInfo(folder)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o755
            tar.addfile(entry)
        for path, content in files.items():
            entry = tarfile.TarInfo(path)
            entry.size, entry.mode = len(content), 0o755
            tar.addfile(entry, io.BytesIO(content))
        for path, target in links.items():
            entry = tarfile.TarInfo(path)
            entry.type, entry.linkname = tarfile.SYMTYPE, target
            tar.addfile(entry)
    return out.getvalue()
