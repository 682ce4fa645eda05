"""Watch a starting rank: its process or container, its port and its log, several times a second, until told to end."""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Any

from sparkbuild.agent.docker.engine import Dockerd, DockerdError
from sparkbuild.agent.lane import records
from sparkbuild.agent.lane.ending import of_container, of_process
from sparkbuild.agent.machine import procs
from sparkbuild.agent.wire.protocol import AgentError, Reporter

if TYPE_CHECKING:
    from sparkbuild.agent.wire.records import LaneRecord

PERIOD = 0.1  # seconds; the log of a starting engine is what the operator looks at
DOCKER_PERIOD = 0.3  # docker is asked over its socket each time
MOST = 50  # lines per event
LONGEST = 65536  # bytes of a line; of a longer one, its end


def run(request: dict[str, Any], reporter: Reporter) -> dict[str, Any]:
    """Request {"store", "docker", "recipe", "until": "listening"|"dead", "launch"?}.

    Emits {"event": "state", "alive", "listening", "inside", "age", "lines": [new log lines]} on every change and at
    least each second; `inside`: it listens on a loopback address alone, and is to be reached on another; `age`: seconds
    since the launch, or None.
    Ends with {"alive", "listening", "last_lines", "state", "launch", "stopping"} when it died, or at once when it
    listens and "until" says so, or when another launch than "launch" is recorded; `launch` is the one that is recorded
    then, `stopping` what it says of being stopped. It never connects to the port.
    """
    found = records.record(request["store"], request["recipe"])
    if found is None:
        raise AgentError(f"lane {request['recipe']} was never started here", kind="engine")
    if request.get("launch") not in {None, "", found.get("launch", "")}:
        return {"alive": False, "listening": False, "last_lines": [], "state": "", **_recorded(request)}
    source = _Container(found, request) if records.in_docker(found) else _Process(found, request["store"])
    seen: tuple[bool, bool] | None = None
    last = 0.0
    while True:
        is_alive, listening = source.look()
        lines = source.lines()
        if lines or (is_alive, listening) != seen or time.monotonic() - last >= 1:
            seen, last = (is_alive, listening), time.monotonic()
            inside = listening and _only_inside(found)
            told = {"alive": is_alive, "listening": listening, "inside": inside, "lines": lines}
            reporter.emit("state", **told, age=records.age(found))
        if not is_alive or (listening and request.get("until") == "listening"):
            ending = records.log_end(request["store"], found, request, 15)
            state = source.state if is_alive else source.ended()
            seen_last = {"alive": is_alive, "listening": listening, "last_lines": ending, "state": state}
            return {**seen_last, **_recorded(request)}
        time.sleep(source.period)


def _only_inside(found: LaneRecord) -> bool:
    is_meant = found["host"].startswith("127.") or found["host"] in {"localhost", "::1"}
    return not is_meant and procs.Glance().is_loopback_alone(found["port"])


def _recorded(request: dict[str, Any]) -> dict[str, Any]:
    """What the record says by now: somebody may have stopped the lane, or launched it anew."""
    now = records.record(request["store"], request["recipe"]) or {}
    return {"launch": now.get("launch", ""), "stopping": now.get("stopping")}


class _Process:
    """A rank that is a process with a log file."""

    period = PERIOD
    state = ""

    def ended(self) -> str:
        """How, in words."""
        return of_process(self._found, self._store)

    def __init__(self, found: LaneRecord, store: str) -> None:
        self._found = found
        self._store = store
        self._path = os.path.join(store, found["log"])
        self._offset = 0
        self._rest = b""

    def look(self) -> tuple[bool, bool]:
        """Does it live, does it listen."""
        found = self._found
        if not records.alive(found):
            return False, False
        inodes = procs.Glance().inodes(found["port"]) if found["port"] else set()
        return True, bool(inodes) and procs.owns_socket(procs.session_of(found["pid"]), inodes) is not None

    def lines(self) -> list[str]:
        """What its log has gained, complete lines only."""
        try:
            with open(self._path, "rb") as file:
                if file.seek(0, os.SEEK_END) < self._offset:
                    self._offset = 0  # its bound was reached: this is its next file
                file.seek(self._offset)
                data = file.read(1 << 20)
        except OSError:
            return []
        self._offset += len(data)
        # a bar that is written over and over has carriage returns, and no end of line until it is full
        *lines, rest = (self._rest + data).replace(b"\r", b"\n").split(b"\n")
        self._rest = rest[-LONGEST:]
        return [line[-LONGEST:].decode(errors="replace") for line in lines if line][-MOST:]


class _Container:
    """A rank that is a container; its log is followed by a thread."""

    period = DOCKER_PERIOD

    def __init__(self, found: LaneRecord, request: dict[str, Any]) -> None:
        self._found = found
        self._request = request
        self._lines: deque[str] = deque(maxlen=1000)
        self.state = ""
        self._misses = 0
        threading.Thread(target=self._follow, daemon=True).start()

    def look(self) -> tuple[bool, bool]:
        """Does it live, does its port have a listener (its processes may be hidden from us)."""
        from sparkbuild.agent.docker.ours import is_alive  # noqa: PLC0415 - only for containers

        shelf = records.shelf_of(self._request)
        box = shelf.box(self._found["container"])
        if shelf.problem:
            # dockerd restarts at times; its containers go on when it is told to keep them, and die when not
            self._misses += 1
            if self._misses * self.period < 10:
                return True, False
            # no error of kind "node": the node is in reach, and trying again would not end
            raise AgentError(shelf.problem, next="systemctl status docker on that node")
        self._misses = 0
        self.state = box["status"] if box else "the container was removed"
        port = self._found["port"]
        alive = is_alive(box)
        return alive, bool(alive and port and procs.Glance().inodes(port))

    def ended(self) -> str:
        """How, in words."""
        return of_container(self._found["container"], self.state, str(self._request.get("docker") or ""))

    def lines(self) -> list[str]:
        """What its log has gained."""
        taken = []
        while self._lines:
            taken.append(self._lines.popleft())
        return taken[-MOST:]

    def _follow(self) -> None:
        try:
            docker = Dockerd(str(self._request["docker"]))
            for line in docker.logs(self._found["container"], tail=1000, follow=True):
                self._lines.append(line)
        except DockerdError:
            return
