"""Write the record of a container's launch: made before it is started, so that no container runs that none names."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

from sparkbuild.agent.disk.lock import locked
from sparkbuild.agent.lane import launch, records, stop
from sparkbuild.agent.machine import procs
from sparkbuild.agent.wire.protocol import AgentError, Reporter

if TYPE_CHECKING:
    from sparkbuild.agent.wire.records import LaneRecord


def run(request: dict[str, Any], reporter: Reporter) -> dict[str, Any]:
    """Request: the fields of a LaneRecord that a launch decides. Result {"record": LaneRecord}. Errors as of launch."""
    store, recipe = request["store"], request["recipe"]
    folder = records.folder(store, recipe)
    os.makedirs(folder, exist_ok=True)
    with locked(os.path.join(folder, "lock"), f"lane {recipe}"):
        before = records.record(store, recipe)
        if before is not None and records.alive(before, records.shelf_of(request)):
            what = f"container {before['container'][:12]}" if records.in_docker(before) else f"process {before['pid']}"
            raise AgentError(f"lane {recipe} already runs", kind="engine", found=what)
        if before is not None and (left := records.members(before)):  # of a process: nobody would find them any more
            reporter.log(f"ending what the last launch left behind: {', '.join(map(str, sorted(left)))}")
            stop.end(before, launch.LEFT_GRACE)
        with launch.one_at_a_time(store):
            launch.check_port(request)  # whoever has it would be taken for the container
            record = _write(request)
    return {"record": record}


def _write(request: dict[str, Any]) -> LaneRecord:
    record: LaneRecord = {
        "format": records.LANE_FORMAT,
        "recipe": request["recipe"],
        "runtime": "docker",
        "launch": request["launch"],
        "rank": request["rank"],
        "world_size": request["world_size"],
        "key": request["key"],
        "parts": request["parts"],
        "container": request["container"],
        "pid": 0,
        "start_ticks": 0,
        "boot_id": procs.boot_id(),
        "argv": list(request["argv"]),
        "uses": list(request.get("uses", [])),
        "host": request["host"],
        "port": request["port"],
        "model_id": request["model_id"],
        "protect": bool(request.get("protect")),
        "lock": request.get("lock", ""),
        "log": "",
        "launched_at": time.time(),
        "launched_uptime": records.uptime(),
        "ready": None,
        "gates": None,
        "served_at": None,
        "stopped_at": None,
    }
    records.write(request["store"], record)
    return record
