"""What would keep a launch from working on this node: seen before anything is started, and nothing is changed by it."""

from __future__ import annotations

import errno
import os
import socket
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from sparkbuild.agent.docker.engine import SOCKET
from sparkbuild.agent.lane.memory import held
from sparkbuild.agent.machine.logins import ends_with_login
from sparkbuild.agent.machine.mounts import disks
from sparkbuild.agent.machine.system import memory, text
from sparkbuild.agent.machine.together import Looks, together

if TYPE_CHECKING:
    from collections.abc import Callable

    from sparkbuild.agent.wire.nodes import PreflightAsk, PreflightFact, Unreachable
    from sparkbuild.agent.wire.verbs import Placed

    class Query(PreflightAsk, Placed):
        """With where."""


T = TypeVar("T")

PATIENCE = 2.0  # seconds for the peers
_DOORS = (22, 51999)  # of a peer: where something answers, and where nothing should: to refuse is an answer too
_THERE = {0, errno.ECONNREFUSED, errno.ECONNRESET}


def observe(query: Query) -> PreflightFact:
    """See PREFLIGHT."""
    paths, devices = query.get("paths", []), query.get("devices", [])
    looks = Looks(30.0)
    at_paths = looks.begin(partial(disks, [*paths, *devices]))
    away = looks.begin(partial(unreachable, query.get("peers", [])))
    seen = _known(at_paths)
    return {
        "missing": [path for path in paths if not seen[path]["exists"] and not seen[path]["problem"]],
        "devices_missing": [path for path in devices if not seen[path]["exists"] and not seen[path]["problem"]],
        # a folder of devices (/dev/infiniband) is given as a whole
        "not_devices": [path for path in devices if seen[path]["kind"] in {"file", "other"}],
        "unknown": {path: disk["problem"] for path, disk in seen.items() if disk["problem"]},
        "unreachable": _known(away),
        "memory_available": memory(text("/proc/meminfo"))["available"],
        "ends_with_login": ends_with_login() if query.get("runtime") == "process" else "",
        "memory_own": _held(query),
    }


def _held(query: Query) -> int:
    return held(query["store"], query["replaces"], query.get("docker") or SOCKET) if query.get("replaces") else 0


def _known(wait: Callable[[], T | Exception]) -> T:
    outcome = wait()
    if isinstance(outcome, Exception):
        raise outcome
    return outcome


def unreachable(peers: list[str], patience: float = PATIENCE) -> list[Unreachable]:
    """Those of the peers that no packet comes back from, all tried at the same time."""
    doors = [(peer, port) for peer in peers for port in _DOORS]
    outcomes = together({door: partial(_try, *door, patience) for door in doors}, patience + 0.5)
    problems: list[Unreachable] = []
    for peer in dict.fromkeys(peers):
        answers = [outcomes[peer, port] for port in _DOORS]
        if "" not in answers:
            problems.append({"peer": peer, "problem": str(answers[0])})
    return problems


def _try(peer: str, port: int, patience: float) -> str:
    """Knock; "" when the machine answers, though it be by refusing, else what went wrong."""
    try:
        socket.inet_pton(socket.AF_INET, peer)
    except (OSError, ValueError):
        return f"{peer!r} is no IPv4 address"  # and not a name: to ask for it may take a minute
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as connection:
        connection.settimeout(patience)
        code = connection.connect_ex((peer, port))
    if code in _THERE:
        return ""
    if code in {errno.EAGAIN, errno.ETIMEDOUT, errno.EINPROGRESS}:
        return f"no answer within {patience:g} s"
    return os.strerror(code)
