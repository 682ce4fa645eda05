"""More than one recipe or operator on the same nodes: one gets them, the other is told who has."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sparkbuild.serving.launch.hold import held
from tests.rack.lanes import PORT, RECIPE, Lanes, box, is_running, record, workspace
from tests.rack.reach import place, reached
from tests.workspace_tool import Done, finish

pytestmark = pytest.mark.usefixtures("possible")
OTHER = "second"


@pytest.fixture
def mine(lanes: Lanes) -> Lanes:
    """One operator's workspace, with a second recipe for the same nodes."""
    lanes.sleeping()
    lanes.other(OTHER, PORT + 1)
    return lanes


@pytest.fixture
def yours(mine: Lanes, tmp_path: Path) -> Lanes:
    """Another operator's."""
    lanes = workspace(tmp_path / "yours", mine.rack, mine.store)
    lanes.sleeping()
    lanes.other(OTHER, PORT + 1)
    return lanes


@pytest.fixture
def launching(mine: Lanes, tmp_path: Path) -> Iterator[None]:
    """Somebody else is in the middle of a launch on the second node."""
    node = mine.nodes[1]
    with (
        reached(tmp_path / "else", {node.name: place(node, host_key=node.host_key)}) as nodes,
        held(nodes.agent, (node.name,), "other-lane"),
    ):
        yield


def test_a_node_serves_one_lane(mine: Lanes) -> None:
    mine.ok(f"serve:{RECIPE}")
    before = [box(node)["Id"] for node in mine.nodes]
    said = f"dgx1 serves lane {RECIPE}: doit stop:{RECIPE}"
    assert said in mine.ok("plan", f"serve:{OTHER}").out
    assert said in mine.fails(f"serve:{OTHER}").text
    assert f"lane {OTHER} does not run" in mine.ok(f"stop:{OTHER}").out
    assert [box(node)["Id"] for node in mine.nodes] == before
    assert mine.ok(f"stop:{RECIPE}")
    mine.ok(f"serve:{OTHER}")
    assert [is_running(node, OTHER) for node in mine.nodes] == [True, True]
    assert [is_running(node) for node in mine.nodes] == [False, False]


def test_one_shared_node_is_enough_to_be_refused(mine: Lanes) -> None:
    clusters = '[clusters.pair]\nnodes = ["dgx1", "dgx2"]\n\n[clusters.one]\nnodes = ["dgx2"]\n'
    mine.config(clusters=clusters)
    mine.edit('cluster = "pair"', 'cluster = "one"', OTHER)
    mine.ok(f"serve:{OTHER}")
    said = f"dgx2 serves lane {OTHER}: doit stop:{OTHER}"
    assert said in mine.reasons()
    done = mine.fails(f"serve:{RECIPE}")
    assert said in done.text
    assert "dgx1 serves" not in done.text
    assert not record(mine.nodes[0])
    mine.ok(f"stop:{OTHER}")
    mine.ok(f"serve:{RECIPE}")
    said = f"dgx2 serves lane {RECIPE}: doit stop:{RECIPE}"
    assert said in mine.fails(f"serve:{OTHER}").text


def test_a_protected_lane_is_replaced_by_nothing(mine: Lanes) -> None:
    mine.edit('image = "demo-ranks"', 'image = "demo-ranks"\nprotect = true')
    mine.ok(f"serve:{RECIPE}")
    before = [box(node)["Id"] for node in mine.nodes]
    mine.serve_with('env = { CHANGED = "1" }')
    assert any("protected" in reason for reason in mine.reasons())
    assert f"lane {RECIPE} is protected and is not replaced" in mine.fails(f"serve:{RECIPE}").text
    assert f"serves lane {RECIPE}" in mine.fails(f"serve:{OTHER}").text
    assert [box(node)["Id"] for node in mine.nodes] == before
    assert mine.row()["protected"]
    mine.ok(f"stop:{RECIPE}")
    mine.ok(f"serve:{RECIPE}")
    assert [box(node)["Id"] for node in mine.nodes] != before


@pytest.mark.usefixtures("launching")
def test_a_node_that_is_held_for_a_launch(mine: Lanes) -> None:
    done = mine.fails(f"serve:{RECIPE}")
    assert "lane other-lane is being launched here at this moment" in done.text
    assert "by root@" in done.text
    assert mine.left_on(mine.nodes[0]) == []
    assert not record(mine.nodes[0])


def race(*started: Any) -> list[Done]:
    done = [finish(process, 90) for process in started]
    for one in done:
        assert "Traceback" not in one.text, one
    return done


def test_two_operators_serve_the_same_at_the_same_time(mine: Lanes, yours: Lanes) -> None:
    mine.ok("sync:demo-ranks", "stage:demo-2x")
    done = race(mine.start(f"serve:{RECIPE}"), yours.start(f"serve:{RECIPE}"))
    assert 0 in {one.code for one in done}, done
    for one in done:
        if one.code != 0:  # it came while the other held the nodes
            assert f"lane {RECIPE} is being launched here at this moment" in one.text, one
            assert "by root@" in one.text
    assert len(mine.left()) == 2, "one launch, and it was not torn down by the one that lost"
    assert record(mine.nodes[0])["launch"] == record(mine.nodes[1])["launch"]
    assert [record(node)["container"] == box(node)["Id"] for node in mine.nodes] == [True, True]
    assert yours.row()["container"] == mine.row()["container"]


@pytest.fixture
def waiting(mine: Lanes) -> Iterator[subprocess.Popen[str]]:
    """A serve of `mine` that waits until its ranks, which do nothing, are ready."""
    mine.edit("wait = false\n", "")
    process = mine.start_and_wait("watched")
    yield process
    process.kill()
    process.communicate()


def test_a_launch_is_not_replaced_before_it_is_ready(mine: Lanes, yours: Lanes, waiting: subprocess.Popen[str]) -> None:
    before = [box(node)["Id"] for node in mine.nodes]
    yours.serve_with('env = { CHANGED = "1" }')
    done = yours.fails(f"serve:{RECIPE}")
    assert f"lane {RECIPE} is being launched here at this moment" in done.text
    assert "by root@" in done.text
    assert [box(node)["Id"] for node in mine.nodes] == before
    assert [is_running(node) for node in mine.nodes] == [True, True]
    waiting.send_signal(signal.SIGINT)
    assert finish(waiting, 60).code == 130
    assert mine.is_gone(), mine.left()
    yours.ok(f"serve:{RECIPE}")


def test_a_lane_that_somebody_stops_while_it_starts(mine: Lanes, yours: Lanes, waiting: subprocess.Popen[str]) -> None:
    assert "stopped container" in yours.ok(f"stop:{RECIPE}").out
    done = finish(waiting, 60)
    assert done.code == 1, done
    assert f"lane {RECIPE} was stopped before it was ready" in done.out
    assert "by root@" in done.out
    assert "ended before it was ready" not in done.out
    assert mine.left() == []


def test_a_lane_that_is_replaced_while_somebody_goes_on_waiting_for_it(mine: Lanes, yours: Lanes) -> None:
    """He launched it before, so that it is not his to take down; he is told."""
    mine.ok(f"serve:{RECIPE}")
    mine.edit("wait = false\n", "")
    process = mine.start_and_wait("watched")
    yours.serve_with('env = { CHANGED = "1" }')
    yours.ok(f"serve:{RECIPE}")
    done = finish(process, 60)
    assert done.code == 1, done
    said = (f"lane {RECIPE} was stopped before it was ready", f"lane {RECIPE} was replaced by another launch")
    assert any(text in done.out for text in said), done
    assert [is_running(node) for node in mine.nodes] == [True, True], "those of the other are left"
    assert len(mine.left()) == 2


def test_two_operators_serve_different_recipes_at_the_same_time(mine: Lanes, yours: Lanes) -> None:
    mine.ok("sync:demo-ranks", "stage:demo-2x", "stage:second")
    names = (RECIPE, OTHER)
    done = race(mine.start(f"serve:{RECIPE}"), yours.start(f"serve:{OTHER}"))
    assert sorted(one.code == 0 for one in done) == [False, True], done
    (lost,) = (number for number, one in enumerate(done) if one.code != 0)
    won = names[1 - lost]
    said = (f"lane {won} is being launched here at this moment", f"serves lane {won}")
    assert any(text in done[lost].text for text in said), done[lost]
    assert [is_running(node, won) for node in mine.nodes] == [True, True]
    assert len(mine.left()) == 2
