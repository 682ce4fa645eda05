"""Stop a lane on this node: its own process and no other, gently first."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

from sparkbuild.agent import lanes, procs
from sparkbuild.agent.files import locked
from sparkbuild.agent.launch import write
from sparkbuild.agent.protocol import Reporter


def run(request: dict[str, Any], reporter: Reporter) -> dict[str, Any]:
    """Request {"store", "recipe", "grace": seconds}; stopping what does not run is not an error.

    Result {"stopped": bool, "pid", "killed": bool}: killed when it had to be SIGKILL.
    """
    store, recipe = request["store"], request["recipe"]
    if lanes.record(store, recipe) is None:
        return {"stopped": False, "pid": 0, "killed": False}
    with locked(os.path.join(lanes.folder(store, recipe), "lock"), f"lane {recipe}"):
        found = lanes.record(store, recipe)
        if found is None or not lanes.alive(found):
            return {"stopped": False, "pid": 0, "killed": False}
        pid = found["pid"]
        reporter.log(f"stopping process {pid}")
        killed = _end_session(pid, float(request.get("grace", 15.0)))
        found["stopped_at"] = time.time()
        write(store, found)
        return {"stopped": True, "pid": pid, "killed": killed}


def _end_session(leader: int, grace: float) -> bool:
    """SIGTERM the session's processes, SIGKILL what is left after `grace` seconds; True when that was needed."""
    _signal(leader, signal.SIGTERM)
    deadline = time.monotonic() + grace
    while time.monotonic() < deadline:
        if not _living(leader):
            return False
        time.sleep(0.05)
    while _living(leader):
        _signal(leader, signal.SIGKILL)
        time.sleep(0.05)
    return True


def _living(leader: int) -> list[int]:
    return [pid for pid in procs.session_of(leader) if procs.start_ticks(pid) is not None]


def _signal(leader: int, number: int) -> None:
    for pid in _living(leader):
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            continue
