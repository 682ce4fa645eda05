"""Start a lane's process on this node, detached, with its record written before it runs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from sparkbuild.agent.disk.held import Held
from sparkbuild.agent.disk.lock import locked
from sparkbuild.agent.lane import ports, records, stop
from sparkbuild.agent.lane.ending import oom_kills
from sparkbuild.agent.lane.marked import MARK
from sparkbuild.agent.lane.uses import note_served
from sparkbuild.agent.machine import procs
from sparkbuild.agent.wire.protocol import AgentError, Reporter

if TYPE_CHECKING:
    from sparkbuild.agent.wire.lanes import Launching, LaunchRequest, Recorded
    from sparkbuild.agent.wire.records import LaneRecord
    from sparkbuild.agent.wire.verbs import Placed

    class Request(Launching, Placed):
        """Of either verb that launches."""


KEEP_LOGS = 10
TAKES_TURNS = 10.0  # seconds that a launch waits for others of its store, which take a moment each
DYING = 2.0  # seconds that a port without a process is given: its process may be ending just now
LEFT_GRACE = 5.0  # seconds between SIGTERM and SIGKILL for what outlived its lane's main process
_ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
_KEEPER = """
import sys
sys.path.insert(0, sys.argv[1])
from sparkbuild.agent.lane.keeper import main
sys.exit(main(sys.argv[2:]))
"""
_PASSED_ON = ("PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "TZ", "TMPDIR")


def run(request: LaunchRequest, reporter: Reporter) -> Recorded:
    """See LAUNCH. Errors: kind "port" when the port is held, "engine" when a lane of this recipe still runs."""
    with place_for(request, reporter) as folder:
        log = _new_log(request["recipe"])
        _prune(folder)
        record = _start(request, request["store"], log)
    note_served(request)
    reporter.log(f"started process {record['pid']}: {' '.join(record['argv'])}")
    return {"record": record}


@contextmanager
def place_for(request: Request, reporter: Reporter) -> Iterator[str]:
    """While the block writes a launch's record: nothing of the last runs, the port is free, no other begins."""
    store, recipe = request["store"], request["recipe"]
    folder = records.folder(store, recipe)
    os.makedirs(folder, exist_ok=True)
    with locked(os.path.join(folder, "lock"), f"lane {recipe}"):
        before = records.record(store, recipe)
        if before is not None and records.alive(before, records.shelf_of(request)):
            what = f"container {before['container'][:12]}" if records.in_docker(before) else f"process {before['pid']}"
            raise AgentError(f"lane {recipe} already runs", kind="engine", found=what)
        if before is not None and (left := records.members(before)):
            reporter.log(f"ending what the last launch left behind: {', '.join(map(str, sorted(left)))}")
            stop.end(before, LEFT_GRACE)
        # two that want one port would both find it free until one's record is written: an engine listens much later
        with locked(os.path.join(store, "launch.lock"), "another launch", TAKES_TURNS):
            check_port(request)
            yield folder


def _new_log(recipe: str) -> str:
    """A log that no other launch has, in any store of this node: its name also marks the processes of this one."""
    name = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    return os.path.join("lanes", recipe, f"{name}-{os.urandom(4).hex()}.log")


def check_port(request: Request) -> None:
    """Refuse when the port is held, or a lane was launched on it that does not listen yet, naming who it is."""
    store, port = request["store"], request["port"]
    if not port:
        return
    deadline = time.monotonic() + DYING
    while (holder := procs.holder(port)) is not None and not holder["pid"] and time.monotonic() < deadline:
        time.sleep(0.05)
    if holder is None:
        holder = ports.launched_on(records.every(store)[0], request["recipe"], port)
    else:
        holder = ports.named(store, holder, port, request.get("docker", ""))
    if holder is None:
        return
    lane = holder["lane"]
    who = f"process {holder['pid']} of {holder['user'] or 'another user'}: {holder['command']}"
    if holder["container"]:
        who = f"container {holder['container']}"
    elif not holder["pid"]:
        who = holder["command"]
    raise AgentError(
        f"port {port} is in use",
        kind="port",
        found=f"lane {lane} ({who})" if lane else who,
        wanted="a free port",
        next=f"doit stop:{lane}" if lane else "stop that process, or set another serve.port in the recipe",
    )


def _start(request: LaunchRequest, store: str, log: str) -> LaneRecord:
    env = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
    env |= {**request["env"], MARK: log}
    go_read, go_write = os.pipe()
    told_read, told_write = os.pipe()
    with Held(os.path.join(store, os.path.dirname(log))) as held:
        os.close(held.create(os.path.basename(log), 0o600))  # for the lane's user alone: there may be prompts in it
    try:
        process = subprocess.Popen(  # noqa: S603 - argv is a list, no shell
            [sys.executable, "-I", "-S", "-c", _KEEPER, _ROOT, os.path.join(store, log), str(go_read), str(told_write)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=env,
            cwd=os.path.join(store, os.path.dirname(log)),
            start_new_session=True,
            pass_fds=(go_read, told_write),
        )
        os.close(told_write)
        told_write = -1
        if process.stdin is not None:
            with process.stdin as pipe:
                pipe.write(json.dumps(request["argv"]).encode())
        pid = _told(told_read)
        record = record_of(request)
        record.update({
            "runtime": "process", "pid": pid, "start_ticks": procs.start_ticks(pid) or 0, "log": log,
            "oom_kills": oom_kills(),
        })  # fmt: skip
        records.write(store, record)
        os.write(go_write, b"1")
    finally:
        for descriptor in (go_read, go_write, told_read, told_write):
            if descriptor >= 0:
                os.close(descriptor)
    return record


def record_of(request: Request) -> LaneRecord:
    """The record of a launch, as far as that is the same whatever is launched."""
    # by name, since the request may hold secrets
    return {
        "format": records.LANE_FORMAT, "recipe": request["recipe"], "launch": request["launch"],
        "rank": request["rank"], "world_size": request["world_size"], "key": request["key"],
        "parts": request["parts"], "argv": request["argv"], "uses": request.get("uses", []),
        "host": request["host"], "port": request["port"], "model_id": request["model_id"],
        "protect": request.get("protect", False), "lock": request.get("lock", ""),
        "container": "", "pid": 0, "start_ticks": 0, "boot_id": procs.boot_id(), "log": "",
        "launched_at": time.time(), "launched_uptime": records.uptime(),
        "ready": None, "gates": None, "served_at": None, "stopped_at": None,
    }  # fmt: skip


def _told(descriptor: int) -> int:
    """The number of the process that becomes the engine, as its keeper tells it."""
    said = b""
    while not said.endswith(b"\n"):
        block = os.read(descriptor, 32)
        if not block:
            raise AgentError("a process cannot be started on this node", kind="engine", next="free -m; ulimit -u")
        said += block
    return int(said)


def _prune(folder: str) -> None:
    with Held(folder) as held:
        logs = [name for name in held.listdir() if name.endswith(".log")]
        for old in logs[: -(KEEP_LOGS - 1)]:
            for name in (old, f"{old}.1", f"{old}.end"):
                held.unlink(name)
