"""Watch a starting rank: its process or container, its port and its log, several times a second, until told to end."""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING

from sparkbuild.agent.docker.engine import Dockerd, DockerdError
from sparkbuild.agent.lane import records
from sparkbuild.agent.lane.ending import log_end, of_container, of_process
from sparkbuild.agent.machine import procs
from sparkbuild.agent.wire.lanelabels import is_alive
from sparkbuild.agent.wire.protocol import AgentError, Reporter

if TYPE_CHECKING:
    from sparkbuild.agent.wire.lanes import WatchRequest, WatchResult
    from sparkbuild.agent.wire.records import LaneRecord

PERIOD = 0.1  # seconds; the log of a starting engine is what the operator looks at
DOCKER_PERIOD = 0.3  # docker is asked over its socket each time
MOST = 50  # lines per event
_LAST_LINES = 15  # of a log that has ended
_NOBODY: WatchResult = {"launch": "", "stopping": None}
LONGEST = 65536  # bytes of a line; of a longer one, its end


def run(request: WatchRequest, reporter: Reporter) -> WatchResult:
    """See WATCH. It never connects to the port.

    Emits {"event": "state", "alive", "listening", "inside", "age", "lines": [new log lines]} on every change and at
    least each second; `inside`: it listens on a loopback address alone, and is to be reached on another; `age`: seconds
    since the launch, or None.
    """
    record = records.record(request["store"], request["recipe"])
    if record is None:
        raise AgentError(f"lane {request['recipe']} was never started here", kind="engine")
    if request.get("launch", "") not in {"", record.get("launch", "")}:
        return {"alive": False, "listening": False, "last_lines": [], "state": "", **_recorded(request)}
    source = _Container(record, request) if records.in_docker(record) else _Process(record, request["store"])
    seen: tuple[bool, bool] | None = None
    last = 0.0
    while True:
        alive, listening = source.look()
        lines = source.lines()
        if lines or (alive, listening) != seen or time.monotonic() - last >= 1:
            seen, last = (alive, listening), time.monotonic()
            inside = listening and _only_inside(record)
            age = records.age(record)
            reporter.emit("state", alive=alive, listening=listening, inside=inside, lines=lines, age=age)
        if not alive or (listening and request.get("until") == "listening"):
            ending = log_end(request["store"], request.get("docker", ""), record, _LAST_LINES)
            state = source.state if alive else source.ended()
            return {
                "alive": alive, "listening": listening, "last_lines": ending, "state": state, **_recorded(request),
            }  # fmt: skip
        time.sleep(source.period)


def _only_inside(record: LaneRecord) -> bool:
    is_meant = record["host"].startswith("127.") or record["host"] in {"localhost", "::1"}
    return not is_meant and procs.Glance().is_loopback_alone(record["port"])


def _recorded(request: WatchRequest) -> WatchResult:
    """The launch that is recorded by now, and who stops it: somebody may have launched the lane anew."""
    last = records.record(request["store"], request["recipe"])
    return {"launch": last.get("launch", ""), "stopping": last.get("stopping")} if last else _NOBODY


class _Process:
    """A rank that is a process with a log file."""

    period = PERIOD
    state = ""

    def ended(self) -> str:
        """How, in words."""
        return of_process(self._record, self._store)

    def __init__(self, record: LaneRecord, store: str) -> None:
        self._record = record
        self._store = store
        self._path = os.path.join(store, record["log"])
        self._offset = 0
        self._rest = b""

    def look(self) -> tuple[bool, bool]:
        """Does it live, does it listen."""
        record = self._record
        if not records.alive(record):
            return False, False
        inodes = procs.Glance().inodes(record["port"]) if record["port"] else set()
        return True, bool(inodes) and procs.owns_socket(procs.session_of(record["pid"]), inodes) is not None

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

    def __init__(self, record: LaneRecord, request: WatchRequest) -> None:
        self._record = record
        self._request = request
        self._lines: deque[str] = deque(maxlen=1000)
        self.state = ""
        self._misses = 0
        threading.Thread(target=self._follow, daemon=True).start()

    def look(self) -> tuple[bool, bool]:
        """Does it live, does its port have a listener (its processes may be hidden from us)."""
        shelf = records.shelf_of(self._request)
        box = shelf.box(self._record["container"])
        if shelf.problem:
            # dockerd restarts at times; its containers go on when it is told to keep them, and die when not
            self._misses += 1
            if self._misses * self.period < 10:
                return True, False
            # no error of kind "node": the node is in reach, and trying again would not end
            raise AgentError(shelf.problem, next="systemctl status docker on that node")
        self._misses = 0
        self.state = box["status"] if box else "the container was removed"
        port = self._record["port"]
        alive = is_alive(box)
        return alive, bool(alive and port and procs.Glance().inodes(port))

    def ended(self) -> str:
        """How, in words."""
        return of_container(self._record["container"], self.state, self._request.get("docker", ""))

    def lines(self) -> list[str]:
        """What its log has gained."""
        return [self._lines.popleft() for _ in range(len(self._lines))][-MOST:]

    def _follow(self) -> None:
        with suppress(DockerdError):
            docker = Dockerd(self._request["docker"])
            self._lines.extend(docker.logs(self._record["container"], tail=1000, follow=True))
