"""Bringing an image into a node's docker: the layers it lacks over the blob relay, then a pull from the node itself."""

from __future__ import annotations

from collections.abc import Sequence

from sparkbuild.agent.wire.engine import PULL, Layer, PullAsk
from sparkbuild.core.run import Event, OnEvent, Progress, Run, call
from sparkbuild.images.content import Content
from sparkbuild.nodes.relay.arrival import Arrival
from sparkbuild.nodes.relay.relay import INCOMING, Blob, Relay


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

    def event(self, event: Event) -> None:
        """Of the relay."""
        if event.get("event") == "progress":
            done, total = int(event["bytes"]), int(event["total"] or 0)
            self._arrived = done >= total
            self._run.report(Progress("receive", done, total))
        elif event.get("event") == "log":
            self._run.note(str(event.get("text", "")))

    def checked(self, arrival: Arrival) -> OnEvent:
        """Of docker; a transfer that fails ends the pull as well."""

        def event(event: Event) -> None:
            if not arrival.complete.is_set() or not self._arrived:
                arrival.check()
            if event.get("event") == "log":
                self._run.note(str(event.get("text", "")))
            elif event.get("event") == "progress" and self._arrived:
                self._run.report(Progress("docker", int(event["bytes"]), int(event["total"])))

        return event
