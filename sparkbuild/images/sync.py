"""How an assembled image gets into a node's docker, and when it is right there: by its labels and its layers."""

from __future__ import annotations

import os
from typing import Any

import msgspec

from sparkbuild.core.errors import SpaceError
from sparkbuild.core.goal import Goal
from sparkbuild.core.plan import OK, RUN, UNKNOWN, Verdict
from sparkbuild.core.reasons import Reason, differences
from sparkbuild.core.run import Run
from sparkbuild.core.state import Made
from sparkbuild.images.docker import archive_in_store, reference
from sparkbuild.images.transfer import transfer
from sparkbuild.nodes.cluster import Nodes

# What a load needs on docker's disk for each byte of the archive, measured: overlay2 writes a copy of all of it, then
# unpacks that; containerd's store keeps both. (A pull of layers would need 1.2 on overlay2.)
ROOM = 2.0


class SyncKind:
    """How docker images on nodes are looked at and brought there."""

    scheme = "image"

    def __init__(self, nodes: Nodes) -> None:
        self._nodes = nodes

    def query(self, goal: Goal) -> dict[str, Any]:
        """What the agent needs to look, with the layers that the image had when it was assembled, where they are known:
        a label can be put on any image.
        """
        return {
            "kind": "docker",
            "reference": reference(goal.spec.name, goal.key),
            "key": goal.key.digest,
            "architecture": goal.spec.architecture,
            "layers": self._receipt(goal).get("layers", []),
        }

    def judge(self, goal: Goal, fact: dict[str, Any], last: Made | None) -> Verdict:
        """In docker with this key and these layers, or why not, or why that cannot be told."""
        if "unreachable" in fact:
            return Verdict(UNKNOWN, (Reason("node", f"{goal.node} does not answer: {fact['unreachable']}"),), None)
        if "silent" in fact:
            return Verdict(UNKNOWN, (Reason("docker", _silent(goal.node, fact)),), None, fact)
        if fact["present"]:
            text = f"{fact['architecture']}, {len(fact['layers'])} layers, {fact['bytes'] / 1e6:.1f} MB"
            return Verdict(OK, (), 0, fact, text)
        size = int(self._receipt(goal).get("bytes", 0)) or (last.bytes if last else None)
        engine = fact.get("engine") or {}
        wanted, found = goal.spec.architecture, engine.get("architecture")
        if found and found != wanted:
            text = f"image for {wanted}, node {goal.node} is {found}"
            return Verdict(UNKNOWN, (Reason("architecture", text),), None, fact)
        if fact.get("problem"):
            return Verdict(RUN, (Reason("content", str(fact["problem"])),), size, fact)
        reasons = differences(last.parts, goal.key.parts) if last else ()
        if not reasons:
            reasons = (Reason("image", "was there before, is gone" if last else "not on the node yet"),)
        return Verdict(RUN, reasons, size, fact)

    def apply(self, goal: Goal, verdict: Verdict, run: Run) -> int:
        """Load it; returns the bytes sent. Whether it is right is seen by the next look."""
        archive = os.path.join(self._folder(goal), "image.tar")
        engine = (verdict.fact or {}).get("engine") or {}
        check_room(goal.node, engine, os.path.getsize(archive))
        client = self._nodes.docker(goal.node)
        return transfer(client, goal.node, archive, reference(goal.spec.name, goal.key), run)

    def _folder(self, goal: Goal) -> str:
        (made,) = goal.needs
        return os.path.join(self._nodes.store(made.node), archive_in_store(goal.spec.name, goal.key))

    def _receipt(self, goal: Goal) -> dict[str, Any]:
        try:
            with open(os.path.join(self._folder(goal), "receipt.json"), "rb") as file:
                found = msgspec.json.decode(file.read(), type=dict[str, Any])
        except (OSError, msgspec.MsgspecError):
            return {}
        return found if found.get("key") == goal.key.digest else {}


def check_room(node: str, engine: dict[str, Any], size: int) -> None:
    """Raise SpaceError when docker's disk has no room for an image of `size` bytes, as far as that is known."""
    free = engine.get("free")
    needed = int(size * ROOM)
    if free is not None and free < needed:
        raise SpaceError(
            f"docker's disk on {node} has no room for the image",
            where=str(engine.get("root", "")),
            found=f"{free / 1e6:.0f} MB free",
            wanted=f"{needed / 1e6:.0f} MB: docker unpacks a copy",
            next=f"`docker system df` on {node} says what takes the room",
        )


def _silent(node: str, fact: dict[str, Any]) -> str:
    text = f"docker on {node} cannot be asked: {fact['silent']}"
    return f"{text} ({fact['next']})" if fact.get("next") else text
