"""A node's disk is full: at the image, at the weights, at the launch. What is made then is told, and nothing half."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.rack.lanes import RECIPE, STORE, Lanes, names, record, shell

pytestmark = pytest.mark.usefixtures("possible")
TASK = f"serve:{RECIPE}"


@pytest.fixture
def idle(lanes: Lanes) -> Iterator[Lanes]:
    lanes.sleeping()
    lanes.ok("sync:demo-ranks", "stage:demo-2x")
    yield lanes
    for node in lanes.nodes:
        node.free_disk()


def recovers(lanes: Lanes) -> None:
    """With room again, the next run goes on."""
    lanes.nodes[1].free_disk()
    lanes.ok(TASK)
    assert len(lanes.left()) == 2


def test_no_room_for_the_image(idle: Lanes) -> None:
    node = idle.nodes[1]
    # all of its keys: lanes that other tests edited have had others
    found = node.docker("images", "--format", "{{.Repository}}:{{.Tag}}", "sparkbuild/demo-ranks").out.split()
    node.docker("rmi", "--force", *found)
    node.fill_disk(100_000_000)
    done = idle.fails(TASK)
    assert "docker's disk on dgx2 has no room for the image" in done.text
    assert "docker system df" in done.text
    assert idle.state("sync:demo-ranks:dgx2") == "run"
    assert idle.left() == []
    assert not record(idle.nodes[0]), "nothing was launched on the other node"
    recovers(idle)


def test_no_room_for_the_weights(idle: Lanes) -> None:
    node = idle.nodes[1]
    shell(node, f"rm -rf {STORE}/staged")
    node.fill_disk(30_000_000)
    done = idle.fails(TASK)
    assert "stage:demo-2x:dgx2:weights" in done.text
    assert "MB free" in done.text
    assert idle.state("stage:demo-2x:dgx2:weights") == "run"
    assert not shell(node, f"find {STORE} -path '*/staged/*'").strip(), "nothing that could be taken for begun"
    assert idle.left() == []
    recovers(idle)


def test_no_room_at_the_launch(idle: Lanes) -> None:
    node = idle.nodes[1]
    node.fill_disk(0)
    done = idle.fails(TASK)
    assert "dgx2" in done.text
    assert "no space left on device" in done.text.lower()
    assert idle.left() == []
    assert names(node) == []
    assert [name for name in names(idle.nodes[0]) if not name.endswith(" exited")] == []
    recovers(idle)
