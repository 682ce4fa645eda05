"""The faults of a campaign: each begins at a moment, and most end by themselves a while later."""

from __future__ import annotations

import os
import random
import signal
import subprocess
from collections.abc import Callable
from dataclasses import dataclass

from tests.campaign.checker import View, processes
from tests.campaign.site import STORE
from tests.rack.node import Node

# How often each is drawn, beside the others.
WEIGHTS = {
    "operator killed": 3,
    "operator ctrl-C": 2,
    "operator terminated": 1,
    "agent killed": 3,
    "power failure": 2,
    "link cut": 3,
    "disk full": 2,
    "dockerd restarted": 2,
    "dockerd killed": 1,
    "rank killed": 1,
}
_SIGNALS = {
    "operator killed": signal.SIGKILL,
    "operator ctrl-C": signal.SIGINT,
    "operator terminated": signal.SIGTERM,
}


@dataclass(frozen=True)
class Fault:
    """One fault: `at` and `lasts` in seconds, `target` the index of an operator or a node, `size` bytes left free."""

    kind: str
    at: float
    lasts: float
    target: int
    size: int

    def __str__(self) -> str:
        return f"{self.kind} ({self.target}) at {self.at:.2f} s for {self.lasts:.1f} s"


def draw(source: random.Random, count: int, longest: float) -> list[Fault]:
    """So many faults within `longest` seconds, in order of time."""
    kinds = source.choices(list(WEIGHTS), list(WEIGHTS.values()), k=count)
    found = [
        Fault(
            kind, source.uniform(0.1, longest), source.uniform(0.5, 6), source.randrange(2), source.randrange(4 << 20)
        )
        for kind in kinds
    ]
    return sorted(found, key=lambda fault: fault.at)


def begin(fault: Fault, nodes: list[Node], running: list[subprocess.Popen[str]]) -> tuple[bool, Callable[[], None]]:
    """Let it happen. (Whether there was anything to break, how it ends.) RackError when the rack itself fails."""
    node = nodes[fault.target]
    if fault.kind in _SIGNALS:
        process = running[fault.target % len(running)]
        hit = process.poll() is None
        if hit:
            process.send_signal(_SIGNALS[fault.kind])
        return hit, _nothing
    if not node.is_on():
        return False, _nothing
    match fault.kind:
        case "rank killed":
            return _kill_a_rank(node), _nothing
        case "agent killed":
            return _kill_an_agent(node, fault), _nothing
        case _:
            return True, _break(fault, node)


def _break(fault: Fault, node: Node) -> Callable[[], None]:
    """A fault of the node itself; how it ends."""
    match fault.kind:
        case "power failure":
            node.kill()
            return node.boot
        case "link cut":
            node.cut()
            return node.heal
        case "disk full":
            node.fill_disk(fault.size)
            return node.free_disk
        case _:
            node.docker.stop(signal.SIGTERM if fault.kind == "dockerd restarted" else signal.SIGKILL)
            return node.docker.start


def heal(nodes: list[Node]) -> None:
    """Everything is on, connected, with room, whatever ended or not."""
    for node in nodes:
        node.boot()
        node.heal()
        node.free_disk()
        node.docker.start()


def _nothing() -> None:
    pass


def _kill_a_rank(node: Node) -> bool:
    shown = node.docker("ps", "--quiet", "--filter", "label=sparkbuild.recipe", check=False)
    ids = shown.out.split()
    return bool(ids) and not node.docker("kill", ids[0], check=False).code


def _kill_an_agent(node: Node, fault: Fault) -> bool:
    """Any of those at work there, chosen by the fault's own number."""
    view = View(node.name, node.pid, STORE)
    agents = sorted(one.pid for one in processes(view) if "-I" in one.argv and "-c" in one.argv)
    if not agents:
        return False
    try:
        os.kill(agents[fault.size % len(agents)], signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True
