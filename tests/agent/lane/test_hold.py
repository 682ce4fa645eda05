"""Holding a node for a launch: one holder at a time, named to the others, and gone with its process."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.agent.driver import Answer, call, finish, start

FAST = "import sparkbuild.agent.lane.hold as hold; hold.PATIENCE = 0.5"


@pytest.fixture
def name() -> str:
    """A claim of this test alone."""
    return f"\0sparkbuild-test-{os.urandom(8).hex()}"


def request(name: str, recipe: str = "demo", who: str = "ann@desk, process 7") -> dict[str, Any]:
    return {"recipe": recipe, "who": who, "name": name}


def event(process: subprocess.Popen[bytes]) -> dict[str, Any]:
    """What it says next."""
    assert process.stdout is not None
    found: dict[str, Any] = json.loads(process.stdout.readline())
    return found


@contextmanager
def holder(name: str, **more: Any) -> Iterator[subprocess.Popen[bytes]]:
    process = start("hold", request(name, **more))
    try:
        assert event(process) == {"event": "held"}
        yield process
    finally:
        process.kill()
        finish(process)


def refused(name: str, **more: Any) -> dict[str, Any]:
    answer = call("hold", request(name, **more), shim=FAST)
    assert answer.code == 1
    assert [one["event"] for one in answer.events] == ["error"]
    assert answer.last["kind"] == "node"
    return answer.last


def test_it_holds_and_says_so_until_stdin_closes(name: str) -> None:
    with holder(name) as process:
        began = time.monotonic()
        assert [event(process), event(process)] == [{"event": "beat"}] * 2
        assert 0.8 < time.monotonic() - began < 5
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(5) == 143
    with holder(name):
        pass


def test_the_second_is_told_who_is_at_it(name: str) -> None:
    began = int(time.time())
    with holder(name, recipe="glm", who="bob@desk, process 9"):
        error = refused(name)
        assert error["what"] == "lane glm is being launched here at this moment"
        assert error["found"].startswith("by bob@desk, process 9 since ")
        at = {time.strftime("%H:%M:%S UTC", time.gmtime(began + late)) for late in range(30)}
        assert error["found"].rpartition(" since ")[2] in at
        assert refused(name)["found"] == error["found"], "as often as one asks"


def test_other_names_are_other_claims(name: str) -> None:
    with holder(name), holder(f"{name}-2"):
        pass


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_holder_that_is_killed_lets_go(name: str, number: int) -> None:
    with holder(name) as process:
        os.kill(process.pid, number)
        process.wait(5)
        with holder(name):
            pass


def test_one_that_waits_gets_it_when_the_holder_ends_meanwhile(name: str) -> None:
    server = socket.socket(socket.AF_UNIX)
    server.bind(name)  # bound, and not listening yet: nobody can say whose it is
    threading.Timer(0.5, server.close).start()
    with holder(name):
        pass


def test_of_many_at_once_one_holds(name: str) -> None:
    all_of_them = [start("hold", request(name, who=f"user {number}")) for number in range(6)]
    said = [event(process) for process in all_of_them]
    for process in all_of_them:
        process.kill()
    for process in all_of_them:
        finish(process)
    assert [one["event"] for one in said].count("held") == 1
    (winner,) = (number for number, one in enumerate(said) if one["event"] == "held")
    others = [one for one in said if one["event"] != "held"]
    assert all(one["found"].startswith(f"by user {winner} since ") for one in others)


def test_a_holder_that_is_stopped_says_nothing_and_still_holds(name: str) -> None:
    with holder(name) as process:
        os.kill(process.pid, signal.SIGSTOP)
        began = time.monotonic()
        assert "does not say whose it is" in refused(name)["what"]
        assert time.monotonic() - began < 5
        os.kill(process.pid, signal.SIGCONT)
        assert "lane demo is being launched" in refused(name)["what"]


def good(**changes: Any) -> bytes:
    return json.dumps({"recipe": "demo", "who": "ann", "since": 1.0, **changes}).encode()


STRANGE = {
    "nothing": b"",
    "no JSON": b"hello\n",
    "a list": b"[]",
    "no field": b"{}",
    "no time": good(since="now"),
    "a time that is none": b'{"recipe": "x", "who": "y", "since": NaN}',
    "the end of time": good(since=1e300),
    "before time": good(since=-1e300),
    "a recipe that is none": good(recipe=["x"]),
    "too long": good(who="y" * 5000),
    "half of it": good()[:-3],
    "bytes": b"\xff\xfe\0",
    "deep": b"[" * 4000,
}


def strange_holder(name: str, says: bytes) -> socket.socket:
    """Any user of the node may take the name."""
    server = socket.socket(socket.AF_UNIX)
    server.bind(name)
    server.listen(8)

    def run() -> None:
        try:
            while True:
                client, _ = server.accept()
                with client:
                    client.sendall(says)
        except OSError:
            return

    threading.Thread(target=run, daemon=True).start()
    return server


@pytest.mark.parametrize("says", STRANGE.values(), ids=STRANGE)
def test_a_holder_that_is_none_of_ours(name: str, says: bytes) -> None:
    server = strange_holder(name, says)
    try:
        assert "does not say whose it is" in refused(name)["what"]
    finally:
        server.shutdown(socket.SHUT_RDWR)
        server.close()


def test_a_caller_that_hears_nothing_does_not_stop_the_holder(name: str) -> None:
    with holder(name):
        for _ in range(40):  # connect, and hang up without a word
            with socket.socket(socket.AF_UNIX) as client:
                client.connect(name)
        assert "lane demo is being launched" in refused(name)["what"]


def test_who_may_be_long_and_of_any_letters(name: str) -> None:
    with holder(name, who="jürgen 'x' \"y\" \\ \n ✓"):
        assert "jürgen 'x' \"y\" \\ ✓" in refused(name)["found"]


def test_an_answer_has_no_traceback(name: str) -> None:
    answer: Answer = call("hold", {**request(name), "name": "x" * 200})  # longer than an address may be
    assert answer.code == 1
    assert answer.stderr == ""
    assert answer.last["event"] == "error"
