"""Bringing an assembled image into a node's docker: `docker load` through its API, over the node's connection."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from sparkbuild.core.errors import NodeError, SpaceError
from sparkbuild.core.interrupt import cancel
from sparkbuild.core.run import Progress, Run

if TYPE_CHECKING:
    import docker

_BLOCK = 256 << 10  # bytes; larger ones cost a copy each in an ssh channel


def transfer(client: docker.DockerClient, node: str, archive: str, reference: str, run: Run) -> int:
    """Send the archive and have docker load it; returns the bytes sent. Docker names the image only when it has all
    of it, and checks each layer against its id.

    Raises NodeError, or SpaceError when docker's disk is full. The image may be unusable for all that docker says (its
    containerd store ends a load on a full disk with success), so a container is made of it, and removed.
    """
    from docker.errors import DockerException  # noqa: PLC0415 - costs 200 ms
    from requests.exceptions import RequestException  # noqa: PLC0415 - "

    size = os.path.getsize(archive)
    api: Any = client.api
    before, api.timeout = api.timeout, None  # docker says nothing while it unpacks, however long that takes
    try:
        for event in api.load_image(_pieces(archive, size, run)):
            text = str(event.get("error") or event.get("stream") or "").strip()
            if text:
                run.note(text)
            if event.get("error") or text.startswith("Error"):
                raise _failed(node, text)
        container = api.create_container(reference, command=["/"], labels={"sparkbuild.trial": reference})
        api.remove_container(container["Id"], force=True)
    except (DockerException, RequestException, OSError) as error:
        raise api.lost() or _failed(node, str(getattr(error, "explanation", None) or error)) from error
    finally:
        api.timeout = before
    return size


def _pieces(archive: str, size: int, run: Run) -> Iterator[bytes]:
    done = 0
    with open(archive, "rb") as file:
        while piece := file.read(_BLOCK):
            cancel.check()
            yield piece
            done += len(piece)
            run.report(Progress("send" if done < size else "docker unpacks", done, size))


def _failed(node: str, text: str) -> NodeError | SpaceError:
    what = f"docker on {node} did not take the image"
    if "no space left" in text.lower():
        return SpaceError(what, found=text, next="make room on docker's disk, then run again; nothing was kept")
    return NodeError(what, found=text, next="run again; what was sent without being complete was not kept")
