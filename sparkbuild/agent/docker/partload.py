"""Archives for `docker load` that hold only a part of an image's layers.

On docker's overlay2 store a docker-archive may leave out the layers that docker has: `docker load` looks for each layer
by all that is below it before it opens its tar. Needed where layers came by a load or a build: for these, docker knows
no name by which a registry could offer them, and would pull them again.

On docker's containerd store an OCI layout brings blobs that its content lacks. A pull there leaves out each layer whose
snapshot exists, also when docker keeps that layer as another blob (compressed, or not): the image runs, but docker can
tell nothing of it, neither layers nor labels nor architecture, nor save it. A load of the missing blobs under the same
name completes it. Source of the form: https://github.com/opencontainers/image-spec/blob/main/image-layout.md.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Container, Sequence

from sparkbuild.agent.docker.registry import Image
from sparkbuild.agent.store.blobs import read
from sparkbuild.agent.wire.dockerarchive import Member, head, layer_path, text

_INDEX = "application/vnd.oci.image.index.v1+json"


def without(image: Image, reference: str, chosen: Container[str], folder: str) -> list[Member]:
    """A docker-archive with the `chosen` layers only, read from a folder of blobs as they arrive."""
    begin = head(reference, f"{image.digest}.json", image.config, [sha256 for sha256, _ in image.layers])
    return begin + [
        layer(layer_path(sha256), folder, sha256, size) for sha256, size in image.layers if sha256 in chosen
    ]


def layout(name: str, media_type: str, manifests: Sequence[bytes], blobs: Sequence[Member]) -> list[Member]:
    """An OCI layout that gives the image `name` blobs. The first of the manifests is what the name means, of that media
    type; others are what it refers to.
    """
    row = {
        "mediaType": media_type,
        "digest": f"sha256:{hashlib.sha256(manifests[0]).hexdigest()}",
        "size": len(manifests[0]),
        "annotations": {"io.containerd.image.name": name},
    }
    index = json.dumps({"schemaVersion": 2, "mediaType": _INDEX, "manifests": [row]}).encode()
    begin = [text("oci-layout", b'{"imageLayoutVersion":"1.0.0"}'), text("index.json", index)]
    return [*begin, *(blob(hashlib.sha256(one).hexdigest(), one) for one in manifests), *blobs]


def layer(name: str, folder: str, sha256: str, size: int) -> Member:
    """A layer of a folder of blobs."""
    return Member(name, size, lambda: read(folder, sha256, size))


def blob(sha256: str, content: bytes) -> Member:
    """A small blob of a layout."""
    return text(blob_path(sha256), content)


def blob_path(sha256: str) -> str:
    """Where a blob stands in a layout."""
    return f"blobs/sha256/{sha256}"
