"""Lanes that run as processes here and that no record of this store names, found by the mark of their launches."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from sparkbuild.agent.machine import procs
from sparkbuild.agent.machine.gpus import gpus
from sparkbuild.agent.machine.system import text

if TYPE_CHECKING:
    from collections.abc import Collection

    from sparkbuild.agent.wire.records import ProcessLane

MARK = "SPARKBUILD_LANE"  # its value is the launch's log, relative to its store
_ORDINARY = 1000  # the first uid of people; below it are the system's own services


def unrecorded(store: str, logs: Collection[str], glance: procs.Glance) -> list[ProcessLane]:
    """The lanes whose log is none of `logs`, by their first processes."""
    lanes: list[ProcessLane] = []
    for log, pids in sorted(glance.marks(MARK).items()):
        pieces = log.split("/")
        living = {pid: ticks for pid in pids if (ticks := procs.start_ticks(pid)) is not None}
        if log in logs or len(pieces) != 3 or pieces[0] != "lanes" or not living:
            continue
        ports = _ports(set(living), glance)
        inodes = {inode for port in ports for inode in glance.inodes(port)}
        # the engine, once it listens; what keeps its log began before it
        first = procs.owns_socket(set(living), inodes) or min(living, key=lambda pid: (living[pid], pid))
        home = _home(living, log)
        lanes.append({
            "recipe": pieces[1], "pid": first, "user": procs.user(first), "store": home, "ours": home == store,
            "ports": ports, "since": procs.started(first), "gpus": False,
        })  # fmt: skip
    if lanes and gpus()[0]:
        for lane in lanes:
            lane["gpus"] = True
    return lanes


def wants(lane: ProcessLane, port: int, glance: procs.Glance) -> bool:
    """Whether a lane listens on a port, or one of its processes was started to: that may take an engine minutes."""
    pids = next((pids for pids in glance.marks(MARK).values() if lane["pid"] in pids), {lane["pid"]})
    # as a word of its command line; those of `--port=8000` and `0.0.0.0:8000` count apart
    return port in lane["ports"] or any(str(port) in re.split("[=:\0]", text(f"/proc/{pid}/cmdline")) for pid in pids)


def strangers(glance: procs.Glance, ours: Collection[int] = ()) -> dict[int, str]:
    """Ports that people other than us listen on, not for this machine alone, less `ours`; who that is, in words."""
    me = os.geteuid()
    by_port = {}
    for port, sockets in sorted(glance.listening().items()):
        uids = [listener.uid for listener in sockets if _ORDINARY <= listener.uid != me and not listener.loopback]
        if uids and me != 0 and port not in ours:
            by_port[port] = procs.hidden(uids[0])
    return by_port


def _home(pids: Collection[int], log: str) -> str:
    """The store of a launch, by where its log lies; "" when nothing says it."""
    for pid in sorted(pids):
        for place in ("fd/1", "fd/2", "cwd"):
            try:
                path = os.readlink(f"/proc/{pid}/{place}")
            except OSError:
                continue
            end = os.path.dirname(log) if place == "cwd" else log
            if path.endswith(f"/{end}"):
                return path[: -len(end) - 1]
    return ""


def _ports(pids: set[int], glance: procs.Glance) -> list[int]:
    return sorted(port for port in glance.listening() if procs.owns_socket(pids, glance.inodes(port)) is not None)
