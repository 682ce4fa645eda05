"""`docker load` over a node's connection: where its store has no room for the layers, or docker does not pull."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from functools import partial
from typing import Any

import docker
from docker.errors import DockerException
from requests.exceptions import RequestException

from sparkbuild.agent.wire.dockerarchive import Member, head, layer_path, pieces
from sparkbuild.agent.wire.lanelabels import CREATED, TRIAL
from sparkbuild.core.errors import NodeError, SpaceError
from sparkbuild.core.interrupt import cancel
from sparkbuild.core.run import Progress, Run
from sparkbuild.images.content import Content

_BLOCK = 256 << 10  # bytes; larger ones cost a copy each in an ssh channel


def load(client: docker.DockerClient, node: str, content: Content, run: Run, *, folder: str, reference: str) -> int:
    """Send the whole image, whose layers lie in `folder` of this machine, to `docker load`; returns the bytes sent.

    Raises NodeError, or SpaceError when docker's disk is full. The image may be unusable for all that docker says (its
    containerd store ends a load on a full disk with success), so a container is made of it, and removed.
    """
    size = sum(blob.size for blob in content.layers)
    api: Any = client.api
    before, api.timeout = api.timeout, None  # docker says nothing while it unpacks, however long that takes
    try:
        for event in api.load_image(_archive(content, folder, reference, size, run)):
            text = str(event.get("error") or event.get("stream") or "").strip()
            if text:
                run.note(text)
            if event.get("error") or text.startswith("Error"):
                raise _failed(node, text)
        _try(api, reference)
    except (DockerException, RequestException, OSError) as error:
        raise api.lost() or _failed(node, str(getattr(error, "explanation", None) or error)) from error
    finally:
        api.timeout = before
    return size


def _try(api: Any, reference: str) -> None:
    """Make a container and remove it, and with it those that a lost connection left: each holds its image."""
    api.create_container(reference, command=["/"], labels={TRIAL: reference})
    for box in api.containers(all=True, filters={"label": [TRIAL], "status": [CREATED]}):
        with contextlib.suppress(docker.errors.NotFound):  # somebody else does the same
            api.remove_container(box["Id"], force=True)


def _archive(content: Content, folder: str, reference: str, total: int, run: Run) -> Iterator[bytes]:
    """The whole image as a docker-archive; tells what was sent."""
    done = 0

    def layer(sha256: str) -> Iterator[bytes]:
        nonlocal done
        with open(os.path.join(folder, sha256), "rb") as file:
            while piece := file.read(_BLOCK):
                cancel.check()
                yield piece
                done += len(piece)
                run.report(Progress("send" if done < total else "docker unpacks", done, total))

    layers = [Member(layer_path(blob.sha256), blob.size, partial(layer, blob.sha256)) for blob in content.layers]
    config = content.config.encode()
    return pieces([*head(reference, "config.json", config, [blob.sha256 for blob in content.layers]), *layers])


def _failed(node: str, text: str) -> NodeError | SpaceError:
    what = f"docker on {node} did not take the image"
    if "no space left" in text.lower():
        return SpaceError(what, found=text, next="make room on docker's disk, then run again; nothing was kept")
    return NodeError(what, found=text, next="run again; what was sent without being complete was not kept")
