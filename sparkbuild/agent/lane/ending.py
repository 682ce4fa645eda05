"""How a rank ended, in words: its exit code, its signal, and whether there was no memory left."""

from __future__ import annotations

import os
import signal
import time
from typing import TYPE_CHECKING, Any

from sparkbuild.agent.disk.files import read_json
from sparkbuild.agent.docker.engine import SOCKET, Dockerd, DockerdError
from sparkbuild.agent.machine import procs
from sparkbuild.agent.machine.system import number, text
from sparkbuild.agent.wire.printable import one_line

if TYPE_CHECKING:
    from sparkbuild.agent.wire.records import LaneRecord

NOTING = 3.0  # seconds


def oom_kills() -> int:
    """How many processes the kernel has killed for want of memory since this node was booted."""
    rows = (line.partition(" ") for line in text("/proc/vmstat").splitlines())
    return next((int(number(value)) for name, _, value in rows if name == "oom_kill"), 0)


def of_process(found: LaneRecord, store: str) -> str:
    """What its keeper noted of a process that is gone, and whether the node had no memory left meanwhile."""
    path = os.path.join(store, f"{found['log']}.end")
    deadline = time.monotonic() + NOTING
    # it is gone a moment before its keeper has noted how
    while not os.path.exists(path) and time.monotonic() < deadline and procs.marked(f"SPARKBUILD_LANE={found['log']}"):
        time.sleep(0.02)
    noted = read_json(path) or {}
    code = noted.get("code")
    words = []
    if isinstance(code, int):
        words.append(f"exit code {code}" if code >= 0 else f"killed by {_signal(-code) or f'signal {-code}'}")
    since = found.get("oom_kills")
    killed = 0 if since is None else oom_kills() - since
    if killed > 0 and code in {None, -signal.SIGKILL}:
        what = "a process" if killed == 1 else f"{killed} processes"
        words.append(f"the kernel killed {what} of this node for want of memory since it was launched")
    return ", ".join(words)


def of_container(container: str, status: str, socket: str) -> str:
    """Docker's own words for it, and what they leave out; `status` when docker does not say more."""
    try:
        inspected: dict[str, Any] = Dockerd(socket or SOCKET).container(container) or {}
    except DockerdError:
        return status
    return told(inspected.get("State") or {}, status)


def told(state: dict[str, Any], status: str) -> str:
    """`state` as in ContainerInspect."""
    code = int(state.get("ExitCode") or 0)
    words = [status or f"Exited ({code})"]
    if state.get("OOMKilled"):
        words.append("out of memory: the kernel killed it at the limit of its container (serve.docker.memory)")
    elif name := _signal(code - 128):
        words.append(f"by {name}" + (", which the kernel sends when a node has no memory left" if code == 137 else ""))
    if state.get("Error"):
        words.append(one_line(str(state["Error"])))
    return ", ".join(words)


def _signal(code: int) -> str:
    try:
        return signal.Signals(code).name if code > 0 else ""
    except ValueError:
        return ""
