"""This node as a whole: system, memory, disks, GPUs, network, docker, lanes and ports, in one look."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, TypeVar

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
from sparkbuild.agent.machine.together import Looks
from sparkbuild.agent.wire.lanelabels import ALIVE

if TYPE_CHECKING:
    from collections.abc import Callable

    from sparkbuild.agent.docker.answers import State
    from sparkbuild.agent.wire.engine import DockerFact
    from sparkbuild.agent.wire.nodes import NodeAsk, NodeFact
    from sparkbuild.agent.wire.records import Holder, LaneRecord, LaneRow
    from sparkbuild.agent.wire.verbs import Placed

    class Query(NodeAsk, Placed, total=False):
        """With what all looks of one moment share."""

        glance: procs.Glance


T = TypeVar("T")

_PATIENCE = 30.0  # seconds; each look has a shorter limit of its own


def observe(query: Query) -> NodeFact:
    """See NODE."""
    glance = query.get("glance") or procs.Glance()
    looks = Looks(_PATIENCE)
    in_docker = looks.begin(partial(docker_fact, query.get("docker") or SOCKET, query.get("images", [])))
    at_paths = looks.begin(partial(disks, query.get("paths", [])))
    cards, networks, adapters = looks.begin(gpus), looks.begin(interfaces), looks.begin(hcas)
    on_ports = looks.begin(partial(_holders, query.get("ports", []), glance))
    problems: dict[str, str] = {}

    def known(name: str, wait: Callable[[], T | Exception], otherwise: Callable[[], T]) -> T:
        outcome = wait()
        if isinstance(outcome, Exception):
            problems[name] = f"{type(outcome).__name__}: {outcome}"
            return otherwise()
        return outcome

    docker = known("docker", in_docker, lambda: no_docker(problems["docker"]))
    found_gpus, driver = known("gpus", cards, lambda: ([], ""))
    by_recipe, unread = records.every(query["store"])
    rows = [_row(name, record, docker) for name, record in by_recipe.items()]
    elsewhere = unrecorded(query["store"], {record.get("log", "") for record in by_recipe.values()}, glance)
    return {
        **system(),
        "disks": known("disks", at_paths, dict),
        "gpus": found_gpus,
        "driver": driver,
        "interfaces": known("interfaces", networks, list),
        "hcas": known("hcas", adapters, list),
        "docker": docker,
        "lanes": rows,
        "elsewhere": elsewhere,
        "unread": [record.row for record in unread],
        "strangers": {str(port): who for port, who in strangers(glance).items()},
        "ports": known("ports", on_ports, dict),
        "problems": problems,
        "time": time.time(),
    }


def lane_rows(store: str, docker: DockerFact) -> list[LaneRow]:
    """A row for each lane that was ever launched here. `alive` is None where docker does not say."""
    return [_row(name, record, docker) for name, record in records.every(store)[0].items()]


def _row(name: str, record: LaneRecord, docker: DockerFact) -> LaneRow:
    container, again = record.get("container", ""), ""
    alive: bool | None
    if records.in_docker(record):
        box = next((box for box in docker["containers"] if box["id"] == container and box["state"] in ALIVE), None)
        alive = None if docker["problem"] else box is not None
        state: State = {"Status": box["state"], "StartedAt": box.get("started", "")} if box is not None else {}
        again = not_serving(state, record)
    else:
        alive = records.alive(record)
    return {
        "recipe": name,
        "runtime": record.get("runtime", "process"),
        "alive": alive,
        "ready": bool(record.get("ready")),
        "launched_at": record.get("launched_at", 0.0),
        "served_at": record.get("served_at"),
        "stopped_at": record.get("stopped_at"),
        "protect": bool(record.get("protect")),
        "port": record.get("port", 0),
        "model_id": record.get("model_id", ""),
        "rank": record.get("rank", 0),
        "pid": record.get("pid", 0),
        "container": container,
        "launch": record.get("launch", ""),
        "nodes": record["parts"].get("nodes") or [],
        "again": again,
    }


def _holders(ports: list[int], glance: procs.Glance) -> dict[str, Holder | None]:
    return {str(port): procs.holder(port, glance) for port in ports}
