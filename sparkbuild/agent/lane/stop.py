"""Stop a lane on this node: its own processes and no other, gently first; its containers are named to the caller."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from sparkbuild.agent.disk.lock import locked
from sparkbuild.agent.lane import prepare, records
from sparkbuild.agent.lane.marked import unrecorded
from sparkbuild.agent.lane.uses import note_served
from sparkbuild.agent.machine import procs
from sparkbuild.agent.wire.lanelabels import CREATED, is_alive, is_of_another
from sparkbuild.agent.wire.protocol import Reporter

if TYPE_CHECKING:
    from sparkbuild.agent.wire.lanes import StopRequest, StopResult
    from sparkbuild.agent.wire.records import LaneRecord, Stopping

_GRACE = 15.0  # seconds, where the request says none


def run(request: StopRequest, reporter: Reporter) -> StopResult:
    """See STOP. Stopping what does not run is not an error."""
    store, recipe, launch = request["store"], request["recipe"], request.get("launch", "")
    record = records.record(store, recipe)
    recorded = record.get("launch", "") if record else ""
    done: StopResult = {"stopped": False, "pid": 0, "killed": False, "launch": recorded, "nodes": []}
    note_served(request)
    if record is not None and record.get("stopped_at") is None:
        done["nodes"] = record["parts"].get("nodes") or []
    if record is not None and not records.in_docker(record):
        _stop_process(request, launch, done, reporter)
    docker = request.get("docker", "")
    if os.path.exists(docker):
        _name_containers(request, launch, record, done)
    elif records.in_docker(record):
        done["docker_problem"] = f"docker is not running: no {docker}"
    logs = {known.get("log", "") for known in records.every(store)[0].values()}
    elsewhere = [lane for lane in unrecorded(store, logs, procs.Glance()) if lane["recipe"] == recipe]
    if elsewhere:
        done["elsewhere"] = elsewhere
    if not done.get("containers") and not done.get("docker_problem"):
        if not launch:
            records.change(store, recipe, None, _ended)
        prepare.forget(store, recipe, launch if launch != recorded else "")
    return done


def _name_containers(request: StopRequest, launch: str, record: LaneRecord | None, done: StopResult) -> None:
    shelf = records.shelf_of(request)
    boxes = [box for box in shelf.of(request["recipe"]) if is_alive(box) or box["state"] == CREATED]
    done["foreign"] = [box for box in boxes if is_of_another(box["store"], request["store"])]
    ours = [box for box in boxes if not is_of_another(box["store"], request["store"])]
    done["containers"] = [box for box in ours if launch in {"", box["launch"]}]
    done["docker_problem"] = shelf.problem if records.in_docker(record) else ""
    if record is not None and any(box["id"] == record.get("container") for box in done["containers"]):
        _mark(record, request)


def _mark(record: LaneRecord, request: StopRequest) -> None:
    """Note who stops it before it ends: whoever waits for it is told so, and not that it died."""
    stopping: Stopping = {"at": time.time(), "by": request.get("by", "")}
    launch = record.get("launch", "")
    records.change(request["store"], request["recipe"], launch, lambda current: {**current, "stopping": stopping})


def _ended(record: LaneRecord) -> LaneRecord:
    """It is stopped now. So is one that died by itself: it is not found dead at every look from here on."""
    return record if record.get("stopped_at") is not None else {**record, "stopped_at": time.time()}


def _stop_process(request: StopRequest, launch: str, done: StopResult, reporter: Reporter) -> None:
    store, recipe = request["store"], request["recipe"]
    with locked(os.path.join(records.folder(store, recipe), "lock"), f"lane {recipe}"):
        record = records.record(store, recipe)
        if record is None or launch not in {"", record.get("launch", "")} or not records.members(record):
            return
        reporter.log(f"stopping process {record['pid']}")
        _mark(record, request)
        done["killed"] = end(record, request.get("grace", _GRACE))
        records.change(store, recipe, record.get("launch", ""), _ended)
        done["stopped"], done["pid"] = True, record["pid"]


def end(record: LaneRecord, grace: float) -> bool:
    """SIGTERM the lane's processes, SIGKILL what is left after `grace` seconds; True when that was needed."""
    _signal(records.members(record), signal.SIGTERM)
    deadline = time.monotonic() + grace
    while time.monotonic() < deadline:
        if not records.members(record):
            return False
        time.sleep(0.05)
    while left := records.members(record):
        _signal(left, signal.SIGKILL)
        time.sleep(0.05)
    return True


def _signal(pids: set[int], number: int) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)
