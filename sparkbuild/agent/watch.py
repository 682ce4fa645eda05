"""Watch a starting lane: its process, its port and its log, several times a second, until told to end."""

from __future__ import annotations

import os
import time
from typing import Any

from sparkbuild.agent import lanes, procs
from sparkbuild.agent.protocol import AgentError, Reporter

PERIOD = 0.1  # seconds; the log of a starting engine is what the operator looks at


def run(request: dict[str, Any], reporter: Reporter) -> dict[str, Any]:
    """Request {"store", "recipe", "until": "listening"|"dead"}.

    Emits {"event": "state", "alive", "listening", "lines": [new log lines]} on every change and at least each second.
    Ends with {"alive", "listening", "last_lines"} when the process died, or at once when it listens and "until" says
    so. It never connects to the port.
    """
    found = lanes.record(request["store"], request["recipe"])
    if found is None:
        raise AgentError(f"lane {request['recipe']} was never started here", kind="engine")
    path = os.path.join(request["store"], found["log"])
    seen: tuple[bool, bool] | None = None
    offset, rest, last = 0, b"", 0.0
    while True:
        is_alive = lanes.alive(found)
        inodes = procs.Glance().inodes(found["port"]) if is_alive else set()
        listening = bool(inodes) and procs.owns_socket(procs.session_of(found["pid"]), inodes) is not None
        data = _read_from(path, offset)
        offset += len(data)
        *lines, rest = (rest + data).split(b"\n")
        if lines or (is_alive, listening) != seen or time.monotonic() - last >= 1:
            seen, last = (is_alive, listening), time.monotonic()
            text = [line.decode(errors="replace") for line in lines[-50:]]
            reporter.emit("state", alive=is_alive, listening=listening, lines=text)
        if not is_alive or (listening and request.get("until") == "listening"):
            return {"alive": is_alive, "listening": listening, "last_lines": lanes.last_lines(path, 15)}
        time.sleep(PERIOD)


def _read_from(path: str, offset: int) -> bytes:
    try:
        with open(path, "rb") as file:
            file.seek(offset)
            return file.read(1 << 20)
    except OSError:
        return b""
