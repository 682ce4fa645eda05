"""Containers that somebody paused, started again or ended by hand: none of them is the launch that was checked."""

from __future__ import annotations

import pytest

from tests.rack.lanes import NAME, RECIPE, Lanes, box, is_running, record
from tests.workspace_tool import until

pytestmark = pytest.mark.usefixtures("possible")
TASK = f"serve:{RECIPE}"


def test_ranks_that_somebody_handled(lanes: Lanes) -> None:
    lanes.sleeping()
    lanes.ok(TASK)
    head, worker = lanes.nodes
    assert record(worker)["started"] == box(worker)["State"]["StartedAt"]
    assert lanes.row()["state"] == "starting"
    worker.docker("pause", NAME)
    assert lanes.row()["state"] == "broken (rank 1 on dgx2: it is paused)"
    assert any("it is paused" in reason for reason in lanes.reasons())
    assert f"! {RECIPE} runs, but it is paused: " in lanes.fails("health:pair").out
    worker.docker("unpause", NAME)
    assert lanes.row()["state"] == "starting"
    worker.docker("restart", "-t", "0", NAME)
    until(lambda: is_running(worker), 30)
    assert lanes.row()["state"].startswith("broken (rank 1 on dgx2: it was started again, by somebody else, at 20")
    assert f"{RECIPE} runs, but it was started again" in lanes.fails("health:pair").out
    worker.docker("kill", NAME)
    health = lanes.fails("health:pair").out
    assert f"! {RECIPE} is broken: its rank on dgx2 does not run: " in health
    assert f"! rank 1 of {RECIPE} is dead, and the lane runs on dgx1: " in health
    head.docker("kill", NAME)
    lanes.ok(f"stop:{RECIPE}")
    assert " is dead" not in lanes("health:pair").out, "what was stopped is stopped"
