"""What agents say, and what they find of lanes: any answer is a result, an error of ours, or a problem in a row."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from sparkbuild.agent import facts
from sparkbuild.agent.lane import answers, records
from sparkbuild.agent.machine.procs import Glance
from sparkbuild.core.errors import SparkbuildError
from sparkbuild.nodes.rpc.reply import Reply
from tests.parsers.near import bounded, damaged, json_like

EVENTS: list[dict[str, Any]] = [
    {"event": "progress", "phase": "stage", "done": 5, "total": 10, "unit": "B"},
    {"event": "log", "text": "hello"},
    {"event": "result", "facts": [{"present": True, "bytes": 5}]},
    {"event": "error", "kind": "node", "what": "it failed", "where": "/x", "found": "a", "wanted": "b", "next": "c"},
]
LANE = {
    "format": records.LANE_FORMAT, "recipe": "alpha", "runtime": "process", "launch": "1", "rank": 0, "world_size": 1,
    "key": "0" * 64, "parts": {"port": 1}, "container": "", "pid": 4_000_000, "start_ticks": 5, "boot_id": "x",
    "argv": ["a"], "uses": [], "host": "127.0.0.1", "port": 0, "model_id": "m", "protect": False, "lock": "",
    "log": "lanes/alpha/1.log", "launched_at": 1.0, "ready": None, "gates": None, "served_at": None,
    "stopped_at": None,
}  # fmt: skip


@given(lines=st.lists(st.sampled_from(EVENTS).flatmap(json_like), max_size=4))
def test_an_agents_reply(lines: list[bytes]) -> None:
    reply = Reply("dgx1", "facts")
    with bounded(SparkbuildError):
        for line in lines:
            reply.feed(line, lambda event: event["event"])
        reply.outcome()


@given(text=st.binary(max_size=300))
def test_what_a_login_shell_says_before(text: bytes) -> None:
    reply = Reply("dgx1", "facts")
    with bounded(SparkbuildError):
        reply.feed(text, lambda event: event["event"])
        reply.broken(text.decode(errors="replace"), 1)
        reply.outcome()


GLANCE = Glance()  # /proc, looked at once


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("store")
    (folder / "lanes/alpha").mkdir(parents=True)
    return folder


@given(data=st.one_of(json_like(LANE), json_like({**LANE, "runtime": "docker", "container": "f" * 64})))
def test_facts_of_a_lane_whose_record_is_odd(store: Path, data: bytes) -> None:
    (store / "lanes/alpha/lane.json").write_bytes(data)
    query = {
        "scheme": "lane",
        "store": str(store),
        "recipe": "alpha",
        "port": 1,
        "runtime": "process",
        "docker": str(store / "none"),
        "glance": GLANCE,
    }
    with bounded():
        json.dumps(facts._observe(query))


@given(answer=damaged(b'HTTP/1.0 200 OK\r\nContent-Length: 26\r\n\r\n{"data": [{"id": "model"}]}'))
def test_the_head_of_an_answer_of_an_engine(answer: bytes) -> None:
    from tests.parsers.served import tcp  # noqa: PLC0415 - only here

    with tcp(answer) as port, bounded():
        json.dumps(answers.answers({**LANE, "port": port}, ["127.0.0.1"]))  # type: ignore[arg-type]
