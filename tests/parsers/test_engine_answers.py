"""What an engine answers to us, and what its log says."""

from __future__ import annotations

import msgspec
from hypothesis import given, strategies as st

from sparkbuild.core.errors import SparkbuildError
from sparkbuild.gates.chat import GateError, read_reply
from sparkbuild.serving.ready import phases
from sparkbuild.serving.ready.answer import NoAnswer, check
from tests.parsers.near import bounded, damaged, json_like
from tests.parsers.served import tcp

MODELS = {"object": "list", "data": [{"id": "m", "object": "model"}]}
CHUNK = {"choices": [{"delta": {"content": "hello"}, "finish_reason": None}]}
COMPLETION = {
    "choices": [
        {
            "message": {"content": "4", "tool_calls": [{"function": {"name": "f", "arguments": "{}"}}]},
            "finish_reason": "stop",
        }
    ]
}


def http(status: int, body: bytes, kind: str = "application/json") -> bytes:
    head = f"HTTP/1.1 {status} x\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    return head.encode() + body


LINES = [
    "Loading safetensors checkpoint shards:  40% Completed | 19/48 [02:11<03:21,  6.9s/it]",
    "Capturing CUDA graphs: 51%|#####     | 34/67",
    "waiting for ranks: 1/2",
    "Application startup complete.",
]


@given(
    models=json_like(MODELS),
    chunks=st.lists(json_like(CHUNK), max_size=3),
    health=st.sampled_from([200, 200, 503]),
    status=st.sampled_from([200, 200, 200, 401, 500]),
)
def test_an_engine_that_is_asked_whether_it_is_ready(
    models: bytes, chunks: list[bytes], health: int, status: int
) -> None:
    def engine(asked: bytes) -> bytes:
        path = asked.split(b" ")[1] if asked.count(b" ") > 1 else b""
        if path == b"/health":
            return http(health, b"{}")
        if path == b"/v1/models":
            return http(status, models)
        return http(200, b"".join(b"data: " + chunk + b"\n\n" for chunk in chunks), "text/event-stream")

    with tcp(engine) as port, bounded(NoAnswer, SparkbuildError):
        check(f"http://127.0.0.1:{port}", "m", patience=5)


@given(data=json_like(COMPLETION))
def test_a_completion(data: bytes) -> None:
    try:
        payload = msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError):
        return  # `chat` says so
    with bounded(GateError):
        read_reply(payload)


@given(line=st.sampled_from(LINES).flatmap(lambda line: damaged(line.encode())), times=st.integers(1, 500))
def test_a_line_of_a_log(line: bytes, times: int) -> None:
    with bounded():
        phases.phase_of(line.decode(errors="replace") * times)
