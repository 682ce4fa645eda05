"""Stop a lane on this node: its own processes and no other, gently first; its containers are named to the caller."""

from __future__ import annotations

import os
import signal
import time
from typing import TYPE_CHECKING, Any

from sparkbuild.agent.disk.lock import locked
from sparkbuild.agent.lane import prepare, records, served
from sparkbuild.agent.lane.marked import unrecorded
from sparkbuild.agent.machine import procs
from sparkbuild.agent.wire.lanelabels import CREATED
from sparkbuild.agent.wire.protocol import Reporter

if TYPE_CHECKING:
    from sparkbuild.agent.wire.records import LaneRecord


def run(request: dict[str, Any], reporter: Reporter) -> dict[str, Any]:
    """Request {"store", "docker", "recipe", "grace": seconds, "launch"?, "by"?}; stopping what does not run is not an
    error. With `launch`, only what that launch started is stopped; `by` is noted in the record.

    Result {"stopped": bool, "pid", "killed": bool, "containers": [Box], "foreign": [Box], "elsewhere": [ProcessLane],
    "docker_problem": text, "launch": text, "nodes": [name]}: killed when it had to be SIGKILL; `containers` are those
    of the recipe that hold the node or its name, for docker-py to stop; `foreign` those that another store's operator
    launched, to be left alone, `elsewhere` processes of such; `docker_problem` when the record names a container and
    docker does not answer; `launch` is the recorded one, `nodes` are those it was launched on, [] when it was stopped
    already.
    """
    store, recipe, launch = request["store"], request["recipe"], str(request.get("launch") or "")
    found = records.record(store, recipe)
    recorded = (found or {}).get("launch", "")
    done: dict[str, Any] = {"stopped": False, "pid": 0, "killed": False, "launch": recorded, "nodes": []}
    served.note_served(request)
    if found is not None and found.get("stopped_at") is None:
        done["nodes"] = list((found.get("parts") or {}).get("nodes") or ())
    if found is not None and not records.in_docker(found):
        done |= _stop_process(request, launch, reporter)
    if os.path.exists(str(request.get("docker") or "")):
        from sparkbuild.agent.docker.ours import is_alive, is_of_another  # noqa: PLC0415 - a node without docker has none

        shelf = records.shelf_of(request)
        boxes = [box for box in shelf.of(recipe) if is_alive(box) or box["state"] == CREATED]
        done["foreign"] = [box for box in boxes if is_of_another(box, store)]
        boxes = [box for box in boxes if not is_of_another(box, store)]
        done["containers"] = [box for box in boxes if launch in {"", box["launch"]}]
        done["docker_problem"] = shelf.problem if records.in_docker(found) else ""
        if found is not None and any(box["id"] == found.get("container") for box in done["containers"]):
            _mark(found, request)
    elif records.in_docker(found):
        done["docker_problem"] = f"docker is not running: no {request.get('docker')}"
    elsewhere = [one for one in unrecorded(store, _logs(store), procs.Glance()) if one["recipe"] == recipe]
    if elsewhere:
        done["elsewhere"] = elsewhere
    if not done.get("containers") and not done.get("docker_problem"):
        if not launch:
            _note_dead(request)
        prepare.forget(store, recipe, launch if launch != recorded else "")
    return done


def _mark(found: LaneRecord, request: dict[str, Any]) -> None:
    """Note who stops it before it ends: whoever waits for it is told so, and not that it died."""
    found["stopping"] = {"at": time.time(), "by": str(request.get("by") or "")}
    records.write(request["store"], found)


def _logs(store: str) -> set[str]:
    return {one.get("log", "") for one in records.every(store)[0].values()}


def _note_dead(request: dict[str, Any]) -> None:
    """A lane that died by itself was told to stop now: it is stopped, and not found dead at every look from here on."""
    found = records.record(request["store"], request["recipe"])
    if found is not None and found.get("stopped_at") is None:
        found["stopped_at"] = time.time()
        records.write(request["store"], found)


def _stop_process(request: dict[str, Any], launch: str, reporter: Reporter) -> dict[str, Any]:
    store, recipe = request["store"], request["recipe"]
    with locked(os.path.join(records.folder(store, recipe), "lock"), f"lane {recipe}"):
        found = records.record(store, recipe)
        if found is None or launch not in {"", found.get("launch", "")} or not records.members(found):
            return {}
        pid = found["pid"]
        reporter.log(f"stopping process {pid}")
        _mark(found, request)
        killed = end(found, float(request.get("grace", 15.0)))
        found["stopped_at"] = time.time()
        records.write(store, found)
        return {"stopped": True, "pid": pid, "killed": killed}


def end(found: LaneRecord, grace: float) -> bool:
    """SIGTERM the lane's processes, SIGKILL what is left after `grace` seconds; True when that was needed."""
    _signal(records.members(found), signal.SIGTERM)
    deadline = time.monotonic() + grace
    while time.monotonic() < deadline:
        if not records.members(found):
            return False
        time.sleep(0.05)
    while left := records.members(found):
        _signal(left, signal.SIGKILL)
        time.sleep(0.05)
    return True


def _signal(pids: set[int], number: int) -> None:
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            continue
