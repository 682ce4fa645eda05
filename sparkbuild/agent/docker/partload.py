"""A docker-archive of an image without those of its layers that docker has: on its overlay2 store, `docker load` looks
for each layer by all that is below it before it opens its tar.

Needed where layers came by a load or a build: for these, docker knows no name by which a registry could offer them, and
would pull them again. Its containerd store takes no such archive.
"""

from __future__ import annotations

import json
import tarfile
from collections.abc import Container, Iterator

from sparkbuild.agent.docker.registry import Image
from sparkbuild.agent.store.blobs import read

_END = tarfile.BLOCKSIZE * 2


def size_of(image: Image, reference: str, chosen: Container[str]) -> int:
    """The bytes of the archive."""
    members = [len(content) for _, content in _small(image, reference)]
    members += [size for sha256, size in image.layers if sha256 in chosen]
    return sum(tarfile.BLOCKSIZE + _padded(size) for size in members) + _END


def pieces(image: Image, reference: str, chosen: Container[str], folder: str) -> Iterator[bytes]:
    """The archive with the `chosen` layers, read from a folder of blobs as they arrive."""
    for name, content in _small(image, reference):
        yield _header(name, len(content)) + content + bytes(_padded(len(content)) - len(content))
    for sha256, size in image.layers:
        if sha256 in chosen:
            yield _header(f"{sha256}/layer.tar", size)
            yield from read(folder, sha256, size)
            yield bytes(_padded(size) - size)
    yield bytes(_END)


def _small(image: Image, reference: str) -> list[tuple[str, bytes]]:
    name = f"{image.digest}.json"
    layers = [f"{sha256}/layer.tar" for sha256, _ in image.layers]
    manifest = json.dumps([{"Config": name, "RepoTags": [reference], "Layers": layers}])
    return [("manifest.json", manifest.encode()), (name, image.config)]


def _header(name: str, size: int) -> bytes:
    info = tarfile.TarInfo(name)
    info.size = size
    return info.tobuf(tarfile.GNU_FORMAT)


def _padded(size: int) -> int:
    return -(-size // tarfile.BLOCKSIZE) * tarfile.BLOCKSIZE
