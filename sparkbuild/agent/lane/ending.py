"""How a rank ended: its last lines, and in words its exit code, its signal, and whether there was no memory left."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from sparkbuild.agent.disk.files import read_json
from sparkbuild.agent.docker.engine import SOCKET, Dockerd, DockerdError
from sparkbuild.agent.lane import records
from sparkbuild.agent.machine import procs
from sparkbuild.agent.machine.system import number, text
from sparkbuild.agent.wire.printable import one_line

if TYPE_CHECKING:
    from sparkbuild.agent.docker.answers import State
    from sparkbuild.agent.wire.records import LaneRecord

NOTING = 3.0  # seconds
_MOST = 65536  # bytes of a log


def oom_kills() -> int:
    """How many processes the kernel has killed for want of memory since this node was booted."""
    rows = (line.partition(" ") for line in text("/proc/vmstat").splitlines())
    return next((int(number(value)) for name, _, value in rows if name == "oom_kill"), 0)


def of_process(record: LaneRecord, store: str) -> str:
    """What its keeper noted of a process that is gone, and whether the node had no memory left meanwhile."""
    path = os.path.join(store, f"{record['log']}.end")
    deadline = time.monotonic() + NOTING
    # it is gone a moment before its keeper has noted how
    while not os.path.exists(path) and time.monotonic() < deadline and procs.marked(records.mark(record["log"])):
        time.sleep(0.02)
    noted = read_json(path) or {}
    code = noted.get("code")
    words = []
    if isinstance(code, int):
        words.append(f"exit code {code}" if code >= 0 else f"killed by {_signal(-code) or f'signal {-code}'}")
    since = record.get("oom_kills")
    killed = 0 if since is None else oom_kills() - since
    if killed > 0 and code in {None, -signal.SIGKILL}:
        what = "a process" if killed == 1 else f"{killed} processes"
        words.append(f"the kernel killed {what} of this node for want of memory since it was launched")
    return ", ".join(words)


def of_container(container: str, status: str, socket: str) -> str:
    """Docker's own words for it, and what they leave out; `status` when docker does not say more."""
    with suppress(DockerdError):
        inspected = Dockerd(socket or SOCKET).container(container)
        return told(inspected["State"] if inspected else {}, status)
    return status


def told(state: State, status: str) -> str:
    """The same by the state of the container itself."""
    exit_code = state.get("ExitCode")
    code = exit_code if isinstance(exit_code, int) else 0
    words = [status or f"Exited ({code})"]
    if state.get("OOMKilled"):
        words.append("out of memory: the kernel killed it at the limit of its container (serve.docker.memory)")
    elif name := _signal(code - 128):
        words.append(f"by {name}" + (", which the kernel sends when a node has no memory left" if code == 137 else ""))
    if state.get("Error"):
        words.append(one_line(str(state["Error"])))
    return ", ".join(words)


def _signal(code: int) -> str:
    return signal.Signals(code).name if code in set(signal.Signals) else ""


def log_end(store: str, docker: str, record: LaneRecord, count: int) -> list[str]:
    """At most `count` lines; none of a log that is gone. `docker`: the engine's socket, "" for the usual one."""
    with suppress(OSError, DockerdError):
        if records.in_docker(record):
            return list(Dockerd(docker or SOCKET).logs(record["container"], tail=count))
        with open(os.path.join(store, record["log"]), "rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _MOST))
            return file.read().decode(errors="replace").splitlines()[-count:]
    return []
