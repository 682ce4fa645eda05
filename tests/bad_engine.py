"""An engine that misbehaves on demand: a program of the standard library alone, for a process lane or a container.

    python3 bad_engine.py --host 127.0.0.1 --port 8440 --do hang-up

`POST /become/MODE` changes what it does from the next request on, whatever it does now; `GET /asked` says how many
requests came, `GET /chats` how many of them for a chat. In a test: `with running("dribble") as engine:`, or
`lane_files` for a recipe that serves it.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import socketserver
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

MODEL_ID = "bad-model"
ESCAPES = "\x1b]0;owned\x07\x1b[2Jgone\rover\x07 \x9b31m \u202eright to left"
MARKUP = "template error: [/INST] is not closed by [bold red]"
HTML = "<!doctype html><html><head><title>Sign in</title></head><body>Router of the house</body></html>"
DEPTH = 200_000  # of lists in lists: no parser that recurses gets through

Send = Callable[[bytes], None]


def _answer(send: Send, status: int, body: bytes, kind: str = "application/json") -> None:
    head = f"HTTP/1.1 {status} Said\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    send(head.encode() + body)


def _fine(send: Send, path: str, body: bytes) -> None:
    """As an engine does."""
    if path == "/health":
        return _answer(send, 200, b"{}")
    if path == "/version":
        return _answer(send, 200, b'{"version": "0.bad"}')
    if path == "/v1/models":
        return _answer(send, 200, json.dumps({"data": [{"id": MODEL_ID, "owned_by": "a test"}]}).encode())
    if path != "/v1/chat/completions":
        return _answer(send, 404, b"{}")
    if json.loads(body).get("stream"):
        chunks = [{"delta": {"role": "assistant"}}, {"delta": {"content": "4"}}, {"delta": {}, "finish_reason": "stop"}]
        text = "".join(f"data: {json.dumps({'choices': [chunk]})}\n\n" for chunk in chunks)
        return _answer(send, 200, f"{text}data: [DONE]\n\n".encode(), "text/event-stream")
    message = {"role": "assistant", "content": "4"}
    reply = {"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}
    return _answer(send, 200, json.dumps(reply).encode())


def _status(status: int, text: str = "") -> Callable[[Send, str, bytes], None]:
    def mode(send: Send, path: str, body: bytes) -> None:
        del path, body
        _answer(send, status, json.dumps({"error": {"message": text or f"said {status}"}}).encode())

    return mode


def _guarded(send: Send, path: str, body: bytes) -> None:
    """An API key is wanted, but for /health: so does vLLM."""
    (_fine if path == "/health" else _status(401, "Unauthorized"))(send, path, body)


def _only_chat(mode: Callable[[Send, str, bytes], None]) -> Callable[[Send, str, bytes], None]:
    def of(send: Send, path: str, body: bytes) -> None:
        (mode if path == "/v1/chat/completions" else _fine)(send, path, body)

    return of


def _raw(data: bytes) -> Callable[[Send, str, bytes], None]:
    return lambda send, _path, _body: send(data)


def _page(send: Send, path: str, body: bytes) -> None:
    del path, body
    _answer(send, 200, HTML.encode(), "text/html; charset=utf-8")


def _silent(send: Send, path: str, body: bytes) -> None:
    del send, path, body
    time.sleep(3600)


def _dribble(send: Send, path: str, body: bytes) -> None:
    """A byte every 0.3 s: each read gets one, and the answer never ends."""
    del path, body
    send(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100000\r\n\r\n")
    while True:
        time.sleep(0.3)
        send(b" ")


def _dribbled_head(send: Send, path: str, body: bytes) -> None:
    del path, body
    send(b"HTTP/1.1 200 OK\r\n")
    for number in range(10_000):
        time.sleep(0.3)
        send(f"X-{number}: 1\r\n".encode())


def _endless(send: Send, path: str, body: bytes) -> None:
    del path, body
    send(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n[")
    while True:
        send(b"1," * 32768)


def _deep(send: Send, path: str, body: bytes) -> None:
    del path, body
    _answer(send, 200, b"[" * DEPTH + b"]" * DEPTH)


def _talkative(send: Send, path: str, body: bytes) -> None:
    """A completion whose tokens never end."""
    if path != "/v1/chat/completions" or not json.loads(body).get("stream"):
        return _fine(send, path, body)
    send(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
    while True:
        send(b'data: {"choices": [{"delta": {"content": "again "}}]}\n\n')
        time.sleep(0.01)


MODES: dict[str, Callable[[Send, str, bytes], None]] = {
    "fine": _fine,
    "hang-up": _raw(b""),
    "silent": _silent,
    "no-http": _raw(b"SSH-2.0-OpenSSH_9.2p1\r\n"),
    "head-only": _raw(b"HTTP/1.1"),
    "dribble": _dribble,
    "dribbled-head": _dribbled_head,
    "endless": _endless,
    "deep-json": _deep,
    "other-json": lambda send, _path, _body: _answer(send, 200, b'[1, {"data": "x"}]'),
    "no-json": lambda send, _path, _body: _answer(send, 200, b"\xff\xfe not JSON"),
    "escapes": _status(500, ESCAPES),
    "markup": _status(500, MARKUP),
    "html": _page,
    "401": _status(401, "Unauthorized"),
    "403": _status(403, "Forbidden"),
    "404": _status(404, "Not Found"),
    "500": _status(500, "CUDA error: device-side assert triggered"),
    "503": _status(503, "Loading model"),
    "guarded": _guarded,
    "chat-500": _only_chat(_status(500, "CUDA error: device-side assert triggered")),
    "chat-404": _only_chat(_status(404, "Not Found")),
    "chat-400": _only_chat(_status(400, "this model has no chat template")),
    "chat-markup": _only_chat(_status(500, MARKUP)),
    "chat-escapes": _only_chat(_status(500, ESCAPES)),
    "chat-silent": _only_chat(_silent),
    "chat-dribble": _only_chat(_dribble),
    "chat-hang-up": _only_chat(_raw(b"")),
    "chat-endless": _only_chat(_endless),
    "chat-deep-json": _only_chat(_deep),
    "talkative": _talkative,
}


class _Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True
    mode = "fine"
    asked = 0
    chats = 0


class _Handler(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        server = self.server
        assert isinstance(server, _Server)
        try:
            words = self.rfile.readline(65536).split()
            length = 0
            while line := self.rfile.readline(65536).strip():
                name, _, value = line.partition(b":")
                length = int(value) if name.lower() == b"content-length" else length
            body = self.rfile.read(length)
            path = words[1].decode() if len(words) > 1 else "/"
            if path.startswith("/become/"):
                server.mode = path.rpartition("/")[2]
                return _answer(self.connection.sendall, 200, b"{}")
            if path == "/asked":
                return _answer(self.connection.sendall, 200, json.dumps(server.asked).encode())
            if path == "/chats":
                return _answer(self.connection.sendall, 200, json.dumps(server.chats).encode())
            server.asked += bool(words)  # who only knocks asks nothing
            server.chats += path == "/v1/chat/completions"
            MODES[server.mode](self.connection.sendall, path, body)
        except (OSError, ValueError):
            return None  # who asks may hang up whenever it likes
        return None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--do", choices=sorted(MODES), default="fine", help="how it answers")
    parser.add_argument("--say", action="append", default=[], help="print this line first; Python's escapes are read")
    parser.add_argument("--listen-after", type=float, default=0.0, metavar="SECONDS")
    parser.add_argument("--exit-after", type=float, metavar="SECONDS")
    parser.add_argument("--exit-code", type=int, default=3, help="negative: end by that signal")
    parser.add_argument("--eat", type=int, default=0, metavar="MB", help="take that much memory before it exits")
    parser.add_argument("--deaf", action="store_true", help="SIGTERM does not end it")
    options = parser.parse_args()
    if options.deaf:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    else:  # process 1 of a container has no default action
        signal.signal(signal.SIGTERM, lambda *_: os._exit(143))
    for text in options.say:
        sys.stdout.write(text.encode().decode("unicode_escape") + "\n")
    sys.stdout.flush()
    time.sleep(options.listen_after)
    if options.exit_after is not None:
        threading.Thread(target=_end, args=(options.exit_after, options.exit_code, options.eat), daemon=True).start()
    with _Server((options.host, options.port), _Handler) as server:
        server.mode = options.do
        server.serve_forever()
    return 0


def _end(seconds: float, code: int, megabytes: int) -> None:
    time.sleep(seconds)
    eaten = [b"\1" * (1 << 20) for _ in range(megabytes)]
    if code < 0:
        os.kill(os.getpid(), -code)
        time.sleep(60)
    os._exit(code if len(eaten) == megabytes else 1)


@dataclass
class Bad:
    """A running one."""

    host: str
    port: int
    process: subprocess.Popen[bytes]

    @property
    def base_url(self) -> str:
        return f"http://{self.host}:{self.port}"

    def become(self, mode: str) -> None:
        """Answer so from here on."""
        become(self.base_url, mode)

    def asked(self) -> int:
        """How many requests came, those of `become` and this one apart."""
        with urllib.request.urlopen(f"{self.base_url}/asked", timeout=10) as answer:
            return int(json.load(answer))


def become(base_url: str, mode: str) -> None:
    """Tell the one at `base_url` how to answer from here on."""
    assert mode in MODES, mode
    request = urllib.request.Request(f"{base_url}/become/{mode}", method="POST", data=b"")
    with urllib.request.urlopen(request, timeout=10) as answer:
        assert answer.status == 200


@contextmanager
def running(mode: str = "fine", *, port: int = 0, host: str = "127.0.0.1") -> Iterator[Bad]:
    """One that listens on loopback."""
    if not port:
        with socket.socket() as probe:
            probe.bind((host, 0))
            port = int(probe.getsockname()[1])
    argv = [sys.executable, "-S", __file__, "--host", host, "--port", str(port), "--do", mode]
    process = subprocess.Popen(argv)
    try:
        deadline = time.monotonic() + 20
        while True:
            try:
                socket.create_connection((host, port), timeout=2).close()
                break
            except OSError:
                assert process.poll() is None, "it ended"
                assert time.monotonic() < deadline, "it does not listen"
                time.sleep(0.02)
        yield Bad(host, port, process)
    finally:
        process.kill()
        process.wait()


if __name__ == "__main__":
    sys.exit(main())
