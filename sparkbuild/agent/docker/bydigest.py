"""An image of a registry by its digest in this node's docker: pulled where it is not there, and whole."""

from __future__ import annotations

import json
import re
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from sparkbuild.agent.docker import partload
from sparkbuild.agent.docker.changes import DockerWork
from sparkbuild.agent.docker.engine import DockerdError, layers_of
from sparkbuild.agent.docker.images import architecture_of
from sparkbuild.agent.docker.upstream import INDEXES, MANIFESTS, Upstream
from sparkbuild.agent.wire.dockerarchive import Member, pieces, size_of
from sparkbuild.agent.wire.protocol import AgentError, Reporter, config_error

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sparkbuild.agent.docker.answers import Event, Image

_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


class ByDigest(NamedTuple):
    """An image, and whether it was pulled just now."""

    image: Image
    pulled: bool


def have(
    engine: DockerWork, repository: str, digest: str, reporter: Reporter, *, pull: bool = True, login: str = ""
) -> ByDigest:
    """Have `repository@digest` in docker, for this node's architecture. Raises DockerdError, and AgentError: "config"
    for an image of another architecture, "node" when there is no such image or its registry does not give all of it.
    `login` is the operator's for that registry, see DockerWork.pull.
    """
    pinned, pulled, progress = f"{repository}@{digest}", False, _PullProgress(reporter)
    image = engine.image(pinned)
    if image is None and pull:
        reporter.log(f"pull {pinned}")
        engine.pull(repository, digest, progress.event, login)
        image, pulled = engine.image(pinned), True
    if image is None:
        raise AgentError(f"{pinned} is not in docker", kind="node", next="run again")
    if not layers_of(image):
        _complete(engine, Upstream(repository, login), digest, progress.downloaded, reporter)
        image = engine.image(pinned) or image
        if not layers_of(image):
            raise DockerdError("its containerd store lacks some of the image's content, also after a load of it")
    wanted = architecture_of(engine)
    architecture = image.get("Architecture", "")
    if architecture != wanted:
        raise config_error(
            f"{pinned} is for another architecture than this node",
            found=architecture,
            wanted=wanted,
            next=f"an image for {wanted}, or the digest of one for several architectures",
        )
    return ByDigest(image, pulled)


def _complete(engine: DockerWork, upstream: Upstream, digest: str, downloaded: set[str], reporter: Reporter) -> None:
    """Bring docker the blobs that it left out of its pull, since it keeps these layers as others."""
    manifests = [upstream.manifest(digest)]
    top = _object(manifests[0], digest)
    if top.get("mediaType") in INDEXES or "manifests" in top:
        chosen = _of_platform(top, architecture_of(engine), digest)
        manifests.append(upstream.manifest(chosen))
    config, layers_all = _contents(manifests[-1], digest)
    wanted = [layer for layer in layers_all if _short(layer.digest) not in downloaded]
    count = f"{len(wanted)} of {len(layers_all)} layers"
    reporter.log(
        f"docker keeps {count} of {upstream.repository} in another compression: they are downloaded to it as well"
    )
    layers = [
        Member(partload.blob_path(_hex(layer.digest)), layer.size, partial(upstream.blob, layer.digest, layer.size))
        for layer in wanted
    ]
    blobs = [partload.blob(_hex(config), upstream.config(config)), *layers]
    media_type = str(top.get("mediaType") or (INDEXES[0] if "manifests" in top else MANIFESTS[0]))
    members = partload.layout(f"{upstream.repository}@{digest}", media_type, manifests, blobs)
    engine.load(pieces(members), size_of(members), lambda _event: None)


class _Blob(NamedTuple):
    digest: str
    size: int


def _of_platform(top: Mapping[str, object], architecture: str, digest: str) -> str:
    """The digest of the manifest for that architecture, of an index; AgentError (kind "config") without one."""
    for row in _rows(top, "manifests", digest):
        platform = row.get("platform")
        wanted = {"os": "linux", "architecture": architecture}
        if isinstance(platform, dict) and all(platform.get(name) == value for name, value in wanted.items()):
            return _blob(row, digest).digest
    raise config_error(f"the image has nothing for linux/{architecture}")


def _contents(data: bytes, digest: str) -> tuple[str, list[_Blob]]:
    """The digest of the config, and the layers, of a manifest."""
    manifest = _object(data, digest)
    layers = [_blob(row, digest) for row in _rows(manifest, "layers", digest)]
    return _blob(manifest.get("config"), digest).digest, layers


def _object(data: bytes, digest: str) -> Mapping[str, object]:
    try:
        content = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise _odd(digest, f"no JSON: {str(error)[:100]}") from None
    if not isinstance(content, dict):
        raise _odd(digest, "no JSON object")
    return content


def _rows(manifest: Mapping[str, object], name: str, digest: str) -> list[Mapping[str, object]]:
    rows = manifest.get(name)
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise _odd(digest, f"no list `{name}`")
    return rows


def _blob(row: object, digest: str) -> _Blob:
    if isinstance(row, dict):
        name, size = row.get("digest"), row.get("size")
        if isinstance(name, str) and _DIGEST.fullmatch(name) and type(size) is int and 0 <= size < 1 << 60:
            return _Blob(name, size)
    raise _odd(digest, f"no digest and size: {ascii(row)[:100]}")


def _odd(digest: str, found: str) -> AgentError:
    """Somebody wrote such a manifest: its content is as its digest says."""
    return AgentError("a manifest that cannot be read", kind="node", where=digest, found=found, wanted="an image")


def _hex(digest: str) -> str:
    return digest.partition(":")[2]


def _short(digest: str) -> str:
    return _hex(digest)[:12]


class _PullProgress:
    """Docker's words on a pull as progress."""

    def __init__(self, reporter: Reporter) -> None:
        self.downloaded: set[str] = set()  # short names of blobs that came
        self._reporter = reporter
        self._layers: dict[str, tuple[int, int]] = {}

    def event(self, event: Event) -> None:
        """One of docker's events."""
        detail, layer = event.get("progressDetail") or {}, event.get("id", "")
        if event.get("status") == "Downloading" and detail.get("total"):
            self._layers[layer] = (detail.get("current", 0), detail["total"])
            done, total = (sum(bytes_[index] for bytes_ in self._layers.values()) for index in (0, 1))
            self._reporter.progress("pull", done, total)
        elif event.get("status") in {"Pull complete", "Already exists"}:
            self._reporter.log(f"docker: {layer} {event['status']}")
        elif event.get("status") == "Download complete":
            self.downloaded.add(layer)
