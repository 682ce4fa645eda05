"""Watching all ranks of a starting lane: the first that dies is told with its lines, a node out of reach is forgiven
for a while, and nothing is held up by the one that hangs.
"""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from sparkbuild.core.errors import EngineDiedError, NodeError, SparkbuildError
from sparkbuild.core.interrupt import Interrupted
from sparkbuild.serving.ready import watching
from sparkbuild.serving.ready.phases import Phase
from sparkbuild.serving.ready.watching import Watches
from tests.serving.ready.ranks import Ranks, ranks
from tests.workspace_tool import until

LOST = watching.LOST  # before tests make it shorter


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "LOST", 1.0)
    monkeypatch.setattr(watching, "PAUSE", 0.05)
    monkeypatch.setattr(watching, "TOGETHER", 0.5)


class Started:
    """All ranks watched."""

    def __init__(self, nodes: Ranks, folder: Path) -> None:
        self.nodes = nodes
        self.run = nodes.run(folder)
        self.watches = Watches(self.run, tuple(nodes), "demo", "l1")
        self.watches.start()

    def raised(self, seconds: float = 10) -> SparkbuildError:
        """What `check` raises at last."""
        found: list[SparkbuildError] = []

        def check() -> bool:
            try:
                self.watches.check()
            except SparkbuildError as error:
                found.append(error)
            return bool(found)

        until(check, seconds)
        return found[0]

    def log(self) -> list[str]:
        """The step's log, without the times."""
        return [line.partition(" ")[2] for line in self.run.log.read_text().splitlines()]


def test_all_live(tmp_path: Path) -> None:
    nodes = ranks(3)
    started = Started(nodes, tmp_path)
    until(lambda: all(rank.watchers for rank in nodes.values()))
    for _ in range(5):
        started.watches.check()
    assert started.watches.head.listening is False
    nodes["dgx1"].set(listening=True)
    until(lambda: started.watches.head.listening)
    started.watches.end()
    until(lambda: not any(rank.watchers for rank in nodes.values()))


def test_lines_and_phases(tmp_path: Path) -> None:
    nodes = ranks(2)
    started = Started(nodes, tmp_path)
    nodes["dgx1"].set(lines=["waiting for ranks: 1/2", "  ", "x"])
    until(lambda: started.watches.head.last_line == "x")
    assert started.watches.head.phase == Phase("ranks joined", 1, 2), "a line that says nothing changes nothing"
    nodes["dgx2"].set(lines=["loading weights"])
    until(lambda: "1 | loading weights" in started.log())
    assert "0 | waiting for ranks: 1/2" in started.log()
    assert started.watches.head.phase == Phase("ranks joined", 1, 2)
    started.watches.end()


def test_one_rank_needs_no_number(tmp_path: Path) -> None:
    nodes = ranks(1)
    started = Started(nodes, tmp_path)
    nodes["dgx1"].set(lines=["hello"])
    nodes["dgx1"].die("loading", "CUDA error: out of memory")
    error = started.raised()
    assert isinstance(error, EngineDiedError)
    assert error.what == "lane demo: its process ended before it was ready"
    assert error.found == "loading\nCUDA error: out of memory"
    assert error.next == "doit logs demo shows the whole log"
    assert "| hello" in started.log()


def test_the_rank_that_dies_is_told_with_its_node_and_its_lines(tmp_path: Path) -> None:
    nodes = ranks(3)
    started = Started(nodes, tmp_path)
    nodes["dgx2"].die("loading", "", "NCCL error: remote process exited", state="Exited (1) 1 second ago")
    error = started.raised()
    assert isinstance(error, EngineDiedError)
    assert error.what == "lane demo: rank 1 ended before it was ready"
    exited = "rank 1 on dgx2 (Exited (1) 1 second ago):"
    assert error.found == f"{exited}\n  loading\n  NCCL error: remote process exited"
    started.watches.end()


@pytest.mark.parametrize("lines", [(), ("", " ")])
def test_a_rank_that_dies_without_a_word(tmp_path: Path, lines: tuple[str, ...]) -> None:
    nodes = ranks(2)
    started = Started(nodes, tmp_path)
    nodes["dgx1"].die(*lines)
    assert started.raised().found == "rank 0 on dgx1:\n  an empty log"
    started.watches.end()


def test_all_that_die_of_one_cause_are_told(tmp_path: Path) -> None:
    nodes = ranks(4)
    started = Started(nodes, tmp_path)
    nodes["dgx4"].die("lost rank 1")
    until(lambda: started.watches._all[3].ended)
    nodes["dgx2"].die("CUDA error")
    error = started.raised()
    assert error.what == "lane demo: rank 1, 3 ended before it was ready"
    assert error.found == "rank 1 on dgx2:\n  CUDA error\nrank 3 on dgx4:\n  lost rank 1"
    started.watches.end()


def test_one_that_dies_much_later_is_not_waited_for(tmp_path: Path) -> None:
    nodes = ranks(2)
    started = Started(nodes, tmp_path)
    nodes["dgx1"].die("x")
    began = time.monotonic()
    assert started.raised().what == "lane demo: rank 0 ended before it was ready"
    assert 0.4 < time.monotonic() - began < 5
    started.watches.end()


def test_a_node_that_is_out_of_reach_for_a_moment_is_forgiven(tmp_path: Path) -> None:
    nodes = ranks(2)
    started = Started(nodes, tmp_path)
    for _ in range(3):  # together longer than LOST, each for itself not
        until(lambda: nodes["dgx2"].watchers)
        time.sleep(0.1)
        nodes["dgx2"].set(away=True)
        deadline = time.monotonic() + 0.4
        while time.monotonic() < deadline:
            started.watches.check()
            time.sleep(0.02)
        nodes["dgx2"].set(away=False)
    until(lambda: nodes["dgx2"].watchers)
    started.watches.check()
    assert "dgx2 is out of reach: the connection was lost" in started.log()
    nodes["dgx2"].die("CUDA error")
    assert "rank 1 on dgx2" in started.raised().found, "and it is watched again"
    started.watches.end()


def test_a_switch_that_restarts_ends_no_load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two minutes without ssh, by a clock of which a second is one minute."""
    clock = SimpleNamespace(monotonic=lambda: time.monotonic() * 60)
    monkeypatch.setattr(watching, "LOST", LOST)
    monkeypatch.setattr(watching, "time", clock)
    nodes = ranks(1)
    started = Started(nodes, tmp_path)
    until(lambda: nodes["dgx1"].watchers)
    nodes["dgx1"].set(away=True)
    time.sleep(1.5)  # 90 s of that clock
    started.watches.check()
    nodes["dgx1"].set(away=False)
    until(lambda: nodes["dgx1"].watchers)
    started.watches.check()
    nodes["dgx1"].set(away=True)
    assert isinstance(started.raised(), NodeError), "for good, it does end"


@pytest.mark.parametrize("from_the_start", [True, False])
def test_a_node_that_is_out_of_reach_for_good(tmp_path: Path, from_the_start: bool) -> None:
    nodes = ranks(2)
    nodes["dgx2"].away = from_the_start
    started = Started(nodes, tmp_path)
    if not from_the_start:
        until(lambda: nodes["dgx2"].watchers)
        time.sleep(1.2)  # a lane that starts for longer than LOST has not used up anything
        nodes["dgx2"].set(away=True)
    began = time.monotonic()
    error = started.raised()
    assert 0.7 < time.monotonic() - began < 8
    assert isinstance(error, NodeError)
    assert error.what == "lane demo: rank 1 on dgx2 is out of reach for 1 s"
    assert "no route to host" in error.found
    assert "doit stop:demo" in error.next
    started.watches.end()


def test_the_only_node_out_of_reach_speaks_for_itself(tmp_path: Path) -> None:
    nodes = ranks(1)
    nodes["dgx1"].away = True
    error = Started(nodes, tmp_path).raised()
    assert (error.what, error.found) == ("cannot reach the node", "no route to host")


def test_a_rank_that_ended_goes_before_a_node_out_of_reach(tmp_path: Path) -> None:
    nodes = ranks(2)
    nodes["dgx1"].away = True
    started = Started(nodes, tmp_path)
    until(lambda: started.watches._all[0].failure)
    nodes["dgx2"].die("lost rank 0")
    until(lambda: started.watches._all[1].ended)
    assert isinstance(started.raised(), EngineDiedError)


def test_docker_that_is_gone_is_told_at_once(tmp_path: Path) -> None:
    nodes = ranks(2)
    started = Started(nodes, tmp_path)
    nodes["dgx2"].set(ending=SparkbuildError("dockerd does not answer"))
    assert started.raised().what == "dockerd does not answer"
    assert nodes["dgx2"].asked[0] == ("watch", {"recipe": "demo", "until": "dead", "launch": "l1", "final": False})
    started.watches.end()


def test_being_told_to_stop_is_no_failure(tmp_path: Path) -> None:
    nodes = ranks(2)
    nodes["dgx2"].ending = Interrupted(130)
    started = Started(nodes, tmp_path)
    until(lambda: nodes["dgx2"].asked and not nodes["dgx2"].watchers)
    started.watches.check()
    started.watches.end()


def test_a_lane_that_somebody_stops(tmp_path: Path) -> None:
    nodes = ranks(2)
    started = Started(nodes, tmp_path)
    nodes["dgx1"].end(launch="l1", stopping={"at": 0.0, "by": "ann@desk, process 7"})
    nodes["dgx2"].die("lost rank 0")
    error = started.raised()
    assert error.what == "lane demo was stopped before it was ready"
    assert error.found == "on dgx1 by ann@desk, process 7 at 00:00:00 UTC"
    started.watches.end()


@pytest.mark.parametrize("stopping", [None, {"at": 0.0, "by": "ann"}])
def test_a_lane_that_another_launch_replaces(tmp_path: Path, stopping: dict[str, object] | None) -> None:
    nodes = ranks(2)
    started = Started(nodes, tmp_path)
    nodes["dgx1"].end(launch="l1", stopping=stopping)
    nodes["dgx2"].end(launch="l2", stopping=None)
    error = started.raised()
    assert error.what == "lane demo was replaced by another launch before it was ready"
    assert error.found == "dgx2: launch l2, not l1"
    started.watches.end()
