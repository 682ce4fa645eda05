"""Chains of nodes that want the same bytes, all of them on this machine: who reads the NAS, who takes from whom."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sparkbuild.core.errors import SparkbuildError
from sparkbuild.core.run import Run
from sparkbuild.nodes.cluster import Nodes, Place
from sparkbuild.staging.chain import Chains, Seat

MIB = 1 << 20
KEY = "c" * 64
SIZE = 24 * MIB


class Yard:
    """Four nodes with stores of their own, and a folder that all of them want."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.nodes = Nodes(folder, {f"n{number}": Place("local", f"store{number}") for number in range(1, 5)})
        self.chains = Chains(self.nodes)
        self.source = folder / "nas"
        self.source.mkdir()
        for number in range(3):
            (self.source / f"{number}.bin").write_bytes(os.urandom(SIZE // 3))
        self.run = Run(root=folder, log=folder / "log", agent=self.nodes.agent)

    def request(self, **more: Any) -> dict[str, Any]:
        files = [{"name": path.name, "source": {"kind": "file", "path": str(path), "id": path.name}}
                 for path in sorted(self.source.iterdir())]  # fmt: skip
        return {"dst": "staged", "key": KEY, "parts": {}, "what": {"kind": "list", "files": files}, **more}

    def stage(self, node: str, seat: Seat, **more: Any) -> dict[str, Any]:
        return self.run.call(node, "stage", self.request(peers=seat.peers, **more))

    def right(self, node: str) -> bool:
        there = Path(self.nodes.store(node)) / "staged"
        return all((there / path.name).read_bytes() == path.read_bytes() for path in self.source.iterdir())

    @property
    def log(self) -> str:
        return (self.folder / "log").read_text()


@pytest.fixture
def yard(tmp_path: Path) -> Iterator[Yard]:
    made = Yard(tmp_path)
    yield made
    made.nodes.close()


class Step(threading.Thread):
    """One node's step."""

    def __init__(self, yard: Yard, node: str, work: Callable[[str, Seat], dict[str, Any]], **more: Any) -> None:
        super().__init__(daemon=True)
        self.yard, self.node, self.work, self.more = yard, node, work, more
        self.seat: Seat | None = None
        self.joined = threading.Event()
        self.result: dict[str, Any] = {}
        self.error: BaseException | None = None
        self.start()
        assert self.joined.wait(20)

    def run(self) -> None:
        try:
            with self.yard.chains.join(KEY, self.node, "staged", self.yard.run, **self.more) as seat:
                self.seat = seat
                self.joined.set()
                self.result = self.work(self.node, seat)
        except BaseException as error:  # noqa: BLE001 - looked at by the test
            self.error = error
            self.joined.set()


def ended(steps: list[Step]) -> list[Step]:
    for step in steps:
        step.join(60)
        assert not step.is_alive()
    return steps


def test_four_nodes_read_the_source_once(yard: Yard) -> None:
    limit = {"bwlimit": 12 * MIB}
    before = set(threading.enumerate())  # those of other tests may be among them
    steps = [Step(yard, f"n{number}", lambda node, seat: yard.stage(node, seat, **limit)) for number in range(1, 5)]
    ended(steps)
    assert [step.error for step in steps] == [None] * 4
    assert all(yard.right(step.node) for step in steps)
    assert [step.result["read"] for step in steps] == [SIZE, 0, 0, 0]
    assert [step.result["received"] for step in steps] == [0, SIZE, SIZE, SIZE]
    assert steps[0].seat == Seat(None)
    assert [step.seat.givers for step in steps if step.seat] == [(), ("n1",), ("n2", "n1"), ("n3", "n2", "n1")]
    assert "n3 takes from n2, then n1; what they lack, from the source" in yard.log
    begun = [thread for thread in threading.enumerate() if thread not in before]
    assert len([thread for thread in begun if not thread.name.startswith("agent ")]) < 10


def test_the_reader_fails(yard: Yard) -> None:
    """It ends with an error, before it has read anything: the others do without it."""
    go = threading.Event()

    def fail(_node: str, _seat: Seat) -> dict[str, Any]:
        go.wait(20)
        raise SparkbuildError("no room")

    steps = [Step(yard, "n1", fail), Step(yard, "n2", yard.stage), Step(yard, "n3", yard.stage)]
    time.sleep(2)
    assert steps[1].is_alive(), "it waits for the first"
    go.set()
    ended(steps)
    assert str(steps[0].error) == "no room"
    assert [step.error for step in steps[1:]] == [None, None]
    assert yard.right("n2")
    assert yard.right("n3")
    assert steps[1].result["read"] == SIZE
    assert steps[2].result["read"] == 0


def test_who_comes_later_takes_from_who_is_done(yard: Yard) -> None:
    first = ended([Step(yard, "n1", yard.stage)])[0]
    second = ended([Step(yard, "n2", yard.stage)])[0]
    assert (first.result["read"], second.result["read"]) == (SIZE, 0)
    again = ended([Step(yard, "n1", yard.stage)])[0]
    assert again.result["bytes"] == 0


def test_holders_are_asked(yard: Yard) -> None:
    yard.stage("n4", Seat(None))
    steps = [Step(yard, f"n{number}", yard.stage, holders=[("n4", "staged")]) for number in (1, 2)]
    ended(steps)
    assert [step.result["read"] for step in steps] == [0, 0]
    assert [step.seat.givers for step in steps if step.seat] == [("n4",), ("n1", "n4")]
    assert yard.right("n1")
    assert yard.right("n2")


def test_a_holder_that_holds_nothing_any_more(yard: Yard) -> None:
    step = ended([Step(yard, "n1", yard.stage, holders=[("n4", "staged"), ("n1", "staged")])])[0]
    assert (step.error, step.result["read"]) == (None, SIZE)
    assert yard.right("n1")


def test_a_node_that_cannot_give(yard: Yard) -> None:
    """As when its agent does not answer: told, and no reason to stop."""
    place = Place("ssh", "/srv/x", address="127.0.0.1", port=1, user="nobody")
    yard.nodes = Nodes(yard.folder, {"n1": place, "n2": Place("local", "store2")})
    yard.chains = Chains(yard.nodes)
    yard.run = Run(root=yard.folder, log=yard.folder / "log", agent=yard.nodes.agent)
    first = Step(yard, "n1", yard.stage)
    second = Step(yard, "n2", yard.stage)
    ended([first, second])
    assert isinstance(first.error, SparkbuildError)
    assert second.seat == Seat(None)
    assert second.result["read"] == SIZE
    assert "n1 gives nothing to others" in yard.log
