"""This node as a whole: system, memory, disks, GPUs, network, docker, lanes and ports, in one look."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from sparkbuild.agent.docker.engine import SOCKET
from sparkbuild.agent.docker.fact import docker_fact, no_docker
from sparkbuild.agent.docker.ours import not_serving
from sparkbuild.agent.lane import records
from sparkbuild.agent.lane.marked import strangers, unrecorded
from sparkbuild.agent.machine import procs
from sparkbuild.agent.machine.gpus import gpus
from sparkbuild.agent.machine.hcas import hcas
from sparkbuild.agent.machine.mounts import disks
from sparkbuild.agent.machine.network import interfaces
from sparkbuild.agent.machine.system import system
from sparkbuild.agent.machine.together import together
from sparkbuild.agent.wire.lanelabels import ALIVE

if TYPE_CHECKING:
    from sparkbuild.agent.wire.records import DockerFact, LaneRecord, LaneRow, NodeFact

_PATIENCE = 30.0  # seconds; each look has a shorter limit of its own


def observe(query: dict[str, Any]) -> dict[str, Any]:
    """Query {"store", "docker"?: socket, "paths", "ports", "images", "glance"?}; a NodeFact.

    `paths` are absolute, `images` references, ids, or names with digest. A docker that does not answer is a problem in
    `docker`; a look that fails otherwise is one in `problems`, by its name.
    """
    glance: procs.Glance = query.get("glance") or procs.Glance()
    looks: dict[str, Any] = {
        "docker": partial(docker_fact, query.get("docker") or SOCKET, query.get("images") or []),
        "disks": partial(disks, query.get("paths") or []),
        "gpus": gpus,
        "interfaces": interfaces,
        "hcas": hcas,
        "ports": partial(_ports, query.get("ports") or [], glance),
        "system": system,
    }
    found = together(looks, _PATIENCE)
    problems = {name: _told(error) for name, error in found.items() if isinstance(error, Exception)}

    def seen(name: str, otherwise: Any) -> Any:
        return otherwise if name in problems else found[name]

    cards, driver = seen("gpus", ([], ""))
    docker: DockerFact = seen("docker", no_docker(problems.get("docker", "")))
    by_recipe, unread = records.every(query["store"])
    rows = [_row(name, found, docker) for name, found in by_recipe.items()]
    elsewhere = unrecorded(query["store"], {one.get("log", "") for one in by_recipe.values()}, glance)
    fact = {
        **seen("system", {}),
        "disks": seen("disks", {}),
        "gpus": cards,
        "driver": driver,
        "interfaces": seen("interfaces", []),
        "hcas": seen("hcas", []),
        "docker": docker,
        "lanes": rows,
        "elsewhere": elsewhere,
        "unread": [one.text for one in unread],
        "strangers": {str(port): who for port, who in strangers(glance).items()},
        "ports": seen("ports", {}),
        "problems": problems,
        "time": time.time(),
    }
    return dict(cast("NodeFact", fact))


def lane_rows(store: str, docker: DockerFact) -> list[LaneRow]:
    """A row for each lane that was ever launched here. `alive` is None where docker does not say."""
    return [_row(name, found, docker) for name, found in records.every(store)[0].items()]


def _row(name: str, found: LaneRecord, docker: DockerFact) -> LaneRow:
    container, again = found.get("container", ""), ""
    alive: bool | None
    if records.in_docker(found):
        box = next((one for one in docker["containers"] if one["id"] == container and one["state"] in ALIVE), None)
        alive = None if docker["problem"] else box is not None
        state = {"Status": box["state"], "StartedAt": box.get("started", "")} if box is not None else {}
        again = not_serving(state, found)
    else:
        alive = records.alive(found)
    return {
        "recipe": name,
        "runtime": found.get("runtime", "process"),
        "alive": alive,
        "ready": bool(found.get("ready")),
        "launched_at": found.get("launched_at", 0.0),
        "served_at": found.get("served_at"),
        "stopped_at": found.get("stopped_at"),
        "protect": bool(found.get("protect")),
        "port": found.get("port", 0),
        "model_id": found.get("model_id", ""),
        "rank": found.get("rank", 0),
        "pid": found.get("pid", 0),
        "container": container,
        "launch": found.get("launch", ""),
        "nodes": [str(node) for node in found.get("parts", {}).get("nodes") or ()],
        "again": again,
    }


def _ports(ports: list[int], glance: procs.Glance) -> dict[str, dict[str, Any] | None]:
    return {str(port): procs.holder(port, glance) for port in ports}


def _told(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
