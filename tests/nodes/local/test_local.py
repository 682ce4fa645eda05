"""The connection to this machine: a real agent process, whatever happens to it."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sparkbuild.agent.wire.frames import frame
from sparkbuild.core import interrupt
from sparkbuild.core.errors import NodeError, SparkbuildError
from sparkbuild.core.interrupt import Interrupted
from sparkbuild.nodes.cluster import Nodes, Place
from sparkbuild.nodes.local import process
from sparkbuild.nodes.local.agent import LocalAgent
from tests.agent import driver
from tests.workspace_tool import is_alive, until


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[LocalAgent]:
    made = LocalAgent("dgx1", str(tmp_path))
    yield made
    made.close()


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[subprocess.Popen[bytes]]:
    """The agents that are started, kept for the test to do something to them."""
    kept: list[subprocess.Popen[bytes]] = []

    def start(*, final: bool = False) -> subprocess.Popen[bytes]:
        kept.append(process.start(final=final))
        return kept[-1]

    monkeypatch.setattr("sparkbuild.nodes.local.agent.start", start)
    return kept


QUERY = {"scheme": "artifact", "sha256": "a" * 64, "filename": "x.whl"}
SLEEP = ["sleep", "60"]


def lane(recipe: str = "demo", argv: list[str] | None = None) -> dict[str, Any]:
    fields = {"key": "k", "parts": {}, "env": {}, "host": "127.0.0.1", "port": 9, "model_id": "m", "protect": False}
    fields |= {"launch": "l1", "rank": 0, "world_size": 1}
    return {"recipe": recipe, "argv": argv or SLEEP, "lock": "", **fields}


@pytest.fixture
def watched(agent: LocalAgent, started: list[subprocess.Popen[bytes]]) -> Iterator[LocalAgent]:
    """A node with a lane, so that `watch` goes on until it is ended."""
    agent.call("launch", lane())
    assert len(started) == 1
    yield agent
    assert agent.call("stop", {"recipe": "demo", "grace": 2.0})["stopped"]


WATCH = {"recipe": "demo", "until": "dead"}


def test_a_call(agent: LocalAgent, started: list[subprocess.Popen[bytes]]) -> None:
    facts = agent.call("facts", {"queries": [QUERY]})["facts"]
    assert facts == [{"present": False, "bytes": 0}]
    assert agent.call("facts", {"queries": []}) == {"facts": []}
    agent.close()
    assert [one.returncode for one in started] == [0]


def test_a_verb_that_does_not_exist(agent: LocalAgent) -> None:
    with pytest.raises(SparkbuildError) as raised:
        agent.call("explode", {})
    assert "no verb 'explode'" in raised.value.what
    assert "facts" in raised.value.wanted
    assert raised.value.where == "node dgx1"


def test_an_error_of_the_agent_comes_as_ours(agent: LocalAgent) -> None:
    with pytest.raises(SparkbuildError) as raised:
        agent.call("tail", {"recipe": "never", "lines": 5, "follow": False})
    assert "never started here" in raised.value.what
    assert raised.value.next == "doit serve:never"


def test_a_bug_of_the_agent_is_a_node_error_with_its_traceback(agent: LocalAgent) -> None:
    with pytest.raises(NodeError) as raised:
        agent.call("stage", {"dst": 7})
    assert "in the middle of 'stage'" in raised.value.what
    assert "exit code 1" in raised.value.found
    assert "TypeError" in raised.value.found


def test_a_killed_agent(watched: LocalAgent, started: list[subprocess.Popen[bytes]]) -> None:
    def kill(event: dict[str, Any]) -> None:
        assert event["event"] == "state"
        started[-1].send_signal(signal.SIGKILL)

    for number in range(2):
        with pytest.raises(NodeError) as raised:
            watched.call("watch", WATCH, kill)
        assert raised.value.what == "the agent on dgx1 ended in the middle of 'watch'"
        assert raised.value.found == "killed by signal 9"
        assert len(started) == number + 1, "the next call starts another one"


def test_an_agent_that_ends_before_it_read_its_request(
    agent: LocalAgent, started: list[subprocess.Popen[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(*, final: bool = False) -> subprocess.Popen[bytes]:
        begun = process.start(final=final)
        begun.send_signal(signal.SIGKILL)
        begun.wait()
        return begun

    del started
    monkeypatch.setattr("sparkbuild.nodes.local.agent.start", start)
    with pytest.raises(NodeError, match="in the middle of 'facts'"):
        agent.call("facts", {"queries": [QUERY] * 5000})


def at_work(agent: subprocess.Popen[bytes]) -> list[int]:
    """The processes of its requests."""
    with open(f"/proc/{agent.pid}/task/{agent.pid}/children", encoding="ascii") as file:
        return [int(pid) for pid in file.read().split()]


def test_a_listener_that_fails_ends_the_request(watched: LocalAgent, started: list[subprocess.Popen[bytes]]) -> None:
    class LeaveError(Exception):
        pass

    def leave(_event: dict[str, Any]) -> None:
        assert at_work(started[0])
        raise LeaveError

    with pytest.raises(LeaveError):
        watched.call("watch", WATCH, leave)
    assert at_work(started[0]) == []
    assert started[0].poll() is None, "others may be at work"


def test_a_stop_of_the_run_ends_the_call_but_not_one_that_cleans_up(
    watched: LocalAgent, started: list[subprocess.Popen[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    stop = interrupt.Cancel()
    with monkeypatch.context() as patched:
        patched.setattr("sparkbuild.nodes.rpc.agent.cancel", stop)
        threading.Timer(0.5, stop.stop, args=(signal.SIGTERM,)).start()
        start = time.monotonic()
        with pytest.raises(Interrupted):
            watched.call("watch", WATCH)
        assert time.monotonic() - start < 5
        assert at_work(started[0]) == []
        assert watched.call("facts", {"queries": [QUERY]}, final=True)["facts"]


def test_the_agent_ends_when_its_stdin_closes(watched: LocalAgent) -> None:
    begun = process.start()
    assert begun.stdin is not None
    assert begun.stdout is not None
    assert begun.stderr is not None
    question = b'{"recipe": "demo", "until": "dead", "store": "%s"}\n' % watched.store.encode()
    begun.stdin.write(frame(1, "run", "watch") + frame(1, "in", question))
    begun.stdin.flush()
    while b'"state"' not in begun.stdout.readline():
        assert begun.poll() is None
    (pid,) = at_work(begun)
    begun.stdin.close()
    begun.wait(timeout=2)
    assert not is_alive(pid)
    begun.stdout.close()
    begun.stderr.close()


HANG = """
import subprocess, sys, types
import sparkbuild.agent.main as main
hang = types.ModuleType("sparkbuild.agent.hang")
def run(request, reporter):
    child = subprocess.Popen(["sleep", "60"])
    alone = subprocess.Popen(["sleep", "60"], start_new_session=True)
    reporter.log(f"{child.pid} {alone.pid}")
    child.wait()
hang.run = run
sys.modules["sparkbuild.agent.hang"] = hang
main.VERBS["hang"] = "hang"
"""


@pytest.mark.parametrize("how", ["stdin closed", "caller killed"])
def test_what_the_agent_started_ends_with_it_but_no_lane(how: str) -> None:
    code = driver.BOOT.format(root=str(driver.ROOT), shim=HANG)
    argv = ["python3", "-I", "-c", code, "hang"]
    # the caller in between holds the only other end of the agent's stdin, as doit does
    caller = f"import subprocess, sys; p = subprocess.Popen({argv!r}, stdin=subprocess.PIPE, start_new_session=True)\n"
    caller += "p.stdin.write(b'{}\\n'); p.stdin.flush(); sys.stdin.read(); p.stdin.close(); p.wait()"
    with subprocess.Popen(
        ["python3", "-c", caller], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as between:
        assert between.stdin is not None
        assert between.stdout is not None
        child, alone = map(int, between.stdout.readline().split('"')[-2].split())
        try:
            if how == "caller killed":
                between.kill()
            else:
                between.stdin.close()
            until(lambda: not is_alive(child), 2)
            assert is_alive(alone)
        finally:
            os.kill(alone, signal.SIGKILL)


# -- whose the store is ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("step", ["the folder above", "the store", "a sticky folder above", "in the workspace"])
def test_a_store_that_others_may_change_is_not_used(tmp_path: Path, step: str) -> None:
    """Images and lanes of a store run with the rights of who uses it."""
    above = tmp_path / "srv"
    store = above / "store"
    store.mkdir(parents=True)
    (store if step == "the store" else above).chmod({"a sticky folder above": 0o1777}.get(step, 0o777))
    root = tmp_path / "ws"
    root.mkdir()
    if step == "in the workspace":
        root.chmod(0o777)
    wanted = "store" if step == "in the workspace" else str(store)
    nodes = Nodes(root, {"local": Place("local", wanted)})
    if step not in {"the folder above", "the store"}:
        assert nodes.agent("local").call("facts", {"queries": []}) == {"facts": []}
        return
    with pytest.raises(NodeError) as raised:
        nodes.agent("local")
    text = str(raised.value)
    assert "the store of local is not used" in text
    assert f"{store if step == 'the store' else above} on the way to {store}" in text
    assert "set `store` of local in config.toml" in text
