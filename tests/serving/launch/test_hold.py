"""Holding all nodes of a launch: by real agents, each node a name of its own."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from sparkbuild.core.errors import NodeError
from sparkbuild.core.interrupt import Interrupted, cancel
from sparkbuild.nodes.local.agent import LocalAgent
from sparkbuild.serving.launch import hold
from sparkbuild.serving.launch.hold import held
from tests.workspace_tool import until


class Node:
    """A node of this machine: its claim has a name of its own, and `away` it cannot be reached."""

    def __init__(self, name: str, root: Path) -> None:
        self.name = f"\0sparkbuild-test-{name}-{os.urandom(8).hex()}"
        self.local = LocalAgent(name, str(root / name))
        self.away = False

    def call(
        self, verb: str, request: Mapping[str, Any], on_event: Any = None, *, final: bool = False
    ) -> dict[str, Any]:
        if self.away:
            raise NodeError("cannot reach the node")
        return self.local.call(verb, {**request, "name": self.name}, on_event, final=final)


Nodes = dict[str, Node]
BOTH = ("dgx2", "dgx1")


@pytest.fixture
def nodes(tmp_path: Path) -> Nodes:
    return {name: Node(name, tmp_path) for name in ("dgx1", "dgx2", "dgx3")}


def is_free(nodes: Nodes, *names: str) -> bool:
    try:
        with held(nodes.__getitem__, names, "probe"):
            return True
    except NodeError:
        return False


def test_they_are_held_while_the_block_runs_and_free_after_it(nodes: Nodes) -> None:
    with held(nodes.__getitem__, BOTH, "demo"):
        assert not is_free(nodes, "dgx1")
        assert not is_free(nodes, "dgx2")
        assert is_free(nodes, "dgx3")
    assert is_free(nodes, "dgx1", "dgx2")


def test_the_second_is_told_which_lane_and_who(nodes: Nodes) -> None:
    with (
        held(nodes.__getitem__, BOTH, "glm"),
        pytest.raises(NodeError) as raised,
        held(nodes.__getitem__, ("dgx3", "dgx2"), "demo"),
    ):
        pass
    assert raised.value.what == "lane glm is being launched here at this moment"
    assert raised.value.where == "node dgx2"
    assert f", process {os.getpid()} since " in raised.value.found


def test_an_error_inside_frees_them(nodes: Nodes) -> None:
    with pytest.raises(ZeroDivisionError), held(nodes.__getitem__, BOTH, "demo"):
        _ = 1 / 0
    assert is_free(nodes, *BOTH)


def test_when_the_last_cannot_be_held_the_first_ones_are_free_again(nodes: Nodes) -> None:
    nodes["dgx3"].away = True
    with (
        pytest.raises(NodeError, match="cannot reach the node"),
        held(nodes.__getitem__, ("dgx3", "dgx2", "dgx1"), "demo"),
    ):
        pass
    assert is_free(nodes, "dgx1", "dgx2")


def test_two_launches_that_share_nodes_in_another_order(nodes: Nodes) -> None:
    outcomes: list[str] = []
    meet = threading.Barrier(2)

    def serve(names: tuple[str, ...]) -> None:
        meet.wait(10)
        try:
            with held(nodes.__getitem__, names, "demo"):
                time.sleep(1.0)
                outcomes.append("held")
        except NodeError:
            outcomes.append("refused")

    threads = [threading.Thread(target=serve, args=(names,)) for names in (BOTH, BOTH[::-1])]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == ["held", "refused"], "never both, and never none"


def test_an_agent_that_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    over = threading.Event()

    class Mute:
        def call(self, *args: Any, **more: Any) -> dict[str, Any]:
            del args, more
            over.wait(60)
            return {}

    monkeypatch.setattr(hold, "WAIT", 0.3)
    threading.Timer(1.0, over.set).start()
    with pytest.raises(NodeError) as raised, held(lambda _node: Mute(), ("dgx1",), "demo"):
        pass
    assert raised.value.what == "dgx1 cannot be held for the launch"


def test_being_told_to_stop_while_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cancel, "_event", threading.Event())
    monkeypatch.setattr(cancel, "_on_stop", [])
    over = threading.Event()

    class Mute:
        def call(self, *args: Any, **more: Any) -> dict[str, Any]:
            del args, more
            over.wait(60)
            return {}

    threading.Timer(0.3, cancel.stop, (2,)).start()
    threading.Timer(1.0, over.set).start()
    with pytest.raises(Interrupted), held(lambda _node: Mute(), ("dgx1",), "demo"):
        pass


def test_a_node_that_is_lost_meanwhile_stops_the_launch(nodes: Nodes) -> None:
    with held(nodes.__getitem__, BOTH, "demo") as check:
        check()
        for pid in agents_of(os.getpid()):
            os.kill(pid, signal.SIGKILL)
        with pytest.raises(NodeError, match=r"dgx[12] was lost in the middle of the launch"):
            until(check)


def agents_of(parent: int) -> list[int]:
    """What holds something: processes of that request, each forked by an agent that is a child of ours."""
    parents, holding = {}, []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                name, fields = (entry / "stat").read_text().rsplit(")", 1)
            except OSError:
                continue
            parents[int(entry.name)] = int(fields.split()[1])
            holding += [int(entry.name)] if name.endswith("(agent hold") else []
    return [pid for pid in holding if parents.get(parents[pid]) == parent]
