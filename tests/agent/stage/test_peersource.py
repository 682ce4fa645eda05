"""Staging from other nodes: the NAS is read where none gives, and what they give is not believed."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.agent.driver import CHUNK, COMPLETE, MIB, Answer, call, finish, request_for, sha256, start, tree
from tests.agent.givers import Arriving, Giver, Liar, peers

Make = Callable[[str, int], Path]
Start = Callable[..., Giver]

# The NAS of a call: how much is read from it is told on stderr at the end, and it can be slow.
NAS = """
import atexit, os, sys, time
from sparkbuild.agent.source import source as sources
taken, plain = 0, sources.FileSource.read
def read(self, view, offset):
    global taken
    time.sleep({slow})
    got = plain(self, view, offset)
    taken += got
    return got
sources.FileSource.read = read
from sparkbuild.agent.wire import protocol
emit = protocol.Reporter.emit
def telling(self, event, **fields):
    if event in ("result", "error"):
        emit(self, "log", text="NAS %d" % taken)
        emit(self, "log", text="RSS %d" % peak())
    emit(self, event, **fields)
def peak():
    return int(open("/proc/self/status").read().split("VmHWM:")[1].split()[0]) * 1024
protocol.Reporter.emit = telling
"""


def begin(request: dict[str, Any], *, slow: float = 0.0) -> Any:
    return start("stage", request, shim=NAS.format(slow=slow))


def known(request: dict[str, Any], files: dict[str, Path]) -> dict[str, Any]:
    """With the digests, as most of what is staged has them."""
    for item in request["what"]["files"]:
        item["sha256"] = sha256(files[item["name"]])
    return request


def told(answer: Answer, what: str) -> int:
    return int(answer.logs.split(f"{what} ")[1].split()[0])


def stage(request: dict[str, Any]) -> Answer:
    answer = finish(begin(request))
    assert answer.stderr == ""
    return answer


def right(dst: Path, files: dict[str, Path]) -> bool:
    return tree(dst) == sorted([*COMPLETE, *files]) and all(sha256(dst / name) == sha256(files[name]) for name in files)


@pytest.fixture
def files(make: Make) -> dict[str, Path]:
    sizes = {"a/1.bin": 10 * MIB, "a/2 .bin": 9 * MIB + 5, "small.json": 1000, "empty": 0}
    return {name: make(name.replace("/", "-"), size) for name, size in sizes.items()}


def test_from_a_node_that_has_it(files: dict[str, Path], dst: Path, tmp_path: Path, give: Start) -> None:
    first = tmp_path / "first"
    assert call("stage", request_for(first, files)).code == 0
    answer = stage({**request_for(dst, files), "peers": peers(give(first))})
    assert answer.code == 0, answer.last
    assert right(dst, files)
    assert told(answer, "NAS") == 1000
    assert answer.last["received"] == 19 * MIB + 5
    again = stage({**request_for(dst, files), "peers": peers(give(first))})
    assert again.last["received"] == again.last["bytes"] == 0


def test_a_chain_while_the_first_reads(files: dict[str, Path], dst: Path, tmp_path: Path, give: Start) -> None:
    folders = [tmp_path / "first", tmp_path / "second", dst]
    processes, before = [], []
    for folder in folders:
        giver = give(folder, expected=True)
        request = request_for(folder, files)
        processes.append(begin({**request, "peers": peers(*before)} if before else request, slow=0.3))
        before = [giver]
    answers = [finish(process) for process in processes]
    assert [answer.code for answer in answers] == [0, 0, 0], [answer.last for answer in answers]
    assert [told(answer, "NAS") for answer in answers] == [19 * MIB + 1005, 1000, 1000]
    assert [answer.last["received"] for answer in answers] == [0, 19 * MIB + 5, 19 * MIB + 5]
    assert all(right(folder, files) for folder in folders)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_a_giver_is_gone_in_the_middle(make: Make, dst: Path, tmp_path: Path, give: Start, how: int) -> None:
    files = {"1.bin": make("1", 40 * MIB), "2.bin": make("2", 5 * MIB)}
    content = files["1.bin"].read_bytes()
    arriving = Arriving(tmp_path / "first", "1.bin", content, {"kind": "file", "of": "1.bin"})
    giver = give(tmp_path / "first", expected=True)
    with arriving.opened() as write:
        write(0)
        write(1)
        process = begin({**known(request_for(dst, files), files), "peers": peers(giver)})
        until_noted(dst, 2)
        start = time.monotonic()
        giver.process.send_signal(how)
        answer = finish(process)
    giver.process.send_signal(signal.SIGCONT)
    assert answer.code == 0, answer.last
    assert right(dst, files)
    assert told(answer, "NAS") == 37 * MIB
    assert answer.last["received"] == 8 * MIB
    assert f":{giver.port} does not give 1.bin: " in answer.logs
    assert time.monotonic() - start < 20


def test_a_giver_is_gone_and_nobody_knows_a_digest(make: Make, dst: Path, tmp_path: Path, give: Start) -> None:
    """What it gave cannot be confirmed, so it is read again."""
    files = {"1.bin": make("1", 12 * MIB)}
    content = files["1.bin"].read_bytes()
    giver = give(tmp_path / "first", expected=True)
    with Arriving(tmp_path / "first", "1.bin", content, {"kind": "file", "of": "1.bin"}).opened() as write:
        write(0)
        process = begin({**request_for(dst, files), "peers": peers(giver)})
        until_noted(dst, 1)
        giver.process.kill()
        answer = finish(process)
    assert right(dst, files)
    assert told(answer, "NAS") == 20 * MIB


def until_noted(dst: Path, count: int) -> None:
    """Until so many chunks have arrived."""
    for _ in range(100):
        if _noted(dst) == count:
            return
        time.sleep(0.1)
    raise AssertionError(f"{_noted(dst)} of {count}")


def _noted(dst: Path) -> int:
    lists = [path.read_bytes().partition(b"\n")[2] for path in (dst / ".sparkbuild").glob("*.chunks")]
    return sum(data[at : at + 8] != bytes(8) for data in lists for at in range(0, len(data), 8))


def test_the_next_peer_goes_on(make: Make, dst: Path, tmp_path: Path, give: Start) -> None:
    files = {"1.bin": make("1", 21 * MIB)}
    content = files["1.bin"].read_bytes()
    assert call("stage", request_for(tmp_path / "second", files)).code == 0
    with Arriving(tmp_path / "first", "1.bin", content, {"kind": "file", "of": "1.bin"}).opened() as write:
        write(0)
        write(1)
        both = peers(give(tmp_path / "first"), give(tmp_path / "second"))
        process = begin({**request_for(dst, files), "peers": both})
        time.sleep(1.5)
    answer = finish(process)  # the first gives up: nobody is at work there
    assert answer.code == 0
    assert right(dst, files)
    assert (told(answer, "NAS"), answer.last["received"]) == (0, 21 * MIB)
    assert "it gets no more of it" in answer.logs


def test_peers_that_are_not_there(make: Make, dst: Path, give: Start, tmp_path: Path) -> None:
    files = {f"{number}.bin": make(str(number), 2 * MIB) for number in range(6)}
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    both = peers(port, give(tmp_path / "nothing"))
    answer = stage({**request_for(dst, files), "streams": 1, "peers": both})
    assert right(dst, files)
    assert told(answer, "NAS") == 12 * MIB
    assert answer.logs.count(" does not give ") == 6, "three times each"
    assert answer.logs.count("it is not asked again") == 2


def test_a_giver_that_waits_is_waited_for(make: Make, dst: Path, tmp_path: Path, give: Start) -> None:
    files = {"1.bin": make("1", 6 * MIB)}
    arriving = Arriving(tmp_path / "first", "1.bin", files["1.bin"].read_bytes(), {"kind": "file", "of": "1.bin"})
    with arriving.opened() as write:
        process = begin({**request_for(dst, files), "peers": peers(give(tmp_path / "first"))})
        time.sleep(8)  # longer than a stall
        write(0)
        write(1)
        arriving.finish()
        answer = finish(process)
    assert right(dst, files)
    assert (told(answer, "NAS"), answer.last["received"]) == (0, 6 * MIB)


def test_a_peer_that_lies(make: Make, dst: Path) -> None:
    path = make("1", 9 * MIB)
    liar = Liar(os.urandom(9 * MIB))
    request = known(request_for(dst, {"1.bin": path}), {"1.bin": path})
    answer = stage({**request, "peers": peers(liar.port)})
    assert answer.code == 0, answer.last
    assert right(dst, {"1.bin": path})
    assert told(answer, "NAS") == 9 * MIB
    progress = [event["bytes"] for event in answer.events if event["event"] == "progress" and event["phase"] == "stage"]
    assert progress[-1] == 9 * MIB
    liar.close()


def test_a_peer_whose_file_is_not_what_it_says(make: Make, dst: Path) -> None:
    """Nobody knows a digest before: what the peer has in its records is compared."""
    path = make("1", 9 * MIB)
    content = path.read_bytes()
    liar = Liar(content[: 5 * MIB] + os.urandom(4 * MIB), sha256=sha256(path))
    answer = stage({**request_for(dst, {"1.bin": path}), "peers": peers(liar.port)})
    assert right(dst, {"1.bin": path})
    assert told(answer, "NAS") == 9 * MIB
    assert any("?sha256" in asked for asked in liar.asked)
    liar.close()


def test_the_nas_is_wrong_too(make: Make, dst: Path) -> None:
    path = make("1", 5 * MIB)
    liar = Liar(os.urandom(5 * MIB))
    request = request_for(dst, {"1.bin": path})
    request["what"]["files"][0]["sha256"] = "0" * 64
    answer = stage({**request, "peers": peers(liar.port)})
    assert (answer.code, answer.last["kind"]) == (1, "integrity")
    assert answer.last["found"] == f"sha256 {sha256(path)}"
    assert not (dst / "1.bin").exists()
    liar.close()


def test_the_source_has_another_size_than_was_said(make: Make, dst: Path) -> None:
    path = make("1", 5 * MIB)
    request = request_for(dst, {"1.bin": path})
    request["what"]["files"][0]["size"] = 6 * MIB
    answer = stage({**request, "peers": peers(1)})
    assert (answer.code, answer.last["kind"]) == (1, "integrity")
    assert "has another size" in answer.last["what"]


HEAD = b"HTTP/1.1 200 OK\r\n\r\n"
STRANGE = {
    "nothing": b"",
    "no frame": HEAD,
    "500": b"HTTP/1.1 500 no\r\n\r\n",
    "nonsense": b"nonsense\r\n\r\n",
    "long frame": HEAD + b"\x7f\xff\xff\xff",
    "endless head": b"x" * 10000,
}


@pytest.mark.parametrize("said", STRANGE.values(), ids=STRANGE)
def test_a_peer_that_speaks_something_else(make: Make, dst: Path, said: bytes) -> None:
    files = {"1.bin": make("1", 5 * MIB)}
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            caller, _ = server.accept()
            with caller:
                caller.recv(4096)
                caller.sendall(said)

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        done = stage({**request_for(dst, files), "peers": peers(server.getsockname()[1])})
        thread.join(5)
    assert right(dst, files)
    assert told(done, "NAS") == 5 * MIB


def test_what_came_before_a_kill_is_kept(make: Make, dst: Path, tmp_path: Path, give: Start) -> None:
    files = {"1.bin": make("1", 40 * MIB)}
    content = files["1.bin"].read_bytes()
    first = tmp_path / "first"
    arriving = Arriving(first, "1.bin", content, {"kind": "file", "of": "1.bin"})
    giver = give(first, expected=True)
    with arriving.opened() as write:
        for index in range(4):
            write(index)
        process = begin({**request_for(dst, files), "peers": peers(giver)})
        until_noted(dst, 4)
        process.kill()
        finish(process)
        for index in range(4, 10):
            write(index)
        arriving.finish()
        answer = stage({**request_for(dst, files), "peers": peers(giver)})
    assert right(dst, files)
    assert (told(answer, "NAS"), answer.last["received"]) == (0, 24 * MIB)


def test_memory(make: Make, dst: Path, tmp_path: Path, give: Start) -> None:
    files = {"1.bin": make("1", 200 * MIB)}
    first = tmp_path / "first"
    assert call("stage", request_for(first, files)).code == 0
    giver = give(first)
    answer = stage({**request_for(dst, files), "peers": peers(giver)})
    assert answer.last["received"] == 200 * MIB
    assert told(answer, "RSS") < 64 * MIB
    assert giver.memory() < 64 * MIB
    assert giver.memory() > CHUNK
