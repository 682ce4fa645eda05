"""What would keep a launch from working on this node: seen before anything is started, and nothing is changed by it."""

from __future__ import annotations

import errno
import os
from functools import partial
from typing import TYPE_CHECKING, Any

from sparkbuild.agent.docker.engine import SOCKET
from sparkbuild.agent.docker.fact import docker_fact
from sparkbuild.agent.machine import procs
from sparkbuild.agent.machine.logins import ends_with_login
from sparkbuild.agent.machine.mounts import disks
from sparkbuild.agent.machine.system import memory, text
from sparkbuild.agent.machine.together import together

if TYPE_CHECKING:
    from sparkbuild.agent.wire.records import PreflightFact
    from sparkbuild.agent.wire.unreachable import Unreachable

PATIENCE = 2.0  # seconds for the peers
_DOORS = (22, 51999)  # of a peer: where something answers, and where nothing should: to refuse is an answer too
_THERE = {0, errno.ECONNREFUSED, errno.ECONNRESET}


def observe(query: dict[str, Any]) -> dict[str, Any]:
    """Query {"docker"?: socket, "paths", "devices", "ports", "peers": IPv4 addresses, "image": reference or "",
    "glance"?, "replaces"?: recipe whose lane would be stopped for it, "runtime"?}; a PreflightFact.
    """
    glance: procs.Glance = query.get("glance") or procs.Glance()
    paths, devices, image = query.get("paths") or [], query.get("devices") or [], query.get("image") or ""
    looks: dict[str, Any] = {
        "disks": partial(disks, [*paths, *devices]),
        "unreachable": partial(unreachable, query.get("peers") or []),
    }
    if image:
        looks["docker"] = partial(docker_fact, query.get("docker") or SOCKET, [image])
    found = together(looks, 30.0)
    seen, docker = _got(found, "disks"), _got(found, "docker")
    holders = {str(port): procs.holder(port, glance) for port in query.get("ports") or ()}
    fact: PreflightFact = {
        "missing": [path for path in paths if not seen[path]["exists"] and not seen[path]["problem"]],
        "devices_missing": [path for path in devices if not seen[path]["exists"] and not seen[path]["problem"]],
        # a folder of devices (/dev/infiniband) is given as a whole
        "not_devices": [path for path in devices if seen[path]["kind"] in {"file", "other"}],
        "unknown": {path: one["problem"] for path, one in seen.items() if one["problem"]},
        "ports": {port: holder for port, holder in holders.items() if holder is not None},
        "unreachable": _got(found, "unreachable"),
        "image": docker["images"].get(image) if docker else None,
        "foreign": [one for one in docker["containers"] if one["gpu"] and not one["ours"]] if docker else [],
        "docker_problem": docker["problem"] if docker else "",
        "arch": os.uname().machine,
        "memory_available": memory(text("/proc/meminfo"))["available"],
        "ends_with_login": ends_with_login() if query.get("runtime") == "process" else "",
        "memory_own": _own(query) if query.get("replaces") else 0,
    }
    return dict(fact)


def _own(query: dict[str, Any]) -> int:
    from sparkbuild.agent.lane.memory import held  # noqa: PLC0415 - only where a lane is replaced

    return held(query["store"], query["replaces"], query.get("docker") or SOCKET)


def _got(found: dict[str, Any], name: str) -> Any:
    if isinstance(found.get(name), Exception):
        raise found[name]
    return found.get(name)


def unreachable(peers: list[str], patience: float = PATIENCE) -> list[Unreachable]:
    """Those of the peers that no packet comes back from, all tried at the same time."""
    doors = [(peer, port) for peer in peers for port in _DOORS]
    found = together({door: partial(_try, *door, patience) for door in doors}, patience + 0.5)
    problems: list[Unreachable] = []
    for peer in dict.fromkeys(peers):
        answers = [found[peer, port] for port in _DOORS]
        if "" not in answers:
            problems.append({"peer": peer, "problem": str(answers[0])})
    return problems


def _try(peer: str, port: int, patience: float) -> str:
    """Knock; "" when the machine answers, though it be by refusing, else what went wrong."""
    import socket  # noqa: PLC0415 - as elsewhere, only for those who need it

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
