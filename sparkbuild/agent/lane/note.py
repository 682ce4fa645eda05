"""Add to a lane's record what was learnt after its launch: readiness, gate results."""

from __future__ import annotations

import time
from typing import Any

from sparkbuild.agent.lane import records, served
from sparkbuild.agent.wire.protocol import AgentError, Reporter

_TIMES = ("served_at", "stopped_at")
_FIELDS = ("key", "parts", "ready", "gates", "served_at", "protect", "stopped_at", "started")


def run(request: dict[str, Any], reporter: Reporter) -> dict[str, Any]:
    """Request {"store", "recipe", "launch", "set": {field: value}}; refuses when another launch is recorded by now. For
    a time, any value but None and 0 means now: all times of a record are by one clock, this node's.
    """
    del reporter
    found = records.record(request["store"], request["recipe"])
    if found is None or found.get("launch", "") != request["launch"]:
        raise AgentError(f"lane {request['recipe']} was replaced meanwhile", kind="engine")
    for field in _FIELDS:
        if field in request["set"]:
            found[field] = request["set"][field]  # type: ignore[literal-required]
        if field in _TIMES and request["set"].get(field):
            found[field] = time.time()  # type: ignore[literal-required]
    if "ready" in request["set"] and records.in_docker(found):  # what is ready is what runs now, whoever started it
        shelf = records.shelf_of(request)
        box = shelf.box(found["container"])
        found["started"] = str((shelf.state(box) if box else {}).get("StartedAt") or found.get("started", ""))
    records.write(request["store"], found)
    served.note_served(request)
    return {"record": found}
