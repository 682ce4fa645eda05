"""Stop a lane on this node: its own processes and no other, gently first."""

from __future__ import annotations

import os
import signal
import time
from typing import TYPE_CHECKING, Any

from sparkbuild.agent import lanes
from sparkbuild.agent.files import locked
from sparkbuild.agent.protocol import Reporter

if TYPE_CHECKING:
    from sparkbuild.agent.records import LaneRecord


def run(request: dict[str, Any], reporter: Reporter) -> dict[str, Any]:
    """Request {"store", "recipe", "grace": seconds}; stopping what does not run is not an error.

    Result {"stopped": bool, "pid", "killed": bool}: killed when it had to be SIGKILL.
    """
    store, recipe = request["store"], request["recipe"]
    if lanes.record(store, recipe) is None:
        return {"stopped": False, "pid": 0, "killed": False}
    with locked(os.path.join(lanes.folder(store, recipe), "lock"), f"lane {recipe}"):
        found = lanes.record(store, recipe)
        if found is None or not lanes.members(found):
            return {"stopped": False, "pid": 0, "killed": False}
        pid = found["pid"]
        reporter.log(f"stopping process {pid}")
        killed = end(found, float(request.get("grace", 15.0)))
        found["stopped_at"] = time.time()
        lanes.write(store, found)
        return {"stopped": True, "pid": pid, "killed": killed}


def end(found: LaneRecord, grace: float) -> bool:
    """SIGTERM the lane's processes, SIGKILL what is left after `grace` seconds; True when that was needed."""
    _signal(lanes.members(found), signal.SIGTERM)
    deadline = time.monotonic() + grace
    while time.monotonic() < deadline:
        if not lanes.members(found):
            return False
        time.sleep(0.05)
    while left := lanes.members(found):
        _signal(left, signal.SIGKILL)
        time.sleep(0.05)
    return True


def _signal(pids: set[int], number: int) -> None:
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            continue
