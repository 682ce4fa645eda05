"""The client of docker's engine against everything that may be behind its socket: each answer in one line.

What a real engine answers is in tests/rack/test_dockerd_client.py.
"""

from __future__ import annotations

import itertools
import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sparkbuild.agent.docker.engine import Dockerd, DockerdError, quote
from sparkbuild.agent.docker.fact import docker_fact
from sparkbuild.agent.docker.loglines import LONGEST, frames, lines

Serve = Callable[..., Dockerd]


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    """Something that answers each request with the next of the given blocks of bytes, and hangs up."""
    opened = []

    def new(*answers: bytes, timeout: float = 5.0, pause: float = 0.0, hang: bool = False) -> Dockerd:
        path = tmp_path / f"{len(opened)}.sock"
        server = socket.socket(socket.AF_UNIX)
        server.bind(str(path))
        server.listen(8)
        opened.append(server)

        def run() -> None:
            try:
                for answer in answers or (b"",):
                    with server.accept()[0] as connection:
                        while hang and not answer and connection.recv(4096):
                            pass
                        asked = connection.recv(4096)
                        first, *rest = answer.split(b"|PAUSE|")
                        connection.sendall(first.replace(b"{asked}", asked.split(b" ")[1]))
                        for block in rest:
                            time.sleep(pause)
                            connection.sendall(block)
            except OSError:
                return

        threading.Thread(target=run, daemon=True).start()
        return Dockerd(str(path), timeout)

    yield new
    for server in opened:
        server.close()


def http(body: Any, *, status: str = "200 OK", chunked: bool = False) -> bytes:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    head = f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\n".encode()
    if not chunked:
        return head + f"Content-Length: {len(data)}\r\n\r\n".encode() + data
    pieces = [data[at : at + 7] for at in range(0, len(data), 7)]
    return head + b"Transfer-Encoding: chunked\r\n\r\n" + b"".join(map(chunk, pieces)) + b"0\r\n\r\n"


def chunk(data: bytes) -> bytes:
    return f"{len(data):x};name=value\r\n".encode() + data + b"\r\n"


def frame(stream: int, data: bytes) -> bytes:
    return bytes([stream, 0, 0, 0]) + len(data).to_bytes(4, "big") + data


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(http({"a": [1, "ü"]}), id="content length"),
        pytest.param(http({"a": [1, "ü"]}, chunked=True), id="chunked"),
        pytest.param(http({"a": [1, "ü"]}, chunked=True).replace(b"\r\n", b"\r\n|PAUSE|"), id="in pieces"),
        pytest.param(b'HTTP/1.0 200 OK\r\n\r\n{"a": [1, "\\u00fc"]}', id="until it hangs up"),
        pytest.param(http({"a": [1, "ü"]}).replace(b"\r\n", b"\n"), id="bare newlines"),
    ],
)
def test_json_however_it_is_sent(serve: Serve, answer: bytes) -> None:
    assert serve(answer).get("/x") == {"a": [1, "ü"]}


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (http({"message": "no such\nthing"}, status="500 Oops"), "dockerd answers 500: no such thing"),
        (http(b"<html>", status="502 Bad"), "dockerd answers 502: <html>"),
        (http({"message": 7}, status="400 Bad", chunked=True), "dockerd answers 400: 7"),
        (http({}, status="404 Not Found"), "dockerd answers 404: {}"),
        (b"HTTP/1.1 301 Moved\r\nLocation: /\r\n\r\n", "dockerd answers 301: "),
        (b"", "the answer ends early"),
        (b"SSH-2.0-OpenSSH\r\n", "no HTTP: b'SSH-2.0-OpenSSH'"),
        (b"HTTP/1.1 2x0 OK\r\n\r\n", "no number: b'2x0'"),
        (b"HTTP/1.1 200 OK\r\n", "the answer ends early"),
        (http(b"{nonsense"), "cannot be read"),
        (http(b"[" * 100_000), "cannot be read"),
        (http(b'{"a": 1}')[:-1], "the answer ends early"),
        (http(b'{"a": 1}', chunked=True)[:-12], "the answer ends early"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-5\r\nhello", "no number: b'-5'"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n{}", "no number: b'-1'"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\n{}", "no number"),
        (b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * 3 + b"x" * 200_000, "a line without an end"),
        (b"HTTP/1.1 200 OK\r\n" + b"".join(b"A%d: b\r\n" % n for n in range(300)), "a head without an end"),
    ],
)
def test_what_is_not_an_answer(serve: Serve, answer: bytes, problem: str) -> None:
    with pytest.raises(DockerdError) as raised:
        serve(answer).get("/x")
    assert problem in raised.value.problem
    assert "\n" not in raised.value.problem
    assert raised.value.fields["what"] == raised.value.problem


def test_an_answer_that_is_too_long(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sparkbuild.agent.docker.engine.LIMIT", 1000)
    with pytest.raises(DockerdError, match="more than 1000 bytes"):
        serve(http(b" " * 200_000)).get("/x")


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n{"])
def test_something_that_says_nothing_more(serve: Serve, answer: bytes) -> None:
    began = time.monotonic()
    with pytest.raises(DockerdError, match=r"does not answer on .*: nothing within 0[.]3 s"):
        serve(answer + b"|PAUSE|", timeout=0.3, pause=5, hang=True).get("/x")
    assert time.monotonic() - began < 4.5


def test_something_that_says_a_little_for_ever(serve: Serve) -> None:
    began = time.monotonic()
    slowly = b"HTTP/1.1 200 OK\r\n" + b"|PAUSE|".join(b"A%d: b\r\n" % n for n in range(100))
    with pytest.raises(DockerdError, match=r"nothing within 0[.]4 s"):
        serve(slowly, timeout=0.4, pause=0.1).get("/x")
    assert time.monotonic() - began < 8, "the time is for the answer, not for each byte of it"


def test_no_socket(tmp_path: Path) -> None:
    path = str(tmp_path / "docker.sock")
    with pytest.raises(DockerdError, match=f"^docker is not installed or not running: no {path}$") as raised:
        Dockerd(path).get("/info")
    assert "systemctl start docker" in raised.value.fields["next"]


def test_a_socket_that_nobody_listens_on(tmp_path: Path) -> None:
    path = str(tmp_path / "docker.sock")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(path)
        with pytest.raises(DockerdError, match=f"dockerd does not answer on {path}: Connection refused"):
            Dockerd(path).get("/info")


def test_a_path_that_no_socket_can_have() -> None:
    with pytest.raises(DockerdError, match=r"does not answer on .*too long"):
        Dockerd("/tmp/" + "x" * 200).get("/info")


def test_podman_is_refused_by_its_name(serve: Serve) -> None:
    """It answers most of docker's questions, as podman 5.8.6 of Debian does."""
    body = b'{"Version": "5.8.6", "ApiVersion": "1.41"}'
    head = b"HTTP/1.1 200 OK\r\nServer: Libpod/5.8.6 (linux)\r\nContent-Length: %d\r\n\r\n" % len(body)
    engine = serve(*[head + body] * 4)
    with pytest.raises(DockerdError) as caught:
        engine.get("/version")
    assert caught.value.problem.startswith(
        f"podman 5.8.6 answers on {engine.socket}, and not docker: it has no BuildKit"
    )
    assert "set `docker` of the node to its socket" in caught.value.fields["next"]
    fact = docker_fact(engine.socket, [])
    assert fact["present"] is False
    assert fact["problem"].startswith("podman 5.8.6 answers")
    assert fact["version"] == ""


def test_a_socket_that_is_not_ours(tmp_path: Path) -> None:
    import grp  # noqa: F401, PLC0415 - another user may not read where Python has its modules
    import pwd  # noqa: F401, PLC0415 - "

    if os.geteuid():
        pytest.skip("only root can become another user, and may open every socket")
    path = tmp_path / "docker.sock"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen()
        path.chmod(0o660)
        for folder in (tmp_path, *tmp_path.parents):
            if str(folder).startswith(("/tmp/", "/dev/shm/")):
                folder.chmod(0o755)
        read, write = os.pipe()
        child = os.fork()
        if not child:
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)
            try:
                Dockerd(str(path)).get("/info")
            except DockerdError as error:
                os.write(write, json.dumps(error.fields).encode())
            os._exit(0)
        os.waitpid(child, 0)
        os.close(write)
        with os.fdopen(read) as told:
            fields = json.load(told)
    assert fields["what"] == f"user nobody may not use docker: {path} belongs to group root"
    assert fields["next"] == "sudo usermod -aG root nobody, then log in again"


def test_names_are_quoted(serve: Serve) -> None:
    assert quote("10.0.0.1:5000/a/b:1@sha256:ab") == "10.0.0.1:5000/a/b:1@sha256:ab"
    assert quote('a b?c#d%"ü\r\n') == "a%20b%3Fc%23d%25%22%C3%BC%0D%0A"
    answer = http({"Name": "/a b", "Id": "f" * 64, "at": "{asked}"})
    length = len(b"/containers/a%20b/json") - len(b"{asked}") + len(answer.partition(b"\r\n\r\n")[2])
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % length + answer.partition(b"\r\n\r\n")[2]
    found = serve(answer).container("a b")
    assert found is not None
    assert found["at"] == "/containers/a%20b/json"


@pytest.mark.parametrize(
    ("asked", "known"),
    [
        ("demo", False),
        ("face0ff0face", True),
        ("face0ff0face" + "0" * 52, True),
        ("face", False),
        ("lane", True),
        ("/lane", True),
        ("", False),
    ],
)
def test_a_container_is_no_other_one(serve: Serve, asked: str, known: bool) -> None:
    found = serve(http({"Name": "/lane", "Id": "face0ff0face" + "0" * 52})).container(asked)
    assert (found is not None) is known


def test_an_image_is_no_other_one(serve: Serve) -> None:
    stranger, ours = {"Id": "sha256:cafe", "RepoTags": ["x:1"]}, {"Id": "sha256:12", "RepoTags": ["docker.io/cafe:1"]}
    docker = serve(http(stranger), http(ours), http(stranger), http({"Id": "sha256:cafe", "RepoTags": None}))
    assert docker.image("cafe") is None
    assert docker.image("cafe") == ours
    assert docker.image("x:1") == stranger
    assert docker.image("cafe") is None


def test_what_is_not_there(serve: Serve) -> None:
    missing = http({"message": "No such thing"}, status="404 Not Found")
    docker = serve(missing, missing, missing)
    assert docker.container("x") is None
    assert docker.image("x") is None
    with pytest.raises(DockerdError, match="there is no container x") as raised:
        list(docker.logs("x", tail=1))
    assert raised.value.status == 404


def log_of(serve: Serve, body: bytes, *, tty: bool = False, more: bytes = b"", **options: Any) -> Iterator[str]:
    inspected = http({"Name": "/x", "Id": "1" * 64, "Config": {"Tty": tty}})
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    docker = serve(inspected, head + chunk(body) + more, **options)
    return docker.logs("x", tail=-1, follow=True)


def test_logs_of_a_container(serve: Serve) -> None:
    body = frame(1, b"out one\nout ") + frame(2, b"err one\n") + frame(1, b"two\r\n") + frame(2, b"half")
    found = list(log_of(serve, body, more=b"0\r\n\r\n"))
    assert found == ["out one", "err one", "out two", "half"]


def test_logs_of_a_container_with_a_tty(serve: Serve) -> None:
    assert list(log_of(serve, b"\x01\x00\x00\x00 one\r\ntwo\r\n", tty=True, more=b"0\r\n\r\n")) == [
        "\x01\0\0\0 one",
        "two",
    ]


def test_logs_end_with_an_error_when_the_engine_does(serve: Serve) -> None:
    log = log_of(serve, frame(1, b"one\n"))
    assert next(log) == "one"
    with pytest.raises(DockerdError, match="ends early"):
        next(log)


def test_a_silent_container_is_followed_beyond_the_time_limit(serve: Serve) -> None:
    log = log_of(
        serve, frame(1, b"one\n"), more=b"|PAUSE|" + chunk(frame(1, b"two\n")) + b"0\r\n\r\n", timeout=0.2, pause=0.6
    )
    assert list(log) == ["one", "two"]


def test_lines_without_number(serve: Serve) -> None:
    body = b"".join(frame(1, b"%d\n" % number) for number in range(100_000))
    assert list(log_of(serve, body, more=b"0\r\n\r\n")) == [str(number) for number in range(100_000)]


@pytest.mark.parametrize("size", [1, 3, 8, 11, 100])
def test_frames_wherever_they_are_cut(size: int) -> None:
    data = frame(1, b"one\n") + frame(2, b"") + frame(2, b"two\nthree")
    blocks = [data[at : at + size] for at in range(0, len(data), size)]
    joined = {
        stream: b"".join(piece for _, piece in group)
        for stream, group in itertools.groupby(frames(blocks), key=lambda found: found[0])
    }
    assert joined == {1: b"one\n", 2: b"two\nthree"}
    assert list(lines(frames(blocks))) == ["one", "two", "three"]


@pytest.mark.parametrize("data", [b"plain text\n", b"\x01\x00\x00", frame(1, b"abc")[:-1], b"\x09" + bytes(7)])
def test_what_is_no_frame(data: bytes) -> None:
    with pytest.raises(ValueError, match="frame"):
        list(frames([data]))


def test_a_line_without_an_end_fills_no_memory() -> None:
    endless = ((1, b"x" * 65536) for _ in range(64))
    found = list(lines(endless))
    assert "".join(found) == "x" * (65536 * 64)
    assert max(map(len, found)) <= LONGEST


def test_bytes_that_are_no_text() -> None:
    assert list(lines([(1, b"\xff\xfe\n\n")])) == ["\ufffd\ufffd", ""]
