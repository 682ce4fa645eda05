"""Start a lane's process on this node, detached, with its record written before it runs."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

from sparkbuild.agent.disk.files import locked
from sparkbuild.agent.disk.held import Held
from sparkbuild.agent.lane import record as lanes, stop
from sparkbuild.agent.ledger import index
from sparkbuild.agent.machine import procs
from sparkbuild.agent.wire.protocol import AgentError, Reporter

if TYPE_CHECKING:
    from sparkbuild.agent.wire.records import LaneRecord

KEEP_LOGS = 10
DYING = 2.0  # seconds that a port without a process is given: its process may be ending just now
LEFT_GRACE = 5.0  # seconds between SIGTERM and SIGKILL for what outlived its lane's main process
_PASSED_ON = ("PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "TZ", "TMPDIR")

# The child waits for one byte before it becomes the engine. If this agent dies before the record is on disk, the pipe
# closes and the child ends: there is never an engine that no record names.
_GATE = """
import os, sys
fd = int(sys.argv[1])
if os.read(fd, 1) != b"1":
    os._exit(0)
os.close(fd)
try:
    os.execvp(sys.argv[2], sys.argv[2:])
except OSError as error:
    os.write(2, f"cannot start {sys.argv[2]}: {error.strerror}\\n".encode())
    os._exit(127)
"""


def run(request: dict[str, Any], reporter: Reporter) -> dict[str, Any]:
    """Request: {"store", "docker", "recipe", "launch", "rank", "world_size", "key", "parts", "argv", "env", "uses",
    "host", "port", "model_id", "protect", "lock"}. Port 0: this rank serves nobody.

    `env` may hold secrets: it goes to the process and nowhere else. Result: {"record": LaneRecord}. Errors: kind
    "port" when the port is held, "engine" when a lane of this recipe still runs.
    """
    store, recipe = request["store"], request["recipe"]
    folder = lanes.folder(store, recipe)
    os.makedirs(folder, exist_ok=True)
    with locked(os.path.join(folder, "lock"), f"lane {recipe}"):
        before = lanes.record(store, recipe)
        if before is not None and lanes.alive(before, lanes.shelf_of(request) if lanes.in_docker(before) else None):
            what = f"container {before['container'][:12]}" if lanes.in_docker(before) else f"process {before['pid']}"
            raise AgentError(f"lane {recipe} already runs", kind="engine", found=what)
        if before is not None and (left := lanes.members(before)):
            reporter.log(f"ending what the last launch left behind: {', '.join(map(str, sorted(left)))}")
            stop.end(before, LEFT_GRACE)
        if request["port"]:
            check_port(store, request["port"], str(request.get("docker") or ""))
        log = _new_log(recipe)
        _prune(folder)
        record = _start(request, store, log)
        index.served(request)
        reporter.log(f"started process {record['pid']}: {' '.join(record['argv'])}")
        return {"record": record}


def _new_log(recipe: str) -> str:
    """A log that no other launch has, in any store of this node: its name also marks the processes of this one."""
    name = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    return os.path.join("lanes", recipe, f"{name}-{os.urandom(4).hex()}.log")


def check_port(store: str, port: int, socket: str) -> None:
    """Refuse when the port is held, naming the holder and, when it is one of ours, its lane."""
    deadline = time.monotonic() + DYING
    while (holder := procs.holder(port)) is not None and not holder["pid"] and time.monotonic() < deadline:
        time.sleep(0.05)
    if holder is None:
        return
    holder = lanes.named(store, holder, port, socket)
    lane = holder["lane"]
    who = f"process {holder['pid']} of {holder['user'] or 'another user'}: {holder['command']}"
    if holder["container"]:
        who = f"container {holder['container']}"
    elif not holder["pid"]:
        who = "a process of another user"
    raise AgentError(
        f"port {port} is in use",
        kind="port",
        found=f"lane {lane} ({who})" if lane else who,
        wanted="a free port",
        next=f"doit stop:{lane}" if lane else "stop that process, or set another serve.port in the recipe",
    )


def _start(request: dict[str, Any], store: str, log: str) -> LaneRecord:
    env = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
    env |= request["env"]
    name, _, value = lanes.mark(log).partition("=")
    env[name] = value
    argv = [str(item) for item in request["argv"]]
    go_read, go_write = os.pipe()
    try:
        with os.fdopen(_opened(store, log), "ab") as sink:
            process = subprocess.Popen(  # noqa: S603 - argv is a list, no shell
                [sys.executable, "-I", "-S", "-c", _GATE, str(go_read), *argv],
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
                env=env,
                cwd=os.path.join(store, os.path.dirname(log)),
                start_new_session=True,
                pass_fds=(go_read,),
            )
        record: LaneRecord = {
            "format": lanes.LANE_FORMAT,
            "recipe": request["recipe"],
            "runtime": "process",
            "launch": request["launch"],
            "rank": request["rank"],
            "world_size": request["world_size"],
            "key": request["key"],
            "parts": request["parts"],
            "container": "",
            "pid": process.pid,
            "start_ticks": procs.start_ticks(process.pid) or 0,
            "boot_id": procs.boot_id(),
            "argv": argv,
            "uses": list(request.get("uses", [])),
            "host": request["host"],
            "port": request["port"],
            "model_id": request["model_id"],
            "protect": bool(request.get("protect")),
            "lock": request.get("lock", ""),
            "log": log,
            "launched_at": time.time(),
            "ready": None,
            "gates": None,
            "served_at": None,
            "stopped_at": None,
        }
        lanes.write(store, record)
        os.write(go_write, b"1")
    finally:
        os.close(go_read)
        os.close(go_write)
    return record


def _opened(store: str, log: str) -> int:
    folder, name = os.path.split(os.path.join(store, log))
    with Held(folder) as held:
        return held.open(name, os.O_WRONLY | os.O_CREAT | os.O_APPEND)


def _prune(folder: str) -> None:
    with Held(folder) as held:
        logs = [name for name in held.listdir() if name.endswith(".log")]
        for old in logs[: -(KEEP_LOGS - 1)]:
            held.unlink(old)
