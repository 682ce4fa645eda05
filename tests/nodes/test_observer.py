"""Looking at nodes: one question per node, all at once, each answer remembered, a silent node no failure."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from sparkbuild.core.errors import NodeError
from sparkbuild.core.goal import Goal, Uri
from sparkbuild.core.key import Key
from sparkbuild.core.plan import UNKNOWN, plan
from sparkbuild.nodes.facts import Observer
from sparkbuild.nodes.local.agent import LocalAgent
from sparkbuild.upstream.artifacts import ArtifactKind, ArtifactSpec, artifact_goal

FILES = ("a.whl", "b.whl", "c.whl")


def goal(node: str, filename: str) -> Goal:
    spec = ArtifactSpec(filename=filename, sha256=filename[0] * 64, wheel="", url="https://example.org/" + filename)
    return artifact_goal(node, "demo", filename, spec)


class Node:
    """A node with a real agent, counting what it is asked; None of an agent when it is down."""

    def __init__(self, name: str, store: Path | None, meet: threading.Barrier | None = None) -> None:
        self.agent = None if store is None else LocalAgent(name, str(store))
        self.asked: list[list[str]] = []
        self.meet = meet

    def call(
        self, verb: str, request: Mapping[str, Any], on_event: Any = None, *, final: bool = False
    ) -> dict[str, Any]:
        self.asked.append([query["filename"] for query in request["queries"]])
        if self.meet is not None:
            self.meet.wait(5)  # broken unless all nodes are asked at the same time
        if self.agent is None:
            raise NodeError("cannot reach the node", found="connection refused")
        return self.agent.call(verb, request, on_event, final=final)


class Reports:
    """A kind that the operator's own machine looks at."""

    scheme = "report"

    def __init__(self) -> None:
        self.seen: list[str] = []

    def observe(self, goal: Goal) -> dict[str, Any]:
        self.seen.append(str(goal.uri))
        return {"present": True}


def observer(nodes: dict[str, Node], **kinds: Any) -> Observer:
    return Observer({"artifact": ArtifactKind("/"), **kinds}, lambda name: nodes[name])


def test_one_question_per_node_and_answers_in_their_place(tmp_path: Path) -> None:
    nodes = {"dgx1": Node("dgx1", tmp_path / "1"), "dgx2": Node("dgx2", tmp_path / "2")}
    looking = observer(nodes)
    folder = tmp_path / "1/artifacts/bb" / ("b" * 64)
    folder.mkdir(parents=True)
    (folder / "b.whl").write_bytes(b"something else")
    goals = [goal(node, file) for file in FILES for node in nodes]
    looking.look(one for one in goals)  # a generator is looked at once as well
    assert nodes["dgx1"].asked == nodes["dgx2"].asked == [list(FILES)]
    facts = {(one.node, one.uri.path): looking.fact(one) for one in goals}
    assert facts.pop(("dgx1", "demo/b.whl"))["problem"] == "its content is not what is pinned"
    assert set(map(str, facts.values())) == {"{'present': False, 'bytes': 0}"}
    assert len(nodes["dgx1"].asked) == 1


def test_nodes_are_asked_at_the_same_time(tmp_path: Path) -> None:
    meet = threading.Barrier(3)
    nodes = {name: Node(name, tmp_path, meet) for name in ("dgx1", "dgx2", "dgx3")}
    observer(nodes).look([goal(name, "a.whl") for name in nodes])
    assert not meet.broken


def test_a_node_that_is_down_makes_its_goals_unknown_and_no_others(tmp_path: Path) -> None:
    nodes = {"dgx1": Node("dgx1", tmp_path), "dgx2": Node("dgx2", None)}
    looking = observer(nodes)
    goals = [goal(node, file) for file in FILES for node in nodes]
    looking.look(goals)
    kind = ArtifactKind("/")
    made = plan(goals, lambda one: kind.judge(one, looking.fact(one), None))
    assert {(step.goal.node, step.state) for step in made} == {("dgx1", "run"), ("dgx2", UNKNOWN)}
    (text,) = {reason.text for step in made if step.state == UNKNOWN for reason in step.reasons}
    assert text.startswith("dgx2 does not answer: cannot reach the node")
    assert "connection refused" in text
    assert len(nodes["dgx2"].asked) == 1, "a node that is down is not waited for once per goal"


def test_facts_are_remembered_until_one_looks_again(tmp_path: Path) -> None:
    node = Node("dgx1", tmp_path)
    looking = observer({"dgx1": node})
    one, two = goal("dgx1", "a.whl"), goal("dgx1", "b.whl")
    first = looking.fact(one)
    assert looking.fact(one) is first
    looking.look([one, two])
    assert node.asked == [["a.whl"], ["b.whl"]]
    looking.look([one], again=True)
    assert node.asked[2:] == [["a.whl"]]
    assert looking.fact(one) is not first


def test_a_goal_in_another_state_is_another_question(tmp_path: Path) -> None:
    node = Node("dgx1", tmp_path)
    looking = observer({"dgx1": node})
    looking.fact(goal("dgx1", "a.whl"))
    other = ArtifactSpec(filename="a.whl", sha256="9" * 64, wheel="", url="https://example.org/a.whl")
    looking.fact(artifact_goal("dgx1", "demo", "a.whl", other))
    assert len(node.asked) == 2


def test_nothing_to_look_at_asks_nobody() -> None:
    observer({}).look([])


def test_kinds_of_this_machine_ask_no_node() -> None:
    reports = Reports()
    looking = observer({}, report=reports)
    report = Goal(task="bench:demo", uri=Uri("report", "one", "demo"), key=Key({"a": 1}), doc="")
    assert looking.fact(report) == looking.fact(report) == {"present": True}
    assert reports.seen == ["report://one/demo"]


def test_many_threads_may_ask(tmp_path: Path) -> None:
    """Steps at work in threads look for themselves; each gets its fact."""
    node = Node("dgx1", tmp_path)
    looking = observer({"dgx1": node})
    got: list[dict[str, Any]] = []
    goals = [goal("dgx1", f"{letter}.whl") for letter in "abcdef"]
    threads = [threading.Thread(target=lambda one=one: got.append(looking.fact(one))) for one in goals]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(got) == len(goals)


@pytest.mark.parametrize("count", [0, 2])
def test_an_agent_of_another_version_that_answers_too_few(count: int) -> None:
    class Odd:
        def call(
            self, verb: str, request: Mapping[str, Any], on_event: Any = None, *, final: bool = False
        ) -> dict[str, Any]:
            del verb, request, on_event, final
            return {"facts": [{"present": True}] * count}

    looking = Observer({"artifact": ArtifactKind("/")}, lambda _name: Odd())
    assert "answered" in looking.fact(goal("dgx1", "a.whl"))["unreachable"]


class Lanes:
    """A kind whose goals are on several nodes."""

    scheme = "lane"

    def query(self, goal: Goal) -> dict[str, Any]:
        return {"recipe": goal.uri.path, "port": 0, "runtime": "process", "filename": goal.uri.path}


def lane(recipe: str, *nodes: str) -> Goal:
    return Goal(task=recipe, uri=Uri("lane", "pair", recipe), key=Key({"a": 1}), doc="", hosts=nodes)


def test_a_goal_on_several_nodes_is_asked_of_each_and_told_by_node(tmp_path: Path) -> None:
    nodes = {name: Node(name, tmp_path / name) for name in ("dgx1", "dgx2", "dgx3")}
    looking = observer(nodes, lane=Lanes())
    wide, narrow = lane("demo-2x", "dgx2", "dgx1"), lane("demo", "dgx3")
    goals = [wide, goal("dgx1", "a.whl"), narrow]
    looking.look(goals)
    assert {name: node.asked for name, node in nodes.items()} == {
        "dgx1": [["demo-2x", "a.whl"]],
        "dgx2": [["demo-2x"]],
        "dgx3": [["demo"]],
    }, "one question per node, whatever is on it"
    fact = looking.fact(wide)
    assert list(fact) == ["ranks"]
    assert list(fact["ranks"]) == ["dgx2", "dgx1"], "in rank order"
    assert all(one["record"] is None and one["alive"] is False for one in fact["ranks"].values())
    assert looking.fact(narrow)["alive"] is False
    assert looking.fact(goals[1])["present"] is False


def test_a_node_that_does_not_answer_is_told_beside_those_that_do(tmp_path: Path) -> None:
    nodes = {"dgx1": Node("dgx1", tmp_path), "dgx2": Node("dgx2", None)}
    looking = observer(nodes, lane=Lanes())
    both, one = lane("demo-2x", "dgx1", "dgx2"), lane("demo", "dgx1")
    looking.look([both, one])
    ranks = looking.fact(both)["ranks"]
    assert ranks["dgx1"]["alive"] is False
    assert ranks["dgx2"]["unreachable"].startswith("cannot reach the node")
    assert "unreachable" not in looking.fact(one)


def test_goals_of_several_nodes_are_remembered_and_looked_at_again_whole(tmp_path: Path) -> None:
    nodes = {name: Node(name, tmp_path / name) for name in ("dgx1", "dgx2")}
    looking = observer(nodes, lane=Lanes())
    both = lane("demo-2x", "dgx1", "dgx2")
    first = looking.fact(both)
    looking.look([both])
    assert looking.fact(both) is first
    looking.look([both, both], again=True)
    assert looking.fact(both) is not first
    assert [len(node.asked) for node in nodes.values()] == [2, 2]


def test_an_agent_that_answers_nothing_at_all() -> None:
    class Mute:
        def call(
            self, verb: str, request: Mapping[str, Any], on_event: Any = None, *, final: bool = False
        ) -> dict[str, Any]:
            del verb, request, on_event, final
            return {}

    looking = Observer({"lane": Lanes()}, lambda _name: Mute())  # type: ignore[dict-item]
    ranks = looking.fact(lane("demo-2x", "dgx1", "dgx2"))["ranks"]
    assert all("answered 0 questions of 1" in fact["unreachable"] for fact in ranks.values())
