"""Ways between nodes: where one of them reaches a port of another, directly or carried through this machine."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from sparkbuild.agent.wire.nodes import NETWORK, PREFLIGHT
from sparkbuild.agent.wire.store import Place
from sparkbuild.core.errors import NodeError
from sparkbuild.nodes.ask import survey
from sparkbuild.nodes.relay import addresses

if TYPE_CHECKING:
    from sparkbuild.nodes.cluster import Nodes

LOOPBACK = "127.0.0.1"

# Mbit/s of a giver's wire for each receiver, from which on nobody has to pass anything on: all ask the giver itself.
PER_RECEIVER = 8000


class Ways:
    """The ways that are open; what nodes say of their networks is asked once. Nodes talk to each other directly; no
    node logs in to another. Close it.
    """

    def __init__(self, nodes: Nodes) -> None:
        self._nodes = nodes
        self._facts: dict[str, dict[str, Any]] = {}
        self._open = ExitStack()

    def is_here(self, node: str) -> bool:
        """Whether it is this machine."""
        return self._nodes.place(node).connection == "local"

    def listen(self, node: str) -> list[str]:
        """The addresses to listen on, for others to reach the node by. NodeError when it does not answer."""
        outside = [] if self.is_here(node) else [str(one.ip) for _, one in addresses.addresses(self._fact(node))]
        return [LOOPBACK, *dict.fromkeys(outside)]

    def feeds_all(self, giver: str, node: str, receivers: int) -> bool:
        """Whether the giver's wire to the node is so fast that it can give to so many at once."""
        if self.is_here(giver) or self.is_here(node):
            return False
        found = addresses.ways(self._fact(giver), self._fact(node), self._nodes.fabrics)
        return bool(found) and found[0][1] >= PER_RECEIVER * receivers

    def sources(self, giver: str, ports: Mapping[str, int], node: str) -> list[Place]:
        """Where the node reaches the giver, which listens on these ports (by address), the best
        way first. NodeError when nothing can be carried between them.
        """
        port = ports[LOOPBACK]
        if giver == node:
            return [_place(LOOPBACK, port)]
        if self.is_here(giver):
            return [_place(LOOPBACK, port if self.is_here(node) else self._carried_back(node, port))]
        if self.is_here(node):
            return [_place(*self._door(giver, port))]
        found = addresses.ways(self._fact(giver), self._fact(node), self._nodes.fabrics)
        open_ = self._reached(node, [address for address, _ in found if address in ports])
        direct = [_place(address, ports[address]) for address in open_]
        return direct or [_place(LOOPBACK, self._carried_back(node, self._door(giver, port)[1]))]

    def close(self) -> None:
        """End those that are carried through this machine."""
        self._open.close()

    def _fact(self, node: str) -> dict[str, Any]:
        if node not in self._facts:
            fact = survey(self._nodes.agent, {node: {"scheme": NETWORK}})[node]
            if "unreachable" in fact:
                raise NodeError(f"{node} does not answer", found=str(fact["unreachable"]), next="doit health")
            self._facts[node] = fact
        return self._facts[node]

    def _reached(self, node: str, peers: list[str]) -> list[str]:
        """Those of the addresses that answer the node."""
        fact = survey(self._nodes.agent, {node: {"scheme": PREFLIGHT, "peers": peers}})[node] if peers else {}
        silent = fact.get("unreachable") or ()
        return [peer for peer in peers if not isinstance(silent, str) and all(one["peer"] != peer for one in silent)]

    def _carried_back(self, node: str, port: int) -> int:
        """A port of the node's 127.0.0.1 that leads to one of this machine's."""
        there, undo = self._nodes.carried_back(node, port)
        self._open.callback(undo)
        return there

    def _door(self, giver: str, port: int) -> tuple[str, int]:
        """A port of this machine that leads to one of the giver's 127.0.0.1."""
        return self._open.enter_context(self._nodes.forwarded(giver, LOOPBACK, port))


def _place(host: str, port: int) -> Place:
    return Place(host=host, port=port)
