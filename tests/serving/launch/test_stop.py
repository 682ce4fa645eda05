"""Stopping a lane on all of its nodes: one that cannot be reached holds up no other, and is named."""

from __future__ import annotations

import threading
import time
from types import SimpleNamespace
from typing import Any

import docker
import pytest

from sparkbuild.core.errors import NodeError, SparkbuildError
from sparkbuild.serving.launch.hold import operator
from sparkbuild.serving.launch.stop import Stopped, failure, stop_lane
from tests.serving.lanes import FOREIGN, FOREIGN_TEXT

GRACE = 1.0
NOTHING = {"stopped": False, "pid": 0, "killed": False, "launch": "l1"}


def box(letter: str, state: str = "running") -> dict[str, Any]:
    return {"id": letter * 64, "state": state}


class Api:
    """The part of docker-py's client that stopping uses, over containers that a test makes up."""

    def __init__(self, **states: str) -> None:
        self.states = {letter * 64: state for letter, state in states.items()}
        self.slow = 0.0
        self.did: list[tuple[str, str]] = []
        self.error: Exception | None = None

    def inspect_container(self, found: str) -> dict[str, Any]:
        if self.error is not None:
            raise self.error
        if found not in self.states:
            raise docker.errors.NotFound("no such container")
        return {"State": {"Status": self.states[found]}}

    def stop(self, found: str, timeout: int) -> None:
        assert timeout == GRACE
        time.sleep(self.slow)
        self.did.append(("stop", found[0]))
        self.states[found] = "exited"

    def remove_container(self, found: str, *, force: bool) -> None:
        assert force
        self.did.append(("remove", found[0]))
        del self.states[found]


class Node:
    """A node's agent and its docker."""

    def __init__(self, done: dict[str, Any] | Exception | None = None, api: Api | None = None) -> None:
        self.done = done
        self.api = api or Api()
        self.asked: list[tuple[str, dict[str, Any], bool]] = []
        self.note_error: Exception | None = None

    def call(self, verb: str, request: Any, on_event: Any = None, *, final: bool = False) -> dict[str, Any]:
        self.asked.append((verb, dict(request), final))
        if verb == "note":
            if self.note_error is not None:
                raise self.note_error
            return {"record": {}}
        if isinstance(self.done, Exception):
            raise self.done
        if on_event is not None:
            on_event({"event": "log", "text": "stopping process 77"})
            on_event({"event": "progress", "phase": "x"})
        return {**NOTHING, **(self.done or {})}

    @property
    def verbs(self) -> list[str]:
        return [verb for verb, _, _ in self.asked]


class Nodes:
    """What stop_lane reaches nodes by."""

    def __init__(self, *nodes: Node) -> None:
        self.by_name = {f"dgx{number}": node for number, node in enumerate(nodes, 1)}
        self.noted: list[str] = []

    def agent(self, node: str) -> Any:
        return self.by_name[node]

    def docker(self, node: str) -> Any:
        return SimpleNamespace(api=self.by_name[node].api)

    def stop(self, *, final: bool = False, launch: str = "") -> tuple[Stopped, ...]:
        return stop_lane(self, "demo", tuple(self.by_name), GRACE, launch=launch, final=final, note=self.noted.append)


PROCESS = {"stopped": True, "pid": 77}


def texts(done: tuple[Stopped, ...]) -> list[str]:
    assert [one.error for one in done] == [None] * len(done)
    return [one.text for one in done]


def test_nothing_runs() -> None:
    nodes = Nodes(Node(), Node())
    done = nodes.stop()
    assert texts(done) == ["", ""]
    assert failure("demo", done) is None
    assert nodes.by_name["dgx1"].asked == [("stop", {"recipe": "demo", "grace": GRACE, "by": operator()}, False)]


def test_processes() -> None:
    nodes = Nodes(Node(PROCESS), Node({**PROCESS, "killed": True}))
    assert texts(nodes.stop()) == [
        "stopped process 77 on dgx1",
        "stopped process 77 on dgx2; it had to be killed after 1 s",
    ]
    assert nodes.noted == ["stopping process 77"] * 2


def test_containers() -> None:
    one = Node({"containers": [box("a"), box("b", "created")]}, Api(a="running", b="created"))
    two = Node({"containers": [box("c", "paused")]}, Api(c="paused"))
    assert texts(Nodes(one, two).stop()) == [
        f"stopped container {'a' * 12} on dgx1; removed container {'b' * 12} on dgx1, which was never started",
        f"stopped container {'c' * 12} on dgx2",
    ]
    assert one.api.did == [("stop", "a"), ("remove", "b")]
    assert one.verbs == ["stop", "note", "stop"], "noted, and asked once more so that secrets are forgotten"
    note = one.asked[1][1]
    assert (note["recipe"], note["launch"], list(note["set"])) == ("demo", "l1", ["stopped_at"])


def test_a_container_that_does_not_end_by_itself() -> None:
    node = Node({"containers": [box("a")]}, Api(a="running"))
    node.api.slow = 1.1
    (text,) = texts(Nodes(node).stop())
    assert text == f"stopped container {'a' * 12} on dgx1; it had to be killed after 1 s"


def test_a_container_that_is_gone_meanwhile() -> None:
    assert texts(Nodes(Node({"containers": [box("a")]})).stop()) == [f"stopped container {'a' * 12} on dgx1"]


def test_a_container_without_a_record() -> None:
    node = Node({"containers": [box("a")], "launch": ""}, Api(a="running"))
    node.note_error = SparkbuildError("lane demo was replaced meanwhile")
    assert texts(Nodes(node).stop()) == [f"stopped container {'a' * 12} on dgx1"]


def test_cleaning_up_goes_on_when_the_run_is_told_to_stop() -> None:
    node = Node({"containers": [box("a")]}, Api(a="running"))
    Nodes(node).stop(final=True)
    assert [final for _, _, final in node.asked] == [True] * 3


def test_a_node_out_of_reach_holds_up_no_other() -> None:
    away = NodeError("cannot reach the node", found="no route to host")
    nodes = Nodes(Node(PROCESS), Node(away), Node(PROCESS))
    done = nodes.stop()
    assert [one.node for one in done] == ["dgx1", "dgx2", "dgx3"]
    assert [one.text for one in done] == ["stopped process 77 on dgx1", "", "stopped process 77 on dgx3"]
    error = failure("demo", done)
    assert isinstance(error, NodeError)
    assert error.what == "lane demo may still run on dgx2"
    assert "dgx2: cannot reach the node" in error.found
    assert "no route to host" in error.found
    assert error.wanted == "all nodes; it does not run on dgx1, dgx3"
    assert error.next == "doit stop:demo again, when they can be reached"


def test_no_node_in_reach() -> None:
    error = failure("demo", Nodes(Node(NodeError("a")), Node(NodeError("b"))).stop())
    assert error is not None
    assert (error.what, error.found) == ("lane demo may still run on dgx1, dgx2", "dgx1: a\ndgx2: b")
    assert error.wanted == "all nodes"


def test_the_only_node_speaks_for_itself() -> None:
    away = NodeError("cannot reach the node")
    assert failure("demo", Nodes(Node(away)).stop()) is away


def test_all_at_the_same_time() -> None:
    meet = threading.Barrier(3)

    class Meeting(Node):
        def call(self, verb: str, request: Any, on_event: Any = None, *, final: bool = False) -> dict[str, Any]:
            meet.wait(10)
            return super().call(verb, request, on_event, final=final)

    assert texts(Nodes(*(Meeting(PROCESS) for _ in range(3))).stop())


def test_docker_that_does_not_answer_the_agent() -> None:
    nodes = Nodes(Node({"docker_problem": "docker is not running"}), Node(PROCESS))
    error = failure("demo", nodes.stop())
    assert error is not None
    assert error.what == "lane demo may still run on dgx1"
    assert "docker on dgx1 does not answer" in error.found
    assert "docker is not running" in error.found


REFUSALS = {
    "docker-py": docker.errors.DockerException("cannot connect"),
    "the connection": ConnectionResetError("reset by peer"),
    "docker": docker.errors.APIError("500", explanation="permission denied"),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_docker_that_refuses(name: str) -> None:
    node = Node({"containers": [box("a")]}, Api(a="running"))
    node.api.error = REFUSALS[name]
    error = failure("demo", Nodes(node).stop())
    assert error is not None
    assert "dgx1" in str(error)
    assert node.verbs == ["stop"], "it is not noted as stopped"


def test_one_container_that_cannot_be_stopped_does_not_keep_the_rest() -> None:
    class Stubborn(Api):
        def stop(self, found: str, timeout: int) -> None:
            if found[0] == "a":
                raise docker.errors.APIError("500", explanation="cannot kill container")
            super().stop(found, timeout)

    node = Node({"containers": [box("a"), box("b")]}, Stubborn(a="running", b="running"))
    error = failure("demo", Nodes(node).stop())
    assert error is not None
    assert "cannot kill container" in str(error)
    assert node.api.did == [("stop", "b")]


def test_only_one_launch() -> None:
    node = Node({"containers": [box("a")], "launch": "l2"}, Api(a="running"))
    Nodes(node).stop(launch="l1")
    assert [request["launch"] for _, request, _ in node.asked] == ["l1"] * 3, "that of another is not noted as stopped"


def test_what_is_of_another_store_is_told() -> None:
    node = Node({"foreign": [FOREIGN]}, Api())
    (done,) = Nodes(node).stop()
    assert (done.text, done.foreign) == ("", FOREIGN_TEXT.replace("dgx2", "dgx1"))
    assert node.api.did == []
