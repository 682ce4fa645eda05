"""One agent that carries out several requests at once, whatever becomes of each of them."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from sparkbuild.agent.wire.frames import PIECE, WINDOW, Frame, Frames, frame
from sparkbuild.core.errors import NodeError, SparkbuildError
from sparkbuild.nodes.local import process
from sparkbuild.nodes.local.agent import LocalAgent
from sparkbuild.nodes.rpc.process import AgentProcess, no_check
from tests.workspace_tool import is_alive, until

# verbs that do to their process what no other may notice
SHIM = """
import sys, types, os, time, signal, json
import sparkbuild.agent.main as main
rude = types.ModuleType("sparkbuild.agent.rude")
def run(request, reporter):
    how = request["how"]
    if how == "exit": os._exit(7)
    if how == "signal": os.kill(os.getpid(), signal.SIGSEGV)
    if how == "group": os.killpg(0, signal.SIGKILL)
    if how == "raise": raise RuntimeError("a bug")
    if how == "change":
        os.umask(0o077); os.chdir("/"); os.environ["HOME"] = "/nowhere"; signal.signal(signal.SIGTERM, signal.SIG_IGN)
        sys.stdout.write("no event\\n"); import gc; gc.disable(); sys.path.clear()
    if how == "told": return {"cwd": os.getcwd(), "umask": os.umask(0), "path": len(sys.path), "pid": os.getpid()}
    if how == "flood":
        for _ in range(request["lines"]): reporter.log("x" * 1000)
    if how == "size": return {"size": len(request["text"])}
    if how == "wait":
        reporter.emit("began", pid=os.getpid())
        while not os.path.exists(request["until"]): time.sleep(0.02)
    if how == "deaf":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        reporter.emit("began", pid=os.getpid())
        time.sleep(1000)
    return {"how": how}
rude.run = run
rude.OWNS_STDIN = False
sys.modules["sparkbuild.agent.rude"] = rude
main.VERBS["rude"] = "rude"
broken = types.ModuleType("sparkbuild.agent.broken")
main.VERBS["broken"] = "nowhere.broken"
from sparkbuild.agent.main import main
"""


@pytest.fixture
def agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalAgent]:
    boot = process._BOOT.replace("from sparkbuild.agent.main import main\n", SHIM)
    monkeypatch.setattr(process, "_BOOT", boot)
    made = LocalAgent("dgx1", str(tmp_path))
    yield made
    made.close()


class Going:
    """A request that goes on in a thread, until a file is there."""

    def __init__(self, agent: LocalAgent, path: Path, how: str = "wait") -> None:
        self.pid = 0
        self.result: dict[str, Any] | BaseException | None = None
        self.leaves = False

        def event(told: dict[str, Any]) -> None:
            self.pid = told.get("pid", 0)
            if self.leaves:
                raise InterruptedError

        def work() -> None:
            try:
                self.result = agent.call("rude", {"how": how, "until": str(path)}, event)
            except BaseException as error:  # noqa: BLE001 - looked at by the test
                self.result = error

        self.thread = threading.Thread(target=work, daemon=True)
        self.thread.start()


def rude(agent: LocalAgent, how: str, **more: Any) -> dict[str, Any]:
    return agent.call("rude", {"how": how, **more})


CRASHES = {
    "exit": "exit code 7",
    "signal": "killed by signal 11",
    "group": "killed by signal 9",
    "raise": "RuntimeError: a bug",
}


@pytest.mark.parametrize("how", CRASHES)
def test_a_verb_that_crashes_is_an_error_of_that_verb(agent: LocalAgent, tmp_path: Path, how: str) -> None:
    other = Going(agent, tmp_path / "go")
    until(lambda: other.pid)
    with pytest.raises(NodeError, match="the agent on dgx1 ended in the middle of 'rude'") as raised:
        rude(agent, how)
    assert CRASHES[how] in raised.value.found
    assert rude(agent, "told")["umask"] == 0o022
    (tmp_path / "go").touch()
    other.thread.join(10)
    assert other.result == {"how": "wait"}


def test_a_module_that_cannot_be_loaded_is_an_error_of_that_verb(agent: LocalAgent) -> None:
    with pytest.raises(NodeError) as raised:
        agent.call("broken", {})
    assert "No module named 'sparkbuild.agent.nowhere'" in raised.value.found
    assert rude(agent, "told")


def test_what_a_verb_does_to_its_process_no_other_sees(agent: LocalAgent) -> None:
    before = rude(agent, "told")
    assert rude(agent, "change") == {"how": "change"}
    after = rude(agent, "told")
    assert before.pop("pid") != after.pop("pid")
    assert before == after


def test_a_request_of_64_mib(agent: LocalAgent) -> None:
    """It passes in pieces, and others do not wait for it."""
    sizes: list[int] = []
    big = threading.Thread(target=lambda: sizes.append(rude(agent, "size", text="x" * (64 << 20))["size"]))
    big.start()
    for _ in range(5):
        assert rude(agent, "told")
    big.join(60)
    assert sizes == [64 << 20]
    with pytest.raises(NodeError) as raised:
        agent.call("facts", {"queries": [{}], "x": "y" * (64 << 20)})
    assert "KeyError: 'scheme'" in raised.value.found


def test_twenty_at_once(agent: LocalAgent) -> None:
    found: list[Any] = []
    threads = [threading.Thread(target=lambda: found.append(rude(agent, "told")["pid"])) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(set(found)) == 20


def test_two_at_once_on_one_folder(agent: LocalAgent, tmp_path: Path) -> None:
    """The second waits for the first, under the folder's lock, and finds its work."""
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "a").write_bytes(b"a" * (8 << 20))
    what = {"kind": "folder", "path": str(tmp_path / "src")}
    request = {"dst": "staged/x", "key": "k", "parts": {}, "what": what, "goal": "staged://dgx1/x/y"}
    results: list[Any] = []

    def stage() -> None:
        try:
            results.append(agent.call("stage", request))
        except SparkbuildError as error:
            results.append(error)

    threads = [threading.Thread(target=stage) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert [type(one) for one in results] == [dict, dict], results
    assert (tmp_path / "staged/x/a").read_bytes() == b"a" * (8 << 20)


def test_an_agent_that_is_killed_in_the_middle_of_five_requests(agent: LocalAgent, tmp_path: Path) -> None:
    five = [Going(agent, tmp_path / "never") for _ in range(5)]
    until(lambda: all(one.pid for one in five))
    pids = [one.pid for one in five]
    os.kill(int(Path(f"/proc/{pids[0]}/stat").read_text().rsplit(")", 1)[1].split()[1]), signal.SIGKILL)
    for one in five:
        one.thread.join(10)
        assert isinstance(one.result, NodeError)
        assert one.result.what == "the agent on dgx1 ended in the middle of 'rude'"
        assert one.result.found == "killed by signal 9"
    until(lambda: not any(is_alive(pid) for pid in pids), 5)
    assert rude(agent, "told"), "the next request has a new agent"


def test_a_request_that_is_left_ends_and_others_go_on(agent: LocalAgent, tmp_path: Path) -> None:
    stays, deaf = Going(agent, tmp_path / "go"), Going(agent, tmp_path / "never", "deaf")
    until(lambda: stays.pid and deaf.pid)

    def leave(_event: dict[str, Any]) -> None:
        raise InterruptedError

    with pytest.raises(InterruptedError):
        agent.call("rude", {"how": "wait", "until": "/nowhere"}, leave)
    (tmp_path / "go").touch()
    stays.thread.join(10)
    assert stays.result == {"how": "wait"}
    agent.close()
    deaf.thread.join(10)
    assert isinstance(deaf.result, NodeError)
    until(lambda: not is_alive(deaf.pid), 15)


def test_an_answer_that_nobody_reads_holds_up_nobody(agent: LocalAgent) -> None:
    """Of each request there is a window on its way, and no more."""
    reads, seen = threading.Event(), []

    def slow(event: dict[str, Any]) -> None:
        seen.append(event)
        reads.wait(30)

    flood = threading.Thread(target=lambda: agent.call("rude", {"how": "flood", "lines": 20_000}, slow))
    flood.start()
    until(lambda: seen)
    for _ in range(3):
        assert rude(agent, "told")
    desk = agent._process._desk  # type: ignore[union-attr]
    (waiting,) = [one for one in desk.requests.values() if one.verb == "rude"]
    pieces = [waiting._inbox.get() for _ in range(waiting._inbox.qsize())]  # who reads them is held in `slow`
    assert 0 < sum(len(piece or b"") for piece in pieces) <= WINDOW
    for piece in pieces:
        waiting._inbox.put(piece)
    reads.set()
    flood.join(60)
    assert len(seen) == 20_000


# -- frames ------------------------------------------------------------------------------------------------------------


def taken(*pieces: bytes) -> list[Frame]:
    frames = Frames()
    return [one for piece in pieces for one in frames.feed(piece)]


WHOLE = frame(1, "out", b"a\n=2 out 1\n") + frame(2, "exit", "0") + frame(3, "err")
SAID = [Frame(1, "out", b"a\n=2 out 1\n"), Frame(2, "exit", b"0"), Frame(3, "err", b"")]


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_frames_in_pieces(size: int) -> None:
    assert taken(*(WHOLE[at : at + size] for at in range(0, len(WHOLE), size))) == SAID


@pytest.mark.parametrize(
    "noise",
    [b"\n", b"\n\n\n", b"welcome\n", b"=\n", b"= out 1\n", b"=x out 1\n", b"=1 out\n", b"=1 out -1\n", b"=1 out x\n",
     b"=1  out 1\n", b"=1 out 99999999\n", b"x" * 5000 + b"\n", "=² out ²\n".encode(), b"\xff\xfe\n"],
)  # fmt: skip
def test_what_is_no_frame_is_skipped(noise: bytes) -> None:
    assert taken(noise, WHOLE, noise, WHOLE) == SAID * 2


def test_noise_without_end_is_not_kept() -> None:
    frames = Frames()
    for _ in range(100):
        assert list(frames.feed(b"x" * 10_000)) == []
    assert len(frames._rest) < 20_000


@given(st.lists(st.one_of(st.binary(max_size=80), st.sampled_from([WHOLE, b"=1 out 3\n", b"=9", b" 5\n", b"\n"]))))
def test_whatever_comes_is_taken(pieces: list[bytes]) -> None:
    frames = Frames()
    for one in (one for piece in pieces for one in frames.feed(piece)):
        assert len(one.data) <= PIECE
    assert len(frames._rest) <= PIECE + 100


class Wire:
    """Pipes whose other end says what the test wants."""

    def __init__(self, *said: bytes) -> None:
        self.sent = b""
        self._said = iter(said)
        self._asked = threading.Event()

    def send(self, data: bytes) -> bool:
        self.sent += data
        if b" run " in self.sent:
            self._asked.set()
        return True

    def end_input(self) -> None:
        pass

    def receive(self) -> bytes:
        self._asked.wait(10)
        return next(self._said, b"")

    def ending(self) -> tuple[int, str]:
        return 7, "bye"

    def lost(self) -> NodeError | None:
        return None

    def close(self) -> None:
        self._asked.set()


def test_an_agent_that_says_more_than_it_may() -> None:
    """What we keep of a node's answer is bounded, whatever it sends."""
    piece = frame(1, "out", b"x" * PIECE)
    wire = Wire(*[piece] * 100, frame(1, "took", "x") + frame(1, "exit", "not a number") + frame(2, "out", b"nobody"))
    running = AgentProcess("dgx1", wire).begin("facts")
    until(lambda: running.over)
    assert sum(map(len, running.lines(no_check))) == WINDOW
    assert running.code == -1
    assert frame(1, "run", "facts") in wire.sent


def test_a_request_of_an_agent_that_ended() -> None:
    agent = AgentProcess("dgx1", Wire(frame(1, "out", b"half")))
    first = agent.begin("facts")
    assert list(first.lines(no_check)) == [b"half"]
    assert (first.code, first.said) == (7, "bye")
    assert not agent.alive
    second = agent.begin("facts")
    assert not second.send(b"x", no_check)
    assert list(second.lines(no_check)) == []
    assert (second.code, second.said) == (7, "bye")
