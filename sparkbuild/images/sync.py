"""How an image gets into a node's docker, and when it is right there: by its labels and its layers."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from sparkbuild.agent.wire.dockerimages import OWN_IMAGE, EngineRoom, ImageAbsent, ImageFact, OwnImageAsk
from sparkbuild.agent.wire.receipts import ArchiveReceipt
from sparkbuild.core.errors import NoForwardingError, NotPulledError
from sparkbuild.core.goal import Goal
from sparkbuild.core.plan import OK, RUN, UNKNOWN, Verdict
from sparkbuild.core.reasons import Reason, differences
from sparkbuild.core.run import Run
from sparkbuild.core.state import Made, size_again
from sparkbuild.core.units import count
from sparkbuild.images import transfer
from sparkbuild.images.content import BLOBS, Content, arrived, blobs_of, describe, lacking, receipt_here, remember
from sparkbuild.images.docker import reference, unasked
from sparkbuild.images.relays import Relays
from sparkbuild.images.room import LOAD, check_disk, check_room
from sparkbuild.nodes.ask import look
from sparkbuild.nodes.cluster import LOCAL, Nodes
from sparkbuild.nodes.relay.relay import INCOMING, Blob
from sparkbuild.nodes.unreached import Unreached, unreached


class SyncKind:
    """How docker images on nodes are looked at and brought there."""

    scheme: str = OWN_IMAGE

    def __init__(self, nodes: Nodes, relays: Relays | None = None) -> None:
        self._nodes = nodes
        self._relays = relays or Relays(nodes)

    def query(self, goal: Goal) -> OwnImageAsk:
        """What the agent needs to look, with the layers that the image had when it was made, where they are known: a
        label can be put on any image.
        """
        receipt = self._receipt(goal)
        return {
            "kind": "docker",
            "reference": reference(goal.spec.name, goal.key),
            "key": goal.key.digest,
            "architecture": goal.spec.architecture,
            "layers": receipt["layers"] if receipt else [],
            "sizes": receipt["sizes"] if receipt else [],
            "incoming": INCOMING,
        }

    def judge(self, goal: Goal, fact: ImageFact | ImageAbsent | Unreached, last: Made | None) -> Verdict:
        """In docker with this key and these layers, or why not, or why that cannot be told."""
        unknown = unasked(goal, fact)
        if unknown is not None or "unreachable" in fact:
            return unknown or unreached(goal, fact)
        if fact["present"]:
            return Verdict(OK, (), 0, fact, told_of(fact))
        engine, wanted = fact.get("engine"), goal.spec.architecture
        if engine and engine["architecture"] not in {"", wanted}:
            text = f"image for {wanted}, node {goal.node} is {engine['architecture']}"
            return Verdict(UNKNOWN, (Reason("architecture", text),), None, fact)
        receipt = self._receipt(goal)
        moves = lacking(fact, receipt)
        size = moves[1] if moves else receipt["bytes"] if receipt else size_again(last, goal.key.digest)
        reasons: tuple[Reason, ...] = (Reason("content", str(fact["problem"])),) if fact.get("problem") else ()
        reasons = reasons or (differences(last.parts, goal.key.parts) if last else ())
        if not reasons:
            reasons = (Reason("image", "was there before, is gone" if last else "not on the node yet"),)
        return Verdict(RUN, (*reasons, *_partial(moves, receipt)), size, fact)

    def apply(self, goal: Goal, verdict: Verdict, run: Run) -> int:
        """Bring what is missing; returns the bytes moved. Whether it is right is seen by the next look."""
        (archive,) = goal.needs
        name, holder = goal.spec.name, archive.node
        content, receipt = describe(run.agent(holder), name, goal.key)
        remember(self._nodes.store(LOCAL), name, goal.key, receipt)
        fact: ImageFact | ImageAbsent = verdict.fact or ImageAbsent(present=False)
        moves = lacking(fact, receipt)
        if moves is None:  # it was made on another node meanwhile: what it is made of is known only now
            query = self.query(goal)
            query["layers"], query["sizes"] = receipt["layers"], receipt["sizes"]
            fact = look(run.agent(goal.node), goal.node, OWN_IMAGE, query)
            moves = lacking(fact, receipt) or (content.layers, 0)
        missing, engine = moves[0], fact.get("engine")
        spooled = check_room(goal.node, engine, sum(blob.size for blob in missing), arrived(fact))
        wanted = reference(name, goal.key)
        if spooled:
            advice = f'build_node = "{LOCAL}" in images/{name}/image.toml: from this machine no port is needed'
            try:
                with advising(advice), self._relays.join(holder, goal.key.digest, BLOBS, content.layers) as relay:
                    return transfer.pull(
                        relay, goal.node, content, missing, run,
                        reference=wanted, key=goal.key.digest, store=engine["store"] if engine else "",
                    )  # fmt: skip
            except NotPulledError as error:
                if self._nodes.place(holder).connection != "local":
                    raise
                run.note(f"{error}\nanother way: docker load, over the connection")
        return self._load(goal, content, engine, run)

    def _load(self, goal: Goal, content: Content, engine: EngineRoom | None, run: Run) -> int:
        from sparkbuild.images.loading import load  # noqa: PLC0415 - docker's client costs 200 ms

        holder = goal.needs[0].node
        check_disk(goal.node, engine, sum(blob.size for blob in content.layers), LOAD)
        folder = os.path.join(self._nodes.store(holder), BLOBS)
        client = self._nodes.docker(goal.node)
        wanted = reference(goal.spec.name, goal.key)
        return load(client, goal.node, content, run, folder=folder, reference=wanted)

    def _receipt(self, goal: Goal) -> ArchiveReceipt | None:
        (archive,) = goal.needs
        holder = archive.node if self._nodes.place(archive.node).connection == "local" else LOCAL
        return receipt_here(self._nodes.store(holder), goal.spec.name, goal.key)


def told_of(fact: ImageFact) -> str:
    """An image that is there, in one line."""
    return f"{fact['architecture']}, {count(len(fact['layers']), 'layer')}, {fact['bytes'] / 1e6:.1f} MB"


def _partial(moves: tuple[tuple[Blob, ...], int] | None, receipt: ArchiveReceipt | None) -> tuple[Reason, ...]:
    if moves is None or receipt is None:
        return ()
    every, lacks = blobs_of(receipt), moves[0]
    here = sum(blob.size for blob in lacks) - moves[1]
    told = []
    if len(lacks) < len(every):
        told.append(f"{len(lacks)} of {len(every)} layers are missing there")
    if here:
        told.append(f"{here / 1e6:.1f} MB have arrived already")
    return tuple(Reason("layers", text) for text in told)


@contextmanager
def advising(other: str) -> Iterator[None]:
    """What may be done where a node's sshd forwards no port, and nothing can be written to it instead."""
    try:
        yield
    except NoForwardingError as error:
        error.next = f"AllowTcpForwarding yes in sshd_config there, and reload sshd; or {other}"
        raise
