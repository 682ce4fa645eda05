"""Stop a lane on this node: its own processes and no other, gently first; its containers are named to the caller."""

from __future__ import annotations

import os
import signal
import time
from typing import TYPE_CHECKING, Any

from sparkbuild.agent import lanes, prepare
from sparkbuild.agent.files import locked
from sparkbuild.agent.protocol import Reporter

if TYPE_CHECKING:
    from sparkbuild.agent.records import LaneRecord


def run(request: dict[str, Any], reporter: Reporter) -> dict[str, Any]:
    """Request {"store", "docker", "recipe", "grace": seconds}; stopping what does not run is not an error.

    Result {"stopped": bool, "pid", "killed": bool, "containers": [Box], "docker_problem": text, "launch": text}: killed
    when it had to be SIGKILL; `containers` are those of the recipe that hold the node or its name, for docker-py to
    stop; `docker_problem` when the record names a container and docker does not answer.
    """
    store, recipe = request["store"], request["recipe"]
    found = lanes.record(store, recipe)
    done: dict[str, Any] = {"stopped": False, "pid": 0, "killed": False, "launch": (found or {}).get("launch", "")}
    if found is not None and not lanes.in_docker(found):
        done |= _stop_process(store, recipe, float(request.get("grace", 15.0)), reporter)
    if os.path.exists(str(request.get("docker") or "")):
        from sparkbuild.agent.boxes import is_alive  # noqa: PLC0415 - a node without docker has no containers

        shelf = lanes.shelf_of(request)
        done["containers"] = [box for box in shelf.of(recipe) if is_alive(box) or box["state"] == "created"]
        done["docker_problem"] = shelf.problem if lanes.in_docker(found) else ""
    elif lanes.in_docker(found):
        done["docker_problem"] = f"docker is not running: no {request.get('docker')}"
    if not done.get("containers") and not done.get("docker_problem"):
        prepare.forget(store, recipe)
    return done


def _stop_process(store: str, recipe: str, grace: float, reporter: Reporter) -> dict[str, Any]:
    with locked(os.path.join(lanes.folder(store, recipe), "lock"), f"lane {recipe}"):
        found = lanes.record(store, recipe)
        if found is None or not lanes.members(found):
            return {}
        pid = found["pid"]
        reporter.log(f"stopping process {pid}")
        killed = end(found, grace)
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
