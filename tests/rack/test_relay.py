"""The blob relay on real nodes and wires, without docker: chains, links that break, ways that are closed."""

from __future__ import annotations

import hashlib
import random
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from sparkbuild.core.errors import IntegrityError, SparkbuildError
from sparkbuild.nodes.relay.arrival import Arrival
from sparkbuild.nodes.relay.relay import INCOMING, Blob, Relay
from tests.rack.node import Node
from tests.rack.proc import wait_for
from tests.rack.rack import Rack
from tests.rack.syncing import QUIET, STORE, Yard, listening, received, sent, spool, yard
from tests.workspace_tool import until

pytestmark = pytest.mark.usefixtures("possible")
MB = 1_000_000


@pytest.fixture(scope="module")
def three(possible: None) -> Iterator[Rack]:  # noqa: ARG001 - a fixture for what it does
    with Rack.up(3, docker=False) as rack:
        yield rack


@pytest.fixture
def op(three: Rack, tmp_path: Path) -> Iterator[Yard]:
    for node in three.nodes:
        node.boot()
        node.run(["rm", "-rf", f"{STORE}/{INCOMING}", f"{STORE}/things"], check=True)
    with yard(three, tmp_path) as made:
        yield made
    for node in (node for node in three.nodes if node.is_on()):
        node.heal()
        node.rate(None)
        wait_for(f"nobody listens on {node.name}", lambda node=node: listening(node) <= QUIET, 3)


def things(store: Path, count: int = 3, size: int = 8 * MB) -> list[Blob]:
    """Blobs in the folder `things` of a store."""
    folder = store / "things"
    folder.mkdir(parents=True, exist_ok=True)
    found = []
    for number in range(count):
        content = random.Random(number).randbytes(size)
        name = hashlib.sha256(content).hexdigest()
        (folder / name).write_bytes(content)
        found.append(Blob(name, size))
    return found


def right(node: Node, blobs: list[Blob]) -> bool:
    contents = [node.path(f"{STORE}/{INCOMING}/{blob.sha256}").read_bytes() for blob in blobs]
    return [hashlib.sha256(content).hexdigest() for content in contents] == [blob.sha256 for blob in blobs]


class Carried:
    """Several nodes at once, in their order."""

    def __init__(self, op: Yard, relay: Relay, blobs: list[Blob], nodes: list[Node]) -> None:
        self.log: list[str] = []
        self.done: dict[str, int] = {node.name: 0 for node in nodes}
        self._stack = ExitStack()
        self.arrivals: list[Arrival] = []
        for node in nodes:
            carry = relay.carry(node.name, blobs, self._event(node.name), self.log.append)
            self.arrivals.append(self._stack.enter_context(carry))
        self._op = op

    def _event(self, name: str) -> Any:
        def event(event: dict[str, Any]) -> None:
            if event.get("event") == "progress":
                self.done[name] = int(event["bytes"])

        return event

    def wait(self) -> list[int]:
        return [arrival.wait() for arrival in self.arrivals]

    def end(self) -> None:
        self._stack.close()


def test_a_chain_from_this_machine(three: Rack, op: Yard) -> None:
    blobs = things(op.store)
    size = sum(blob.size for blob in blobs)
    for node in three.nodes:
        node.rate(4)  # half a minute for all: so slow that the last begins long before the first has half
    before = [sent(node) for node in three.nodes]
    came = [received(node) for node in three.nodes]
    relay = Relay(op.nodes, "local", "things", blobs)
    carried = Carried(op, relay, blobs, three.nodes)
    until(lambda: received(three.nodes[2]) - came[2] > MB, 60)
    assert received(three.nodes[0]) - came[0] < 0.6 * size, "not one after the other"
    for node in three.nodes:
        node.rate(None)
    assert carried.wait() == [size] * 3
    assert all(right(node, blobs) for node in three.nodes)
    carried.end()
    relay.close()
    went = [sent(node) - start for node, start in zip(three.nodes, before, strict=True)]
    assert size < went[0] < 1.1 * size + MB
    assert went[2] < MB
    assert all(received(node) - start < 1.1 * size + MB for node, start in zip(three.nodes, came, strict=True))
    assert all(spool(node) == [] for node in three.nodes)


def test_what_failed_is_kept_and_what_was_used_is_not(three: Rack, op: Yard) -> None:
    blobs = things(op.store)
    relay = Relay(op.nodes, "local", "things", blobs)
    first, second, _ = three.nodes
    with relay.carry(first.name, blobs, print, print) as arrival:
        arrival.wait()

    def fail() -> None:
        with relay.carry(second.name, blobs, print, print) as arrival:
            arrival.wait()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    relay.close()
    assert spool(first) == []
    assert spool(second) == sorted(blob.sha256 for blob in blobs)
    again = Relay(op.nodes, "local", "things", blobs)
    before = received(second)
    with again.carry(second.name, blobs, print, print) as arrival:
        assert arrival.wait() == 0
    again.close()
    assert received(second) - before < MB


@pytest.mark.parametrize("how", ["cut", pytest.param("kill", marks=pytest.mark.long)])
def test_a_link_of_the_chain_breaks(three: Rack, op: Yard, how: str) -> None:
    blobs = things(op.store, count=2, size=16 * MB)
    for node in three.nodes:
        node.rate(60)
    relay = Relay(op.nodes, "local", "things", blobs)
    carried = Carried(op, relay, blobs, three.nodes)
    first = three.nodes[0]
    try:
        wait_for("the last receives", lambda: carried.done["dgx3"] > 4 * MB, 30)
        getattr(first, how)()
        assert [arrival.wait() for arrival in carried.arrivals[1:]] == [32 * MB] * 2
        assert all(right(node, blobs) for node in three.nodes[1:])
    finally:
        carried.end()
        relay.close()


def test_from_node_to_node(three: Rack, op: Yard) -> None:
    holder, *others = three.nodes
    blobs = things(holder.path(STORE))
    link = Path(f"/sys/class/net/{three.switch.link}/statistics/rx_bytes")
    before = int(link.read_text())
    relay = Relay(op.nodes, holder.name, "things", blobs)
    carried = Carried(op, relay, blobs, others)
    carried.wait()
    assert all(right(node, blobs) for node in others)
    assert "dgx3 receives from dgx2, then dgx1" in carried.log
    assert int(link.read_text()) - before < MB, "not over this machine"
    carried.end()
    relay.close()


def test_to_this_machine(three: Rack, op: Yard) -> None:
    holder = three.nodes[0]
    blobs = things(holder.path(STORE))
    relay = Relay(op.nodes, holder.name, "things", blobs)
    with relay.carry("local", blobs, print, print) as arrival:
        arrival.wait()
        assert len(list((op.store / INCOMING).iterdir())) == 3
    relay.close()


def test_nodes_that_share_no_network(three: Rack, op: Yard) -> None:
    """Each reaches this machine, and no other: the bytes go over it."""
    holder, other, _ = three.nodes
    blobs = things(holder.path(STORE))
    drop = ["iptables", "-I", "INPUT", "-s", other.address, "-j", "DROP"]
    holder.run(drop, check=True)
    try:
        relay = Relay(op.nodes, holder.name, "things", blobs)
        with relay.carry(other.name, blobs, print, print) as arrival:
            arrival.wait()
            assert right(other, blobs)
        relay.close()
    finally:
        holder.run(["iptables", "-F", "INPUT"], check=True)


def test_a_holder_that_lost_something(three: Rack, op: Yard) -> None:
    blobs = things(op.store)
    (op.store / "things" / blobs[1].sha256).unlink()
    relay = Relay(op.nodes, "local", "things", blobs)
    with (
        pytest.raises(IntegrityError, match="1 of 3 blobs are not where they were made"),
        relay.carry(three.nodes[0].name, blobs, print, print),
    ):
        raise AssertionError("not reached")
    relay.close()


def test_a_holder_with_other_content(three: Rack, op: Yard) -> None:
    blobs = things(op.store, count=1)
    (op.store / "things" / blobs[0].sha256).write_bytes(bytes(blobs[0].size))
    relay = Relay(op.nodes, "local", "things", blobs)
    with (
        pytest.raises(SparkbuildError, match="arrived as something else"),
        relay.carry(three.nodes[0].name, blobs, print, print) as arrival,
    ):
        arrival.wait()
    relay.close()
    assert spool(three.nodes[0]) in ([], [f"{blobs[0].sha256}.part"])


def test_who_joins_late_gets_it_from_the_last(three: Rack, op: Yard) -> None:
    blobs = things(op.store)
    relay = Relay(op.nodes, "local", "things", blobs)
    log: list[str] = []
    for node in three.nodes:
        with relay.carry(node.name, blobs, print, log.append) as arrival:
            arrival.wait()
    assert log[1:] == ["dgx2 receives from dgx1, then local", "dgx3 receives from dgx2, then local"]
    relay.close()
    assert len([one for one in threading.enumerate() if not one.name.startswith("agent ")]) < 40
