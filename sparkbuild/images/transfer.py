"""Bringing an image into a node's docker: the layers it lacks over the blob relay, then a pull from the node itself.

Where a node's store has no room for them, or docker does not pull, `docker load` over the node's connection.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from sparkbuild.agent.wire.dockerarchive import Member, head, layer_path, pieces
from sparkbuild.agent.wire.engine import PULL, Layer, PullAsk
from sparkbuild.agent.wire.lanelabels import CREATED, TRIAL
from sparkbuild.core.errors import NodeError, SpaceError
from sparkbuild.core.interrupt import cancel
from sparkbuild.core.run import Progress, Run, call
from sparkbuild.images.content import Content
from sparkbuild.nodes.relay.arrival import Arrival
from sparkbuild.nodes.relay.relay import INCOMING, Blob, Relay

if TYPE_CHECKING:
    import docker

_BLOCK = 256 << 10  # bytes; larger ones cost a copy each in an ssh channel


def pull(
    relay: Relay,
    node: str,
    content: Content,
    missing: Sequence[Blob],
    run: Run,
    *,
    reference: str,
    key: str,
    store: str,
) -> int:
    """Have docker on the node pull the image; returns the bytes that moved. `store` is docker's ("overlay2",
    "containerd"), `key` the one that its label must have, "" for an image that is not ours.
    """
    shown = _Shown(run, sum(blob.size for blob in missing))
    with relay.carry(node, missing, shown.event, run.note) as arrival:
        ask = PullAsk(
            folder=INCOMING,
            reference=reference,
            key=key,
            architecture=content.architecture,
            config=content.config,
            layers=[Layer(sha256=blob.sha256, size=blob.size) for blob in content.layers],
            arriving=[blob.sha256 for blob in missing],
            token=arrival.token,
            sources=arrival.sources,
            containerd=store == "containerd",
        )
        pulled = call(run.agent(node), PULL, ask, shown.checked(arrival))
        return 0 if pulled.get("found") else arrival.wait() + pulled["fetched"]


class _Shown:
    """What is told of a transfer: bytes that arrive, then what docker makes of them."""

    def __init__(self, run: Run, total: int) -> None:
        self._run = run
        self._total = total
        self._arrived = total == 0

    def event(self, event: dict[str, Any]) -> None:
        """Of the relay."""
        if event.get("event") == "progress":
            done, total = int(event["bytes"]), int(event["total"] or 0)
            self._arrived = done >= total
            self._run.report(Progress("receive", done, total))
        elif event.get("event") == "log":
            self._run.note(str(event.get("text", "")))

    def checked(self, arrival: Arrival) -> Any:
        """Of docker; a transfer that fails ends the pull as well."""

        def event(event: dict[str, Any]) -> None:
            if not arrival.complete.is_set() or not self._arrived:
                arrival.check()
            if event.get("event") == "log":
                self._run.note(str(event.get("text", "")))
            elif event.get("event") == "progress" and self._arrived:
                self._run.report(Progress("docker", int(event["bytes"]), int(event["total"])))

        return event


def load(client: docker.DockerClient, node: str, content: Content, run: Run, *, folder: str, reference: str) -> int:
    """Send the whole image, whose layers lie in `folder` of this machine, to `docker load`; returns the bytes sent.

    Raises NodeError, or SpaceError when docker's disk is full. The image may be unusable for all that docker says (its
    containerd store ends a load on a full disk with success), so a container is made of it, and removed.
    """
    from docker.errors import DockerException  # noqa: PLC0415 - costs 200 ms
    from requests.exceptions import RequestException  # noqa: PLC0415 - "

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
    import docker  # noqa: PLC0415 - costs 170 ms

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
