"""Whether a lane answers: its health and its models, asked where it listens on this node."""

from __future__ import annotations

import json
import socket
from typing import TYPE_CHECKING

from sparkbuild.agent.docker.unixhttp import Answer
from sparkbuild.agent.wire.printable import one_line

if TYPE_CHECKING:
    from sparkbuild.agent.wire.lanes import LaneMore
    from sparkbuild.agent.wire.records import LaneRecord

TIMEOUT = 2.0  # seconds for a whole answer; a healthy engine gives /health in milliseconds even under load
_MOST_BYTES, _MOST_IDS = 1 << 20, 100  # of a list of models


def answers(record: LaneRecord, hosts: list[str]) -> LaneMore:
    """Ask /health and /v1/models at the addresses where it listens; without a /health, the second alone."""
    port = record["port"]
    try:
        host = hosts[0]
        if hosts[1:]:
            host = next((address for address in hosts if _connects(address, port)), record["host"])
        status, _ = _get((host, port), "/health")
        if status not in {200, 404}:
            return {"answers": False, "problem": f"/health answers {status}"}
        status, body = _get((host, port), "/v1/models")
        if status != 200:
            return {"answers": False, "problem": f"/v1/models answers {status}"}
        ids = [str(entry["id"]) for entry in json.loads(body)["data"]][:_MOST_IDS]
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        text = one_line(str(getattr(error, "strerror", None) or error), 200)
        return {"answers": False, "problem": f"no answer on port {port}: {text or type(error).__name__}"}
    return {"answers": True, "served_ids": ids}


def _connects(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), timeout=TIMEOUT).close()
    except OSError:
        return False
    return True


def _get(place: tuple[str, int], path: str) -> tuple[int, bytes]:
    """GET, (status, body); TIMEOUT is for all of it, however slowly it comes. Raises OSError, ValueError."""
    with Answer(place, path, TIMEOUT) as answer:
        return answer.status, answer.body(_MOST_BYTES)
