"""One node's odd answer is that node's row: real answers, mutated, and everything that reads them."""

from __future__ import annotations

import copy
import json
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from sparkbuild.agent.wire.lanes import LANE, NOTE
from sparkbuild.agent.wire.nodes import NODE
from sparkbuild.app import health
from sparkbuild.core.errors import NodeError, SparkbuildError
from sparkbuild.core.plan import UNKNOWN
from sparkbuild.nodes.ask import answer, survey
from sparkbuild.nodes.local.agent import LocalAgent
from sparkbuild.nodes.rpc.reply import Reply
from sparkbuild.nodes.rpc.shapes import result_of
from sparkbuild.serving.judge import judge, steps
from sparkbuild.serving.launch.preflight import refusals
from sparkbuild.serving.ranks import ranks_of
from sparkbuild.serving.state import state
from tests.agent.lane.test_launch_stop import ENGINE
from tests.serving.lanes import goal
from tests.workspace_tool import until

Path_ = tuple[Any, ...]
GOAL = goal(runtime="process")


class Says:
    """An agent that gives this one fact."""

    def __init__(self, fact: Any) -> None:
        self.fact = fact

    def call(
        self, verb: str, request: Mapping[str, Any], on_event: Any = None, *, final: bool = False
    ) -> dict[str, Any]:
        del request, on_event, final
        return result_of("dgx", verb, {"facts": [self.fact]})


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, list[dict[str, Any]]]]:
    """What an agent says of a lane that serves, of one that never was, and of the node."""
    folder = tmp_path_factory.mktemp("odd")
    (folder / "engine.py").write_text(ENGINE)
    agent = LocalAgent("dgx1", str(folder / "store"), docker=str(folder / "none.sock"))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    fixed: dict[str, Any] = {"recipe": "demo", "launch": "l1", "rank": 0, "world_size": 2, "key": "k", "port": port}
    fixed |= {"argv": [sys.executable, str(folder / "engine.py"), str(port)], "env": {}, "host": "127.0.0.1"}
    agent.call("launch", {**fixed, "parts": dict(GOAL.key.parts), "model_id": "m", "lock": "demo@1", "protect": False})
    query = {"scheme": LANE, "recipe": "demo", "port": port}
    try:
        until(lambda: answer(agent, "dgx1", query).get("answers"))
        noted = {
            "ready": {"seconds": 1.0, "ttft": 0.1, "text": "x"},
            "served_at": 5.0,
            "gates": [{"id": "a", "ok": True}],
        }
        agent.call("note", {"recipe": "demo", "launch": "l1", "set": noted})
        lanes = [answer(agent, "dgx1", one) for one in (query, {**query, "recipe": "none"})]
        yield {"lane": lanes, "node": [answer(agent, "dgx1", {"scheme": NODE, "paths": [str(folder)]})]}
    finally:
        agent.call("stop", {"recipe": "demo", "grace": 0})


def places(value: Any, at: Path_ = ()) -> list[Path_]:
    """Every place of an answer."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [at, *(place for name, one in inner for place in places(one, (*at, name)))]


def deep(levels: int, *, table: bool) -> Any:
    made: Any = 1
    for _ in range(levels):
        made = {"x": made} if table else [made]
    return made


ODD = st.one_of(
    st.sampled_from([None, True, False, 0, -1, 10**30, 1.5, "", "x", "\x1b[2J", [], {}, [None], {"x": None}, [[]]]),
    st.builds(deep, st.sampled_from([3, 60, 300]), table=st.booleans()),
    st.just("gone"),
)


def mutated(fact: dict[str, Any], place: Path_, odd: Any) -> Any:
    if not place:
        return copy.deepcopy(odd)
    found = copy.deepcopy(fact)
    inner: Any = found
    for name in place[:-1]:
        inner = inner[name]
    if odd == "gone":
        del inner[place[-1]]
    else:
        inner[place[-1]] = odd
    return found


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_lane_with_an_odd_answer(real: dict[str, list[dict[str, Any]]], data: st.DataObject) -> None:
    whole = data.draw(st.sampled_from(real["lane"]))
    odd = mutated(whole, data.draw(st.sampled_from(places(whole))), data.draw(ODD))
    agents = {"dgx1": Says(odd), "dgx2": Says(whole)}
    facts = survey(agents.__getitem__, {node: {"scheme": LANE} for node in agents})
    assert facts["dgx2"] == whole
    fact = {"ranks": facts}
    verdict = judge(GOAL, fact, None)
    seen = ranks_of(GOAL, fact)
    shown = state("demo", seen, "process", GOAL.nodes)
    assert json.dumps([shown.text, *(reason.text for reason in verdict.reasons)])
    if verdict.state == UNKNOWN:
        assert any("dgx1" in reason.text for reason in verdict.reasons)
    else:
        assert isinstance(steps(GOAL, fact), tuple)
        assert all(isinstance(text, str) for text in refusals(GOAL, seen, replaces=True))


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_node_with_an_odd_answer(real: dict[str, list[dict[str, Any]]], data: st.DataObject) -> None:
    (whole,) = real["node"]
    odd = mutated(whole, data.draw(st.sampled_from(places(whole))), data.draw(ODD))
    looks = []
    for node, fact in {"dgx1": odd, "dgx2": whole}.items():
        try:
            looks.append(health.Look(node, answer(Says(fact), node, {"scheme": NODE}), None, 1.0, 2.0, "/srv"))
        except SparkbuildError as error:
            looks.append(health.Look(node, None, error))
    alone = health.cluster("pair", [looks[1]])["nodes"][0]
    both = health.cluster("pair", looks)
    told = health.lines(both)
    assert json.dumps(both)
    assert both["nodes"][1]["states"] == alone["states"]
    assert any("dgx1" in line for line in told)


def test_an_odd_answer_says_what_is_odd(real: dict[str, list[dict[str, Any]]]) -> None:
    fact = copy.deepcopy(real["lane"][0])
    del fact["record"]["parts"]
    with pytest.raises(NodeError) as raised:
        answer(Says(fact), "dgx1", {"scheme": LANE})
    assert raised.value.what == "dgx1 gives an odd answer about lane"
    assert raised.value.found == "Object missing required field `parts` - at `$.record`"
    assert raised.value.next.startswith("run again")


@pytest.mark.parametrize("field", ["kind", "what", "where", "found", "wanted", "next"])
@pytest.mark.parametrize("odd", [None, 7, [], {"x": 1}, True])
def test_fields_of_an_error_that_are_no_text(field: str, odd: Any) -> None:
    reply = Reply("dgx1", "stage")
    event = {"event": "error", "kind": "space", "what": "full", "where": "/x", "found": "f", "wanted": "w", "next": "n"}
    reply.feed(json.dumps({**event, field: odd}).encode(), None)
    with pytest.raises(SparkbuildError) as raised:
        reply.outcome()
    assert "node dgx1" in str(raised.value)


@pytest.mark.parametrize(
    "line", [b"[" * 100_000, b'{"event":' * 50_000, b'{"event": ["x"]}', b'{"event": {}}', b"[]", b"7"]
)
def test_lines_that_are_no_events(line: bytes) -> None:
    events: list[dict[str, Any]] = []
    Reply("dgx1", "facts").feed(line, events.append)
    assert [event["event"] for event in events] == ["log"]


@pytest.mark.parametrize(
    "found",
    [{}, {"record": None}, {"record": {}}, {"record": {"parts": []}}, {"record": {"parts": deep(60, table=True)}}],
)
def test_results_of_another_shape(found: dict[str, Any]) -> None:
    reply = Reply("dgx1", NOTE)
    reply.feed(json.dumps({"event": "result", **found}).encode(), None)
    with pytest.raises(NodeError, match="dgx1 gives an odd answer to 'note'"):
        reply.outcome()


def test_facts_are_asked_for_in_one_place() -> None:
    """Where an answer comes in, its shape is looked at: nobody asks around that."""
    asked = subprocess.run(
        ["grep", "-rnE", r"call\(\s*(\"facts\"|FACTS)", "--include=*.py", str(Path(health.__file__).parents[1])],
        capture_output=True,
        text=True,
        check=False,
    ).stdout.splitlines()
    assert [line.partition(":")[0].rpartition("sparkbuild/")[2] for line in asked] == ["nodes/ask.py"]
