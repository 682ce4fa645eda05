"""A node loses its power or its cable, before, during and after a launch."""

from __future__ import annotations

import time

import pytest

from tests.rack.lanes import RECIPE, Lanes, box, is_running, record
from tests.workspace_tool import until

pytestmark = pytest.mark.usefixtures("possible", "impatient")


@pytest.fixture
def impatient(lanes: Lanes) -> None:
    lanes.give_up_soon()


def test_power_off_before_a_launch_is_a_row_in_the_plan(lanes: Lanes) -> None:
    lanes.sleeping()
    lanes.ok("sync:demo-ranks", "stage:demo-2x")
    lanes.nodes[1].kill()
    plan = lanes.plan(f"serve:{RECIPE}")
    states = {task: goal["state"] for task, goal in plan.items()}
    assert states["sync:demo-ranks:dgx1"] == states["stage:demo-2x:dgx1:weights"] == "ok"
    assert states["sync:demo-ranks:dgx2"] == states["stage:demo-2x:dgx2:weights"] == "unknown"
    assert states[f"serve:{RECIPE}"] == "unknown"
    assert "dgx2 does not answer" in plan[f"serve:{RECIPE}"]["reasons"][0]["text"]
    text = lanes.ok("plan", "-v", f"serve:{RECIPE}").out
    assert "unknown pair   serve:demo-2x" in text
    done = lanes.fails(f"serve:{RECIPE}")
    assert done.code == 3
    assert done.text.count("dgx2 does not answer") == 1, "each silent node once"
    assert "FAIL" not in done.text
    assert "nothing is made" in done.text
    done = lanes.fails("run", "-c", f"serve:{RECIPE}")
    assert "ok    stage:demo-2x:dgx1:weights" in done.out, "the others go on"
    assert "FAIL  stage:demo-2x:dgx2:weights\n      dgx2 does not answer" in done.out
    assert "checking dependencies" not in done.text
    assert lanes.left() == []
    assert not record(lanes.nodes[0])
    assert "dgx2  offline" in lanes("health:pair").out
    assert "does not run on dgx1" in lanes.fails(f"stop:{RECIPE}").text


def test_power_off_while_the_ranks_start(lanes: Lanes) -> None:
    """The head waits for a rank whose node is gone: all that can be reached is taken down, and the node is named."""
    lanes.sleeping()
    lanes.edit("wait = false\n", "")
    process = lanes.start_and_wait("watched")
    lanes.nodes[1].kill()
    out, err = process.communicate(timeout=120)
    assert process.returncode == 1, out + err
    assert "Traceback" not in out + err
    assert f"lane {RECIPE}: rank 1 on dgx2 is out of reach" in out
    assert f"lane {RECIPE} may still run on dgx2" in out
    assert lanes.left() == [], "on the node that is left"
    assert "dgx2 does not answer" in lanes.reasons()[0]
    lanes.nodes[1].boot()
    lanes.ok(f"serve:{RECIPE}", "--no-wait")
    assert len(lanes.left()) == 2


@pytest.mark.long
def test_power_off_between_two_steps_of_a_launch(lanes: Lanes) -> None:
    lanes.sleeping()
    process = lanes.start_and_wait("created")
    lanes.nodes[1].kill()
    out, err = process.communicate(timeout=120)
    assert "Traceback" not in out + err
    if process.returncode == 0:  # it was quicker
        assert "dgx2 does not answer" in lanes.reasons()[0]
        return
    assert "dgx2" in out
    assert lanes.left() == []


def test_power_off_after_the_launch_and_served_again_after_the_boot(lanes: Lanes) -> None:
    lanes.serve()
    head, worker = lanes.nodes
    launch = record(head)["launch"]
    worker.kill()
    assert "dgx2 does not answer" in lanes.row()["state"]
    until(lambda: not is_running(head), 20)
    assert not lanes.answers(), "the lane has lost a rank"
    plan = lanes.plan(f"serve:{RECIPE}")[f"serve:{RECIPE}"]
    assert plan["state"] == "unknown", "what runs on the silent node is not known"
    assert "lost rank 1" in lanes.ok("logs", RECIPE).out
    worker.boot()
    assert "gone without having been stopped" in lanes.reasons()[0]
    assert lanes.row()["state"] == "dead (was not stopped)"
    assert lanes.serve()["state"] == "serving"
    assert record(head)["launch"] == record(worker)["launch"] != launch


@pytest.mark.long
def test_a_link_that_is_cut_during_the_launch(lanes: Lanes) -> None:
    lanes.sleeping()
    lanes.edit("wait = false\n", "")
    head, worker = lanes.nodes
    process = lanes.start_and_wait("watched")
    worker.cut()
    began = time.monotonic()
    out, err = process.communicate(timeout=180)
    assert process.returncode == 1, out + err
    assert time.monotonic() - began < 120
    assert "Traceback" not in out + err
    assert "rank 1 on dgx2 is out of reach" in out
    assert f"when dgx2 is back: doit stop:{RECIPE}" in out or f"doit stop:{RECIPE} again" in out
    assert lanes.left_on(head) == []
    assert is_running(worker), "nobody could tell it to end"
    assert "dgx2 does not answer" in lanes.reasons()[0]
    worker.heal()
    old = box(worker)["Id"]
    assert any("rank 0 on dgx1" in reason for reason in lanes.reasons())
    lanes.ok(f"serve:{RECIPE}", "--no-wait")
    assert box(worker)["Id"] != old
    assert len(lanes.left()) == 2
