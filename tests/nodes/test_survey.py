"""Asking and working on all nodes at once: in their order, one error for all, and an end when told to stop."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from sparkbuild.agent.wire.lanes import LANE
from sparkbuild.core.errors import NodeError, SparkbuildError
from sparkbuild.core.interrupt import Interrupted, cancel, handling
from sparkbuild.nodes.ask import everywhere, survey
from sparkbuild.nodes.local.agent import LocalAgent

NODES = tuple(f"dgx{number}" for number in range(1, 9))


class Says:
    """An agent that answers with what it was made with, or raises it."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer
        self.asked: list[tuple[str, Any]] = []

    def call(
        self, verb: str, request: Mapping[str, Any], on_event: Any = None, *, final: bool = False
    ) -> dict[str, Any]:
        del on_event, final
        self.asked.append((verb, request))
        if isinstance(self.answer, BaseException):
            raise self.answer
        found: dict[str, Any] = self.answer
        return found


def test_results_are_in_the_order_of_the_nodes_whoever_is_first() -> None:
    order = []

    def work(node: str) -> str:
        time.sleep(0.02 * (9 - int(node[3:])))
        order.append(node)
        return node.upper()

    assert list(everywhere(NODES, work).items()) == [(node, node.upper()) for node in NODES]
    assert order == list(reversed(NODES))


def test_all_at_the_same_time() -> None:
    meet = threading.Barrier(len(NODES))
    assert sorted(everywhere(NODES, lambda _node: meet.wait(10)).values()) == list(range(len(NODES)))


def test_none_and_one() -> None:
    assert everywhere((), lambda node: node) == {}
    assert everywhere(("dgx1",), lambda _node: threading.current_thread()) == {"dgx1": threading.current_thread()}
    with pytest.raises(NodeError):
        everywhere(("dgx1",), lambda node: Says(NodeError(node)).call("facts", {})["x"])


def test_none_is_an_answer() -> None:
    assert everywhere(("dgx1", "dgx2"), lambda _node: None) == {"dgx1": None, "dgx2": None}


def test_the_first_error_by_node_and_all_are_waited_for() -> None:
    done = []

    def work(node: str) -> None:
        if node == "dgx3":
            raise SparkbuildError("at once")
        time.sleep(0.2)
        if node == "dgx2":
            raise NodeError("late")
        done.append(node)

    with pytest.raises(NodeError, match="late"):
        everywhere(("dgx1", "dgx2", "dgx3", "dgx4"), work)
    assert sorted(done) == ["dgx1", "dgx4"]


def test_what_is_no_error_of_ours_comes_through_as_well() -> None:
    with pytest.raises(ZeroDivisionError):
        everywhere(("dgx1", "dgx2"), lambda node: 1 // (int(node[3:]) - 1))


def test_an_interrupt_is_the_reason_whatever_the_nodes_say(monkeypatch: pytest.MonkeyPatch) -> None:
    def work(node: str) -> None:
        cancel.stop(2)
        raise NodeError(f"the connection to {node} was closed")

    monkeypatch.setattr(cancel, "_event", threading.Event())
    monkeypatch.setattr(cancel, "_signal", 0)
    monkeypatch.setattr(cancel, "_on_stop", [])
    with pytest.raises(Interrupted) as raised:
        everywhere(("dgx1", "dgx2"), work)
    assert raised.value.code == 130


def test_what_was_done_before_an_interrupt_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cleaning up goes on while the run is told to stop."""
    monkeypatch.setattr(cancel, "_event", threading.Event())
    cancel.stop(2)
    assert everywhere(("dgx1", "dgx2"), lambda node: node) == {"dgx1": "dgx1", "dgx2": "dgx2"}


def test_a_survey_asks_each_node_its_own_question() -> None:
    agents = {node: Says({"facts": [{"node": node}]}) for node in NODES}
    queries = {node: {"scheme": "x", "of": node} for node in reversed(NODES)}
    found = survey(agents.__getitem__, queries)
    assert list(found) == list(reversed(NODES))
    assert found == {node: {"node": node} for node in NODES}
    for node in NODES:
        assert agents[node].asked == [("facts", {"queries": [{"scheme": "x", "of": node}]})]


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (NodeError("no route", found="to 10.0.0.2"), "no route\n  found:  to 10.0.0.2"),
        (SparkbuildError("odd"), "odd"),
        ({"facts": []}, "the agent on dgx2 answered 0 questions of 1"),
        ({"facts": [{}, {}]}, "the agent on dgx2 answered 2 questions of 1"),
        ({}, "the agent on dgx2 answered 0 questions of 1"),
    ],
)
def test_a_node_that_gives_no_answer(answer: Any, text: str) -> None:
    agents = {"dgx1": Says({"facts": [{"a": 1}]}), "dgx2": Says(answer)}
    found = survey(agents.__getitem__, {"dgx1": {}, "dgx2": {}})
    assert found == {"dgx1": {"a": 1}, "dgx2": {"unreachable": text}}


def test_a_node_that_cannot_even_be_called() -> None:
    def agent(node: str) -> Says:
        raise NodeError(f"{node} has no key")

    assert survey(agent, {"dgx1": {}}) == {"dgx1": {"unreachable": "dgx1 has no key"}}


def test_a_real_agent(tmp_path: Path) -> None:
    agents = {node: LocalAgent(node, str(tmp_path / node)) for node in ("dgx1", "dgx2")}
    query = {"scheme": LANE, "recipe": "demo", "port": 0}
    found = survey(agents.__getitem__, dict.fromkeys(agents, query))
    assert [fact["record"] for fact in found.values()] == [None, None]
    broken = survey(agents.__getitem__, {"dgx1": query, "dgx2": {"scheme": LANE}})
    assert broken["dgx1"]["alive"] is False
    assert "problem" in broken["dgx2"] or "unreachable" in broken["dgx2"]


def test_ctrl_c_does_not_wait_for_a_node_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cancel, "_event", threading.Event())
    monkeypatch.setattr(cancel, "_on_stop", [])
    over = threading.Event()
    threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
    began = time.monotonic()
    try:
        with handling(cancel), pytest.raises(Interrupted) as raised:
            everywhere(("dgx1", "dgx2"), lambda node: node == "dgx1" or over.wait(60))
    finally:
        over.set()
    assert raised.value.code == 130
    assert time.monotonic() - began < 20
