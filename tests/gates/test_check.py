from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import msgspec
import pytest
import tomli

from sparkbuild.core.errors import GateError
from sparkbuild.core.interrupt import Cancel, Interrupted
from sparkbuild.gates import chat as chat_module
from sparkbuild.gates.chat import chat, read_reply
from sparkbuild.gates.check import check
from sparkbuild.workspace.shapes.schema import Gate, RecipeFile, SmokeGate, ToolGate
from tests.engine import ROOT, Engine, free_port

SUM = SmokeGate(id="sum", prompt="What is 19 + 23?", expect="42", max_tokens=64, timeout=60)


def demo_gates() -> tuple[Gate, ...]:
    text = (ROOT / "recipes/demo/recipe.toml").read_text()
    return msgspec.convert(tomli.loads(text), RecipeFile).gates


def run(gates: tuple[Gate, ...], url: str, model: str = "m") -> tuple[list[str], list[tuple[int, int]], Any]:
    notes: list[str] = []
    steps: list[tuple[int, int]] = []
    try:
        outcome: Any = check(gates, url, model, notes.append, lambda done, total: steps.append((done, total)))
    except GateError as error:
        outcome = error
    return notes, steps, outcome


def test_the_demo_is_green_again_and_again(engine: Engine):
    for _ in range(3):
        notes, steps, results = run(demo_gates(), engine.base_url, engine.model_id)
        assert not isinstance(results, GateError), str(results)
        assert [result.id for result in results] == ["arithmetic", "copy", "weather"]
        assert all(result.ok for result in results)
        assert len(notes) == 3
        assert steps[-1] == (3, 3)


def test_the_real_model_fails_what_it_cannot_do(engine: Engine):
    _, steps, error = run((SUM, *demo_gates()[:1]), engine.base_url, engine.model_id)
    assert isinstance(error, GateError)
    assert error.what == "smollm2-135m failed 1 of 2 gates: sum"
    assert "sum: '42' is not in the answer" in error.found
    assert "  answer: 19 + 23 = " in error.found
    assert error.wanted == "sum: 42"
    assert error.where == engine.base_url
    assert [result.ok for result in error.results] == [False, True]
    assert steps[-1] == (2, 2)  # the others were run all the same


def test_the_real_model_asked_for_a_tool_it_does_not_call(engine: Engine):
    gate = ToolGate(
        id="clock",
        prompt="What is 2+2?",
        tool="get_weather",
        description="Get the current weather of a city",
        parameters={"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
        arguments={"city": "Paris"},
        max_tokens=64,
    )
    _, _, error = run((gate,), engine.base_url, engine.model_id)
    assert isinstance(error, GateError)
    assert "clock: no tool call, but text" in error.found


def test_the_real_engine_refuses_a_prompt_that_is_too_long(engine: Engine):
    gate = msgspec.structs.replace(SUM, prompt="word " * 20000)
    _, _, error = run((gate,), engine.base_url, engine.model_id)
    assert "the server answered with HTTP 400" in error.found


def test_a_real_answer_that_is_cut_off(engine: Engine):
    gate = SmokeGate(id="long", prompt="Tell me a story.", expect="SPARK-42", max_tokens=8)
    _, _, error = run((gate,), engine.base_url, engine.model_id)
    assert "long: 'SPARK-42' is not in the answer, which was cut off at max_tokens=8" in error.found


def test_nobody_listens():
    _, _, error = run((SUM,), f"http://127.0.0.1:{free_port()}")
    assert "sum: the server does not answer: " in error.found
    assert "m failed 1 of 1 gate: sum" in str(error)


@contextmanager
def fake(answer: Callable[[BaseHTTPRequestHandler], None]) -> Iterator[str]:
    """A server for what the real engine cannot be made to do."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            answer(self)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def text(status: int, content: str) -> Callable[[BaseHTTPRequestHandler], None]:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        data = content.encode()
        handler.send_response(status)
        handler.send_header("Content-Length", str(len(data)))
        handler.end_headers()
        handler.wfile.write(data)

    return answer


@pytest.mark.parametrize(
    ("status", "content", "message"),
    [
        (
            200,
            json.dumps({"choices": [{"finish_reason": "length", "message": {"content": None, "reasoning": "19"}}]}),
            "the answer did not fit max_tokens=64: raise it; this is not garble",
        ),
        (200, '{"choices": [', 'the server\'s answer is not JSON: {"choices": ['),
        (200, "", "the server's answer is not JSON: (empty)"),
        (200, '{"choices": []}', 'the server\'s answer is not a chat completion: {"choices":[]}'),
        (200, '"ok"', 'the server\'s answer is not a chat completion: "ok"'),
        (500, "out of memory", "the server answered with HTTP 500: out of memory"),
        (503, "", "the server answered with HTTP 503: (no text)"),
        (401, '{"error": "key"}', 'the server answered with HTTP 401: {"error": "key"}'),
        (302, "", "the server answered with HTTP 302: (no text)"),
    ],
)
def test_answers_that_are_none(status: int, content: str, message: str):
    with fake(text(status, content)) as url:
        _, _, error = run((SUM,), url)
    assert error.found.splitlines()[0] == f"sum: {message}"


def test_a_server_that_hangs_and_one_that_trickles():
    release = threading.Event()

    def hang(handler: BaseHTTPRequestHandler) -> None:
        release.wait(20)
        handler.close_connection = True

    def trickle(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", "1000")
        handler.end_headers()
        while not release.wait(0.1):
            handler.wfile.write(b" ")
            handler.wfile.flush()

    gate = msgspec.structs.replace(SUM, timeout=0.3)
    for answer in (hang, trickle):
        release.clear()
        with fake(answer) as url:
            began = time.monotonic()
            _, _, error = run((gate,), url)
            assert time.monotonic() - began < 15
            release.set()
        assert error.found.splitlines()[0] == "sum: no answer within 0.3 s"


def test_a_stop_ends_the_wait_at_once(monkeypatch: pytest.MonkeyPatch):
    stop = Cancel()
    monkeypatch.setattr(chat_module, "ask", partial(chat_module.ask, meanwhile=stop.check))
    release = threading.Event()
    with fake(lambda _handler: bool(release.wait(20)) and None) as url:
        threading.Timer(0.3, stop.stop, [15]).start()
        began = time.monotonic()
        with pytest.raises(Interrupted) as caught:
            chat(url, {}, 60)
        assert time.monotonic() - began < 15
        assert caught.value.code == 143
        release.set()


def test_proxies_of_the_environment_are_not_used(engine: Engine, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:9")
    _, _, results = run(demo_gates()[:1], engine.base_url, engine.model_id)
    assert results[0].ok


@pytest.mark.parametrize(
    ("message", "reasoning", "arguments"),
    [
        ({"content": "x", "reasoning_content": "a"}, "a", None),
        ({"content": "x", "reasoning": "b"}, "b", None),
        ({"content": "x", "reasoning_content": None, "reasoning": "c"}, "c", None),
        ({"content": "x", "tool_calls": None}, "", None),
        ({"content": "x", "tool_calls": [{"function": {"name": "f", "arguments": "{}"}}]}, "", "{}"),
        ({"content": "x", "tool_calls": [{"function": {"name": "f", "arguments": {"a": 1}}}]}, "", '{"a":1}'),
        ({"content": "x", "tool_calls": [{"function": {"name": "f"}}]}, "", "null"),
    ],
)
def test_shapes_that_servers_use(message: dict[str, Any], reasoning: str, arguments: str | None):
    reply = read_reply({"choices": [{"message": message, "finish_reason": "stop"}]})
    assert reply.content == "x"
    assert reply.reasoning == reasoning
    assert [call.arguments for call in reply.tool_calls] == ([] if arguments is None else [arguments])


@pytest.mark.parametrize(
    "payload",
    [None, [], {}, {"choices": None}, {"choices": [{}]}, {"choices": [{"message": {"content": 3}}]},
     {"choices": [{"message": {"content": "", "tool_calls": [{}]}}]}],
)  # fmt: skip
def test_shapes_that_are_wrong(payload: Any):
    with pytest.raises(GateError, match="is not a chat completion"):
        read_reply(payload)


def test_gates_load_without_the_http_client():
    code = "import sys, sparkbuild.gates.check; sys.exit('httpx' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0


def test_fake_ports_are_loopback():
    with fake(text(200, "{}")) as url, socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2]))):
        pass
