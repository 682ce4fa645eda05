"""A registry for one image: it speaks just enough of the v2 API for this node's own docker to pull from it.

Read-only, on 127.0.0.1, on a free port, under a name that nobody can guess, and gone with this process. Docker needs no
setting for it: registries on 127.0.0.0/8 may speak plain HTTP. Source of the formats: distribution's spec/api.md,
image-spec v2 schema 2; layers are uncompressed, so that a layer's name is docker's diff id.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable

from sparkbuild.agent.store.blobs import send
from sparkbuild.agent.store.httpd import Request, Server

HOST = "127.0.0.1"
MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
CONFIG = "application/vnd.docker.container.image.v1+json"
LAYER = "application/vnd.docker.image.rootfs.diff.tar"
REPOSITORY = "sparkbuild-incoming-"  # and the token: what a run left behind is known by that
_VERSION = {"Docker-Distribution-Api-Version": "registry/2.0"}
_LEFT = re.compile(rf"{re.escape(HOST)}:\d+/{REPOSITORY}[0-9a-f]{{32}}[:@].+")


class Image:
    """An image as a registry has it: its config, and layers as (sha256, size) from the bottom."""

    def __init__(self, config: bytes, layers: list[tuple[str, int]]) -> None:
        self.config = config
        self.layers = layers
        self.digest = hashlib.sha256(config).hexdigest()
        parts = [{"mediaType": LAYER, "size": size, "digest": f"sha256:{sha256}"} for sha256, size in layers]
        head = {"mediaType": CONFIG, "size": len(config), "digest": f"sha256:{self.digest}"}
        whole = {"schemaVersion": 2, "mediaType": MANIFEST, "config": head, "layers": parts}
        self.manifest = json.dumps(whole, separators=(",", ":")).encode()

    def cut(self, count: int) -> Image:
        """The image with its lowest `count` layers only: a pull of it keeps these, whatever becomes of the rest."""
        config = json.loads(self.config)
        config["rootfs"]["diff_ids"] = config["rootfs"]["diff_ids"][:count]
        config.pop("history", None)
        config["config"] = {}  # and no labels: it must not be taken for the whole
        return Image(json.dumps(config, sort_keys=True, separators=(",", ":")).encode(), self.layers[:count])


class Registry:
    """Serves images by tag, with layers of a folder of blobs that may still be arriving. `fetch` is called for a layer
    before it is sent: it returns when the layer is there or will be, and raises OSError when it will not.
    """

    def __init__(self, folder: str, token: str, fetch: Callable[[str, int], None]) -> None:
        self.name = f"{REPOSITORY}{token}"
        self._folder = folder
        self._fetch = fetch
        self._manifests: dict[str, bytes] = {}
        self._configs: dict[str, bytes] = {}
        self._layers: dict[str, int] = {}
        self._server = Server([HOST], self._answer)

    @property
    def repository(self) -> str:
        """The name to pull from."""
        return f"{HOST}:{self._server.ports[HOST]}/{self.name}"

    def offer(self, tag: str, image: Image) -> None:
        """Serve an image under a tag."""
        self._manifests[tag] = image.manifest
        self._manifests[f"sha256:{hashlib.sha256(image.manifest).hexdigest()}"] = image.manifest
        self._configs[f"sha256:{image.digest}"] = image.config
        self._layers |= {f"sha256:{sha256}": size for sha256, size in image.layers}

    def _answer(self, request: Request) -> None:
        _, version, name, kind, what, *more = [*request.path.partition("?")[0].split("/"), "", "", "", ""]
        if version == "v2" and not name:
            request.answer(200, {"Content-Type": "application/json", **_VERSION}, b"{}")
        elif version == "v2" and name == self.name and not any(more) and self._has(kind, what):
            self._give(request, kind, what)
        else:
            body = json.dumps({"errors": [{"code": "NAME_UNKNOWN", "message": "not here"}]}).encode()
            request.answer(404, {"Content-Type": "application/json", **_VERSION}, body)

    def _has(self, kind: str, what: str) -> bool:
        return what in (self._manifests if kind == "manifests" else {**self._configs, **self._layers})

    def _give(self, request: Request, kind: str, what: str) -> None:
        if kind == "manifests":
            text = self._manifests[what]
            digest = f"sha256:{hashlib.sha256(text).hexdigest()}"
            headers = {"Content-Type": MANIFEST, "Docker-Content-Digest": digest, **_VERSION}
            request.answer(200, headers, text)
            return
        headers = {"Content-Type": "application/octet-stream", "Docker-Content-Digest": what, **_VERSION}
        if what in self._configs:
            request.answer(200, headers, self._configs[what])
            return
        sha256, size = what.partition(":")[2], self._layers[what]
        span = request.content(size, headers)
        if span is not None:
            self._fetch(sha256, size)
            send(request.caller, self._folder, sha256, *span)


def is_left(reference: str) -> bool:
    """Whether an image's name is one that a registry of ours had."""
    return bool(_LEFT.fullmatch(reference))
