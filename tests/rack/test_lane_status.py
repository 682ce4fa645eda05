"""What `doit status`, `health` and `logs` say of ranks that run, while something keeps them from being seen."""

from __future__ import annotations

import pytest

from tests.rack.lanes import NAME, RECIPE, STORE, Lanes, record, shell
from tests.rack.node import Node

pytestmark = pytest.mark.usefixtures("possible", "served")
TASK = f"serve:{RECIPE}"
UNKNOWN = "unknown (docker cannot be asked)"


@pytest.fixture
def served(lanes: Lanes) -> None:
    """Two ranks that live and serve nobody."""
    lanes.sleeping()
    lanes.ok(TASK)


def docker(node: Node, signal: str) -> None:
    shell(node, f"kill -{signal} $(cat /run/docker.pid)")


def states(lanes: Lanes) -> str:
    """The nodes' rows of `doit health`."""
    return lanes("health:pair").out


@pytest.mark.parametrize("which", [0, pytest.param(1, marks=pytest.mark.long)])
def test_a_docker_that_hangs(lanes: Lanes, which: int) -> None:
    node = lanes.nodes[which]
    docker(node, "STOP")
    try:
        text = lanes.row()["state"]
        rows = states(lanes)
    finally:
        docker(node, "CONT")
    asked = f"docker on {node.name} cannot be asked: dockerd does not answer on "
    begins = f"starting; {asked}" if which else f"unknown ({asked}"
    assert text.startswith(begins)
    assert f"{node.name}  {UNKNOWN}" in rows
    assert f"! whether {RECIPE} runs is not known" in rows


def test_a_wrong_path_of_the_socket(lanes: Lanes) -> None:
    lanes.config(docker="/run/nothing.sock")
    assert lanes.row()["state"].startswith("unknown (docker on dgx1 cannot be asked: docker is not installed")
    assert states(lanes).count(UNKNOWN) == 2


def test_records_that_are_gone(lanes: Lanes) -> None:
    for node in lanes.nodes:
        shell(node, f"rm -rf {STORE}/lanes")
    row = lanes.row()
    lost = ", ".join(f"container {NAME} runs on {node.name} without a record" for node in lanes.nodes)
    assert (row["state"], row["url"]) == (f"unrecorded ({lost})", None)
    assert f"doit stop:{RECIPE} ends it" in lanes.ok("status").out
    assert states(lanes).count(f"held by container {NAME}") == 2
    lanes.ok(f"stop:{RECIPE}")
    assert lanes.row()["state"] == "not running"
    assert lanes.left() == []


def test_a_record_of_a_worker_that_is_gone(lanes: Lanes) -> None:
    shell(lanes.nodes[1], f"rm -rf {STORE}/lanes")
    assert lanes.row()["state"] == f"starting; container {NAME} runs on dgx2 without a record"


def test_a_head_that_is_not_reached(lanes: Lanes) -> None:
    lanes.give_up_soon()
    lanes.nodes[0].cut()
    row = lanes.row()
    assert row["state"] == "unknown (dgx1 does not answer); rank 1 runs on dgx2"
    assert (row["url"], row["rank"], row["nodes"]) == (None, 1, ["dgx1", "dgx2"])
    shown = lanes.ok("status").out
    assert f"rank 1 of a launch on dgx1, dgx2: container {record(lanes.nodes[1])['container'][:12]} on dgx2" in shown


def test_nodes_that_were_swapped(lanes: Lanes) -> None:
    lanes.config(clusters='[clusters.pair]\nnodes = ["dgx2", "dgx1"]\n')
    row = lanes.row()
    assert row["state"] == "starting; launched on dgx1, dgx2"
    assert (row["node"], row["current"]) == ("dgx1", False)
    assert row["url"] == lanes.url + "/v1"
    assert lanes.ok("logs", RECIPE).err == "dgx2: rank 1 of a launch on dgx1, dgx2\n"


def test_a_cluster_that_was_made_smaller(lanes: Lanes) -> None:
    lanes.config(clusters='[clusters.pair]\nnodes = ["dgx2"]\n')
    row = lanes.row()
    assert "launched on dgx1, dgx2" in row["state"] or "of a launch on dgx1, dgx2" in row["state"]
    assert ":0/" not in str(row["url"])
    assert "rank 1 of a launch on dgx1, dgx2" in lanes.ok("logs", RECIPE).err


def test_a_recipe_that_cannot_be_read(lanes: Lanes) -> None:
    lanes.edit("[serve]\n", "[serve]\nprot = 1\n")
    shown = lanes("status").out
    assert "starting since" in shown
    assert "the recipe cannot be read" in shown
    assert "has changed" not in shown
    assert lanes.ok("logs", RECIPE, "--rank", "1").out.strip() == "1"


def test_a_log_that_went_with_its_container(lanes: Lanes) -> None:
    lanes.nodes[1].docker("rm", "--force", NAME)
    done = lanes.fails("logs", RECIPE, "--rank", "1")
    assert "is gone with its container" in done.err
    assert f"next:   doit {TASK}" in done.err
