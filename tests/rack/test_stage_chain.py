"""Four nodes with one slow NAS stage the same folder: it is read once, whatever happens to one of them."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sparkbuild.core.errors import NodeError
from sparkbuild.core.run import Progress, Run
from sparkbuild.nodes.cluster import Nodes, Place
from sparkbuild.staging.chain import Chains, Seat
from tests.rack.nas import Nas
from tests.rack.node import Node
from tests.rack.proc import wait_for
from tests.rack.rack import Rack
from tests.rack.syncing import QUIET, STORE, listening

pytestmark = pytest.mark.usefixtures("nas_python")
MB = 1_000_000
MIB = 1 << 20
AT = "/mnt/nas"
KEY = "d" * 64
SIZES = (24 * MIB, 9 * MIB + 1, 30 * MIB, 1000)


@pytest.fixture(scope="module")
def four(possible: None) -> Iterator[Rack]:  # noqa: ARG001 - a fixture for what it does
    with Rack.up(4, docker=False) as rack:
        yield rack


class Yard:
    """One run of one operator."""

    def __init__(self, rack: Rack, folder: Path, nas: Nas, source: Path) -> None:
        places = {}
        for node in rack.nodes:
            key, more = str(node.key_file), {"host_key": node.host_key}
            places[node.name] = Place("ssh", STORE, node.address, node.user, node.port, key, **more)
        self.rack, self.folder, self.nas, self.source = rack, folder, nas, source
        self.nodes = Nodes(folder, places)
        self.chains = Chains(self.nodes)
        self.log = folder / "log"

    def request(self, **more: Any) -> dict[str, Any]:
        files = [{"name": path.name, "source": {"kind": "file", "path": f"{AT}/{path.name}", "id": path.name}}
                 for path in sorted(self.source.iterdir())]  # fmt: skip
        return {"dst": "staged/x", "key": KEY, "parts": {}, "what": {"kind": "list", "files": files}, **more}

    def right(self, node: Node) -> bool:
        there = node.path(f"{STORE}/staged/x")
        return all((there / path.name).read_bytes() == path.read_bytes() for path in self.source.iterdir())

    def end(self) -> None:
        self.nodes.close()


class Step(threading.Thread):
    """One node's step; the next one is made when this one has its seat."""

    def __init__(self, yard: Yard, node: Node) -> None:
        super().__init__(daemon=True)
        self.yard, self.node = yard, node
        self.seat: Seat | None = None
        self.done = 0
        self.result: dict[str, Any] = {}
        self.error: BaseException | None = None
        self._joined = threading.Event()
        self.start()
        assert self._joined.wait(30)

    def run(self) -> None:
        yard = self.yard
        run = Run(root=yard.folder, log=yard.log, agent=yard.nodes.agent, report=self._report)
        try:
            with yard.chains.join(KEY, self.node.name, "staged/x", run) as self.seat:
                self._joined.set()
                self.result = run.call(self.node.name, "stage", yard.request(peers=self.seat.peers))
        except BaseException as error:  # noqa: BLE001 - looked at by the test
            self.error = error
            self._joined.set()

    def _report(self, progress: Progress) -> None:
        if progress.phase == "stage":
            self.done = progress.done


def ended(steps: list[Step]) -> list[Step]:
    for step in steps:
        step.join(120)
        assert not step.is_alive(), step.node.name
    return steps


@pytest.fixture
def op(four: Rack, tmp_path: Path) -> Iterator[Yard]:
    source = tmp_path / "model"
    source.mkdir()
    for number, size in enumerate(SIZES):
        (source / f"{number}.bin").write_bytes(os.urandom(size))
    nas = four.nas(source, mb_per_s=20, latency_ms=1, direct_io=True)
    for node in four.nodes:
        node.boot()
        node.run(["rm", "-rf", f"{STORE}/staged"], check=True)
        nas.mount(node, AT)
    made = Yard(four, tmp_path, nas, source)
    yield made
    made.end()
    for node in (node for node in four.nodes if node.is_on()):
        node.heal()
        wait_for(f"nobody listens on {node.name}", lambda node=node: listening(node) <= QUIET, 5)
        nas.unmount(node, AT)


def test_four_nodes_read_the_nas_once(op: Yard) -> None:
    total = sum(SIZES)
    alone = time.monotonic()
    steps = ended([Step(op, op.rack.nodes[0])])
    alone = time.monotonic() - alone
    assert steps[0].result["read"] == op.nas.bytes_read() == total
    op.nas.forget()
    op.rack.nodes[0].run(["rm", "-rf", f"{STORE}/staged"], check=True)
    op.chains = Chains(op.nodes)
    start = time.monotonic()
    steps = ended([Step(op, node) for node in op.rack.nodes])
    took = time.monotonic() - start
    assert [step.error for step in steps] == [None] * 4
    assert all(op.right(step.node) for step in steps)
    assert [step.seat.givers for step in steps if step.seat] == [
        (),
        ("dgx1",),
        ("dgx2", "dgx1"),
        ("dgx3", "dgx2", "dgx1"),
    ]
    assert op.nas.bytes_read(node="dgx1") == total
    assert op.nas.bytes_read() == total + 3 * 1000, "small files are read by each"
    assert [step.result["received"] for step in steps[1:]] == [total - 1000] * 3
    print(f"one node {alone:.1f} s, four nodes {took:.1f} s, {took / alone:.2f}x")
    assert took < 2.5 * alone, "not one after the other"


def test_one_without_power_in_the_middle(op: Yard) -> None:
    """The second of the chain: those after it go on with the first; it goes on where it was once it is back."""
    total = sum(SIZES)
    op.nas.slow(mb_per_s=8)
    first, second, third, fourth = steps = [Step(op, node) for node in op.rack.nodes]
    wait_for("the second has some", lambda: second.done > 16 * MIB, 60)
    second.node.kill()
    op.nas.slow(mb_per_s=20)
    ended(steps)
    assert isinstance(second.error, NodeError)
    assert [step.error for step in (first, third, fourth)] == [None] * 3
    assert all(op.right(step.node) for step in (first, third, fourth))
    # files whose giver died, and whose content nobody else could confirm, would be read again: none are
    assert op.nas.bytes_read() < 1.1 * total
    assert "dgx3" in op.log.read_text()
    second.node.boot()
    op.nas.mount(second.node, AT)
    before = op.nas.bytes_read()
    back = ended([Step(op, second.node)])[0]
    assert back.error is None
    assert op.right(second.node)
    assert back.result["received"] < total - 8 * MIB, "what it had is kept"
    assert op.nas.bytes_read() - before <= 1000
    assert back.seat
    assert set(back.seat.givers) <= {"dgx1", "dgx3", "dgx4"}


def test_the_first_without_power_in_the_middle(op: Yard) -> None:
    total = sum(SIZES)
    steps = [Step(op, node) for node in op.rack.nodes]
    wait_for("the last has some", lambda: steps[3].done > 12 * MIB, 60)
    steps[0].node.kill()
    ended(steps)
    assert isinstance(steps[0].error, NodeError)
    assert [step.error for step in steps[1:]] == [None] * 3
    assert all(op.right(step.node) for step in steps[1:])
    assert op.nas.bytes_read() < 2.3 * total


def test_nodes_that_do_not_reach_each_other(op: Yard) -> None:
    """The way leads over this machine."""
    one, other = op.rack.nodes[:2]
    one.run(["iptables", "-I", "INPUT", "-s", other.address, "-j", "DROP"], check=True)
    try:
        steps = ended([Step(op, one), Step(op, other)])
    finally:
        one.run(["iptables", "-F", "INPUT"], check=True)
    assert [step.error for step in steps] == [None, None]
    assert op.right(other)
    assert steps[1].result["read"] == 1000
