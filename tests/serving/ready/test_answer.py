"""Does the engine really answer: shapes of answers that a real engine cannot be told to give, over real HTTP."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from sparkbuild.serving.ready.answer import PROMPT, TOKENS, Answer, NoAnswer, check

Reply = tuple[int, bytes | list[Any]]


class Server(ThreadingHTTPServer):
    """Healthy and serving `m`, unless a path is given another reply; a list is a stream, numbers in it are pauses."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.replies: dict[str, Reply] = {
            "/health": (200, b"{}"),
            "/v1/models": (200, b'{"data": [{"id": "m"}, {"id": "other"}]}'),
            "/v1/chat/completions": (200, [delta(role="assistant"), delta(content="hel"), delta(content="lo"), DONE]),
        }
        self.asked: list[dict[str, Any]] = []


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        self._reply()

    def do_POST(self) -> None:
        self.server.asked.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self._reply()

    def _reply(self) -> None:
        status, body = self.server.replies[self.path]
        self.send_response(status)
        self.end_headers()
        for piece in body if isinstance(body, list) else [body]:
            if isinstance(piece, float):
                time.sleep(piece)
            else:
                self.wfile.write(piece)
                self.wfile.flush()

    def log_message(self, *args: object) -> None:
        """Say nothing."""


DONE = b"data: [DONE]\n\n"


def event(value: Any) -> bytes:
    return b"data: " + json.dumps(value).encode() + b"\n\n"


def delta(**fields: Any) -> bytes:
    return event({"choices": [{"index": 0, "delta": fields}]})


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield running
        running.shutdown()
        thread.join()


@pytest.fixture
def ask(server: Server) -> Callable[[], Answer]:
    base = f"http://127.0.0.1:{server.server_address[1]}"
    return lambda: check(base, "m", patience=1.5)


def test_an_answer(server: Server, ask: Callable[[], Answer]) -> None:
    answer = ask()
    assert answer.text == "hello"
    assert 0 < answer.ttft < 1
    assert server.asked == [
        {
            "model": "m",
            "messages": [{"role": "user", "content": PROMPT}],
            "max_tokens": TOKENS,
            "temperature": 0,
            "stream": True,
        }
    ]


USAGE = event({"choices": [], "usage": {"completion_tokens": 2}})

STREAMS: dict[str, tuple[list[Any], str]] = {
    "reasoning only, as vLLM names it": ([delta(role="assistant"), delta(reasoning_content="hm"), DONE], "hm"),
    "reasoning only, as newer ones name it": ([delta(reasoning="hm"), delta(reasoning=" ok"), DONE], "hm ok"),
    "null content beside reasoning": ([delta(content=None, reasoning_content="hm"), DONE], "hm"),
    "usage at the end": ([delta(content="a"), USAGE, DONE], "a"),
    "an event without choices first": ([event({"choices": None}), event({}), delta(content="a")], "a"),
    "a null delta": ([event({"choices": [{"delta": None}]}), delta(content="a"), DONE], "a"),
    "comments, other fields and blanks": ([b": ping\n\n", b"event: x\nid: 7\n", b"\n\n", delta(content="a")], "a"),
    "no space after the colon": ([b'data:{"choices":[{"delta":{"content":"a"}}]}\n\n', b"data:[DONE]\n\n"], "a"),
    "lines cut anywhere": ([b"da", b'ta: {"choices": [{"delta": {"con', 0.05, b'tent": "a"}}]}\n', b"\n"], "a"),
}


@pytest.mark.parametrize("name", STREAMS)
def test_streams_that_hold_a_token(server: Server, ask: Callable[[], Answer], name: str) -> None:
    pieces, text = STREAMS[name]
    server.replies["/v1/chat/completions"] = (200, pieces)
    assert ask().text == text


@pytest.mark.parametrize(
    "pieces",
    [
        [],
        [DONE],
        [delta(role="assistant"), DONE],
        [delta(role="assistant", content=""), delta(content=""), DONE],
        [delta(tool_calls=[]), USAGE, DONE],
    ],
    ids=["nothing", "done at once", "role only", "empty pieces", "no text"],
)
def test_streams_without_a_token(server: Server, ask: Callable[[], Answer], pieces: list[bytes]) -> None:
    server.replies["/v1/chat/completions"] = (200, pieces)
    with pytest.raises(NoAnswer, match="held no token") as raised:
        ask()
    assert not raised.value.wrong


def test_time_to_first_token_counts_a_token_not_the_role(server: Server, ask: Callable[[], Answer]) -> None:
    stream = [delta(role="assistant"), 0.2, delta(content="a"), 0.3, delta(content="b"), DONE]
    server.replies["/v1/chat/completions"] = (200, stream)
    assert 0.2 <= ask().ttft < 0.5


@pytest.mark.parametrize(
    ("path", "reply", "says"),
    [
        ("/health", (503, b'{"error": "loading model"}'), "/health answers 503"),
        ("/v1/models", (503, b"busy"), "503"),
        ("/v1/models", (200, b"not json"), "/v1/models answers with something that is not JSON: not json"),
        ("/v1/models", (200, b"[]"), "/v1/models answers in another shape: Expected `object`, got `array`"),
        ("/v1/models", (200, b'{"data": [{"name": "m"}]}'), "missing required field `id`"),
        ("/v1/models", (200, b'{"data": null}'), "Expected `array`, got `null` - at `$.data`"),
        ("/v1/models", (200, b"\xff\xfe"), "something that is not JSON"),
        ("/v1/chat/completions", (503, b'{"error": "no slot"}'), 'a chat completion answers 503: {"error": "no slot"}'),
        ("/v1/chat/completions", (500, b"x" * 5000), "a chat completion answers 500: " + "x" * 300),
        (
            "/v1/chat/completions",
            (200, [b"data: {broken\n\n"]),
            "something that is not JSON: {broken",
        ),
        ("/v1/chat/completions", (200, [b"data: 7\n\n"]), "a streamed completion answers in another shape"),
        ("/v1/chat/completions", (200, [event({"choices": ["x"]})]), "at `$.choices[0]`"),
        ("/v1/chat/completions", (200, [delta(content=["x"])]), "at `$.choices[0].delta.content`"),
        ("/v1/chat/completions", (200, [event({"error": {"message": "CUDA out of memory"}})]), "CUDA out of memory"),
        ("/v1/chat/completions", (200, [delta(content="a"), 2.5, DONE]), "its answer does not end within"),
    ],
)
def test_what_is_no_answer_yet(server: Server, ask: Callable[[], Answer], path: str, reply: Reply, says: str) -> None:
    server.replies[path] = reply
    with pytest.raises(NoAnswer) as raised:
        ask()
    assert says in str(raised.value)
    assert len(str(raised.value)) < 400
    assert not raised.value.wrong
    assert not raised.value.next, "waiting may help"


@pytest.mark.parametrize(
    ("models", "says"),
    [
        (b'{"data": [{"id": "llama"}, {"id": "qwen"}]}', "it serves llama, qwen, not m"),
        (b'{"data": []}', "it serves no model, not m"),
    ],
)
def test_another_model_is_wrong_for_good(server: Server, ask: Callable[[], Answer], models: bytes, says: str) -> None:
    server.replies["/v1/models"] = (200, models)
    with pytest.raises(NoAnswer) as raised:
        ask()
    assert str(raised.value) == says
    assert raised.value.wrong
    assert server.asked == []


def test_nobody_listens() -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        base = f"http://127.0.0.1:{holder.getsockname()[1]}"
        with pytest.raises(NoAnswer, match="refused"):
            check(base, "m", patience=5)
