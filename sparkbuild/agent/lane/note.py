"""Add to a lane's record what was learnt after its launch: readiness, gate results."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, cast

from sparkbuild.agent.lane import records
from sparkbuild.agent.lane.uses import note_served
from sparkbuild.agent.wire.protocol import AgentError, Reporter

if TYPE_CHECKING:
    from sparkbuild.agent.wire.lanes import Noted, NoteRequest, Recorded

_FIELDS = frozenset({"key", "parts", "ready", "gates", "served_at", "protect", "stopped_at", "started"})  # of Noted


def run(request: NoteRequest, reporter: Reporter) -> Recorded:
    """See NOTE. Refuses when another launch is recorded by now."""
    del reporter
    store, recipe = request["store"], request["recipe"]
    noted = _noted(request)
    record = records.change(store, recipe, request["launch"], lambda last: {**last, **noted})
    if record is None:
        raise AgentError(f"lane {recipe} was replaced meanwhile", kind="engine")
    note_served(request)
    return {"record": record}


def _noted(request: NoteRequest) -> Noted:
    """What is to be noted, its times by this node's clock."""
    noted = cast("Noted", {name: value for name, value in request["set"].items() if name in _FIELDS})
    if noted.get("served_at"):
        noted["served_at"] = time.time()
    if noted.get("stopped_at"):
        noted["stopped_at"] = time.time()
    record = records.record(request["store"], request["recipe"])
    if "ready" in noted and record is not None and records.in_docker(record):
        # what is ready is what runs now, whoever started it
        shelf = records.shelf_of(request)
        box = shelf.box(record["container"])
        started = shelf.state(box).get("StartedAt") if box else None
        noted["started"] = str(started or record.get("started", ""))
    return noted
