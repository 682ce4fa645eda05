"""What an agent says, line by line: events, one result or one error, and whatever else comes down the line."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sparkbuild.core import errors
from sparkbuild.nodes.rpc.reply import Reply


def line(**fields: Any) -> bytes:
    return json.dumps(fields).encode() + b"\n"


def fed(*lines: bytes) -> tuple[Reply, list[dict[str, Any]]]:
    events: list[dict[str, Any]] = []
    reply = Reply("dgx1", "stage")
    for each in lines:
        reply.feed(each, events.append)
    return reply, events


def test_events_then_a_result() -> None:
    reply, events = fed(
        line(event="progress", phase="copy", bytes=1, total=2),
        line(event="log", text="one"),
        line(event="state", alive=True, lines=[]),
        line(event="result", bytes=7),
    )
    assert [event["event"] for event in events] == ["progress", "log", "state"]
    assert events[0] == {"event": "progress", "phase": "copy", "bytes": 1, "total": 2}
    assert reply.outcome() == {"bytes": 7}


def test_an_empty_result_is_a_result() -> None:
    reply, _ = fed(line(event="result"))
    assert reply.result is not None
    assert reply.outcome() == {}


@pytest.mark.parametrize(
    ("garbage", "text"),
    [
        (b"Traceback (most recent call last):\n", "Traceback (most recent call last):"),
        (b"\n", ""),
        (b"{\n", "{"),
        (b"[1, 2]\n", "[1, 2]"),
        (b"7\n", "7"),
        (b"null\n", "null"),
        (b'"event"\n', '"event"'),
        (b'{"no": "event"}\n', '{"no": "event"}'),
        (b"\xff\xfe login banner\n", "\ufffd\ufffd login banner"),
        (b'{"event": "log", "text": "cut', '{"event": "log", "text": "cut'),
    ],
)
def test_what_is_no_event_is_kept_as_a_log_line(garbage: bytes, text: str) -> None:
    reply, events = fed(garbage, line(event="result", ok=1))
    assert events == [{"event": "log", "text": text}]
    assert reply.outcome() == {"ok": 1}


def test_nobody_has_to_listen() -> None:
    reply = Reply("dgx1", "stage")
    for each in (b"garbage\n", line(event="log", text="x"), line(event="result", ok=1)):
        reply.feed(each, None)
    assert reply.outcome() == {"ok": 1}


@pytest.mark.parametrize(
    ("kind", "wanted"),
    [
        ("", errors.SparkbuildError),
        ("config", errors.ConfigError),
        ("engine", errors.EngineDiedError),
        ("integrity", errors.IntegrityError),
        ("node", errors.NodeError),
        ("port", errors.PortInUseError),
        ("space", errors.SpaceError),
        ("of a newer agent", errors.SparkbuildError),
    ],
)
def test_an_error_comes_as_its_class_with_its_node(kind: str, wanted: type[errors.SparkbuildError]) -> None:
    fields = {"what": "no room", "where": "/srv", "found": "1 GB", "wanted": "2 GB", "next": "make room"}
    reply, _ = fed(line(event="error", kind=kind, **fields))
    with pytest.raises(errors.SparkbuildError) as raised:
        reply.outcome()
    assert type(raised.value) is wanted
    assert raised.value.as_dict() == {**fields, "where": "node dgx1, /srv"}


def test_an_error_without_its_fields_is_still_one() -> None:
    reply, _ = fed(line(event="error"))
    with pytest.raises(errors.SparkbuildError) as raised:
        reply.outcome()
    assert raised.value.as_dict() == {"what": "the agent failed", "where": "node dgx1"}


def test_an_agent_that_ended_without_a_word() -> None:
    reply, _ = fed(line(event="log", text="x"))
    assert reply.result is None
    reply.broken("", -9)
    with pytest.raises(errors.NodeError) as raised:
        reply.outcome()
    assert raised.value.what == "the agent on dgx1 ended in the middle of 'stage'"
    assert raised.value.found == "killed by signal 9"
    assert raised.value.next
    reply.broken("", -1)  # over ssh, what a signal killed has no exit code
    with pytest.raises(errors.NodeError) as raised:
        reply.outcome()
    assert raised.value.found == "no exit code: it was killed"


def test_an_agent_that_ended_with_a_long_traceback() -> None:
    reply, _ = fed()
    reply.broken("x\n" * 5000 + "MemoryError\n", 1)
    with pytest.raises(errors.NodeError) as raised:
        reply.outcome()
    assert raised.value.found.startswith("exit code 1\n")
    assert raised.value.found.endswith("MemoryError")
    assert len(raised.value.found) < 2000
