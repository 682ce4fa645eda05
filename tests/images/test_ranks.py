"""ranks.py with real processes on loopback: joining, being refused, dying, falling silent, and stopping."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.engine import ROOT, free_port

RANKS = ROOT / "images/demo-ranks/ranks.py"
# In place of the engine: says that it runs, ends on SIGTERM with code 0.
ENGINE = (
    "import signal, sys, time\n"
    "signal.signal(signal.SIGTERM, lambda *_: sys.exit(print('engine stops', flush=True)))\n"
    "print('engine runs', flush=True)\n"
    "time.sleep(100)"
)


class Rank:
    """One rank as a process; each has a loopback address of its own, as on a fabric."""

    def __init__(self, folder: Path, rank: int, world: int, port: int, *more: str, engine: str = ENGINE) -> None:
        self.log = folder / f"{rank}-{time.monotonic_ns()}.log"
        own = f"127.0.0.{11 + rank}"
        argv = [sys.executable, str(RANKS), "--rank", str(rank), "--world-size", str(world), "--head", "127.0.0.11"]
        argv += ["--fabric", own, "--rendezvous-port", str(port), *more, "--", sys.executable, "-c", engine]
        with self.log.open("wb") as sink:
            self.process = subprocess.Popen(argv, stdout=sink, stderr=sink)

    @property
    def text(self) -> str:
        return self.log.read_text()

    def says(self, text: str, within: float = 10) -> None:
        end = time.monotonic() + within
        while text not in self.text:
            assert time.monotonic() < end, f"it does not say {text!r}:\n{self.text}"
            time.sleep(0.02)

    def ends(self, code: int, within: float = 10) -> None:
        assert self.process.wait(within) == code, self.text


Start = Callable[..., Rank]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    port = free_port()
    running: list[Rank] = []

    def begin(rank: int, world: int = 2, *more: str, engine: str = ENGINE) -> Rank:
        running.append(Rank(tmp_path, rank, world, port, *more, engine=engine))
        return running[-1]

    yield begin
    for one in running:
        one.process.kill()
        one.process.wait()


def pair(start: Start) -> tuple[Rank, Rank]:
    head, worker = start(0), start(1)
    head.says("engine runs")
    worker.says("as rank 1 of 2")
    return head, worker


def test_the_engine_starts_when_all_are_there(start: Start) -> None:
    head = start(0, 3)
    head.says("waiting for ranks: 1/3")
    first = start(1, 3)
    head.says("rank 1 joined from 127.0.0.12 (2/3)")
    time.sleep(0.5)
    assert "engine runs" not in head.text
    second = start(2, 3)
    head.says("rank 2 joined from 127.0.0.13 (3/3)")
    head.says("engine runs")
    head.process.send_signal(signal.SIGTERM)
    head.ends(0)
    assert "SIGTERM: stopping" in head.text
    assert "engine stops" in head.text
    for worker in (first, second):
        worker.ends(0)
        assert "the head was told to stop" in worker.text


def test_alone_it_needs_nobody(start: Start) -> None:
    head = start(0, 1)
    head.says("engine runs")
    head.process.send_signal(signal.SIGINT)
    head.ends(0)


def test_a_killed_rank_ends_the_lane(start: Start) -> None:
    head, worker = pair(start)
    worker.process.kill()
    head.ends(1, within=3)
    assert "lost rank 1" in head.text
    assert "engine stops" in head.text


def test_a_silent_rank_ends_the_lane(start: Start) -> None:
    head, worker = pair(start)
    worker.process.send_signal(signal.SIGSTOP)
    began = time.monotonic()
    head.ends(1, within=8)
    assert time.monotonic() - began > 2
    assert "lost rank 1" in head.text


def test_one_lost_rank_of_several_ends_all(start: Start) -> None:
    head, first, second = start(0, 3), start(1, 3), start(2, 3)
    head.says("engine runs")
    first.process.kill()
    head.ends(1)
    second.ends(1)
    assert "the head has ended the lane: lost rank 1" in second.text


@pytest.mark.parametrize(("number", "text"), [(signal.SIGKILL, "lost the head"), (signal.SIGSTOP, "silent for 3 s")])
def test_a_lost_head_ends_the_workers(start: Start, number: signal.Signals, text: str) -> None:
    head, worker = pair(start)
    head.process.send_signal(number)
    worker.ends(1)
    assert text in worker.text


def test_the_engine_does_not_outlive_a_killed_head(start: Start, tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    head = start(0, 1, engine=f"import os, time\nopen({str(pid)!r}, 'w').write(str(os.getpid()))\n{ENGINE}")
    head.says("engine runs")
    head.process.kill()
    end = time.monotonic() + 5
    while Path(f"/proc/{pid.read_text()}").exists() and "\nState:\tZ" not in status(pid.read_text()):
        assert time.monotonic() < end
        time.sleep(0.02)


def status(pid: str) -> str:
    try:
        return Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return "\nState:\tZ"


def test_a_worker_that_is_stopped_ends_cleanly_and_takes_the_lane_with_it(start: Start) -> None:
    head, worker = pair(start)
    worker.process.send_signal(signal.SIGTERM)
    worker.ends(0)
    head.ends(1)


def test_a_rank_that_is_there_already_is_refused(start: Start) -> None:
    head = start(0, 3)
    first = start(1, 3)
    head.says("rank 1 joined")
    again = start(1, 3)
    again.ends(2)
    assert "refuses rank 1: rank 1 has joined already, from 127.0.0.12" in again.text
    assert first.process.poll() is None
    assert head.process.poll() is None


def test_a_rank_of_another_lane_is_refused(start: Start) -> None:
    head = start(0, 3)
    head.says("waiting")
    other = start(3, 4)
    other.ends(2)
    assert "is of a lane of 4, not of 3" in other.text


@pytest.mark.parametrize("said", [b"join 0 2\n", b"join 7 2\n", b"GET / HTTP/1.0\r\n\r\n", b"\xff\n", b"x" * 5000, b""])
def test_strangers_are_refused_and_do_no_harm(start: Start, said: bytes) -> None:
    head = start(0)
    head.says("waiting")
    port = int(head.process.args[head.process.args.index("--rendezvous-port") + 1])  # type: ignore[union-attr, index]
    with socket.create_connection(("127.0.0.11", port)) as stranger:
        stranger.sendall(said)
        start(1)
        head.says("engine runs")
    assert head.process.poll() is None


def test_a_head_that_comes_late_is_waited_for(start: Start) -> None:
    worker = start(1)
    worker.says("waiting for the head at 127.0.0.11")
    time.sleep(1)
    start(0).says("engine runs")


def test_a_head_that_never_comes(start: Start) -> None:
    worker = start(1, 2, "--join-timeout", "0.5")
    worker.ends(1)
    assert "no head at 127.0.0.11" in worker.text


def test_ranks_that_never_come(start: Start) -> None:
    head = start(0, 3, "--join-timeout", "0.5")
    head.ends(1)
    assert "missing: 1, 2" in head.text


def test_an_engine_that_ends_by_itself(start: Start) -> None:
    head, worker = start(0, 2, engine="raise SystemExit(7)"), start(1)
    head.ends(7)
    worker.ends(1)


def test_wrong_arguments(start: Start) -> None:
    start(2).ends(2)
    holder = start(0)
    holder.says("waiting")
    second = start(0)
    second.ends(3)
    assert "cannot listen on 127.0.0.11 port" in second.text
