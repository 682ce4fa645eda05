"""Add to a lane's record what was learnt after its launch: readiness, gate results."""

from __future__ import annotations

from typing import Any

from sparkbuild.agent.lane import record as lanes
from sparkbuild.agent.ledger import index
from sparkbuild.agent.wire.protocol import AgentError, Reporter

_FIELDS = ("key", "parts", "ready", "gates", "served_at", "protect", "stopped_at")


def run(request: dict[str, Any], reporter: Reporter) -> dict[str, Any]:
    """Request {"store", "recipe", "launch", "set": {field: value}}; refuses when another launch is recorded by now."""
    del reporter
    found = lanes.record(request["store"], request["recipe"])
    if found is None or found.get("launch", "") != request["launch"]:
        raise AgentError(f"lane {request['recipe']} was replaced meanwhile", kind="engine")
    for field in _FIELDS:
        if field in request["set"]:
            found[field] = request["set"][field]  # type: ignore[literal-required]
    lanes.write(request["store"], found)
    index.served(request)
    return {"record": found}
