"""Debian packages made here, honest and not, and the assembly of docker images from them."""

from __future__ import annotations

import bz2
import gzip
import hashlib
import io
import lzma
import subprocess
import tarfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from sparkbuild.agent.store.artifacts import path_of

Member = tuple[str, bytes | dict[str, Any]]  # a name, and the content of a file or what its TarInfo is to have
PACK: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": gzip.compress,
    ".xz": lzma.compress,
    ".bz2": bz2.compress,
    ".zst": lambda data: subprocess.run(["zstd", "-cq"], input=data, capture_output=True, check=True).stdout,
}


def tar(members: Sequence[Member]) -> bytes:
    """A tar of these members, in this order."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as file:
        for name, what in members:
            info = tarfile.TarInfo(name)
            content = what if isinstance(what, bytes) else b""
            info.size, info.mode = len(content), 0o644
            for field, value in what.items() if isinstance(what, dict) else ():
                setattr(info, field, value)
            file.addfile(info, io.BytesIO(content) if info.isreg() else None)
    return out.getvalue()


def ar(members: Sequence[tuple[str, bytes]]) -> bytes:
    """An `ar` archive, as dpkg-deb writes it."""
    out = b"!<arch>\n"
    for name, content in members:
        out += f"{name:<16}{0:<12}{0:<6}{0:<6}{'100644':<8}{len(content):<10}`\n".encode()
        out += content + b"\n" * (len(content) % 2)
    return out


def deb(members: Sequence[Member], *, architecture: str = "amd64", ending: str = ".xz") -> bytes:
    """A package with these members in its data."""
    control = tar([("./control", f"Package: x\nVersion: 1\nArchitecture: {architecture}\n".encode())])
    parts = [("debian-binary", b"2.0\n"), (f"control.tar{ending}", PACK[ending](control))]
    return ar([*parts, (f"data.tar{ending}", PACK[ending](tar(members)))])


def keep(store: Path, name: str, content: bytes) -> dict[str, str]:
    """Put a package into a store as a fetched artifact; returns what a request says of it."""
    sha256 = hashlib.sha256(content).hexdigest()
    path = Path(path_of(str(store), sha256, name))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return {"sha256": sha256, "filename": name}


def request(store: Path, debs: Sequence[dict[str, str]], **more: Any) -> dict[str, Any]:
    """A request to assemble an image."""
    return {
        "store": str(store),
        "name": "tiny",
        "reference": "sparkbuild/tiny:abc",
        "key": "ab" * 32,
        "parts": {"kind": "docker"},
        "lock": f"pins@{'c' * 64}",
        "platform": "linux/amd64",
        "python": "3.11",
        "debs": list(debs),
        "requirements": "",
        "folder": "/opt/files",
        "files": {},
        "env": {},
        "entrypoint": [],
        "command": [],
        **more,
    }
