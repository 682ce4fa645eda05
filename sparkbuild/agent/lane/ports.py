"""Who holds a port, by what this node knows of its lanes: a process, a container, a lane that does not listen yet."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparkbuild.agent.docker.engine import SOCKET, Dockerd, DockerdError
from sparkbuild.agent.docker.ours import lanes, name_of
from sparkbuild.agent.lane import records
from sparkbuild.agent.machine import procs
from sparkbuild.agent.machine.system import text
from sparkbuild.agent.wire.lanelabels import PORT, RECIPE, STORE, is_of_another

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sparkbuild.agent.wire.records import Holder, LaneRecord


def launched_on(by_recipe: Mapping[str, LaneRecord], recipe: str, port: int) -> Holder | None:
    """Another lane of this store, of processes, that was launched on a port and does not listen yet."""
    for name, record in by_recipe.items():
        if name != recipe and record["port"] == port and not records.in_docker(record) and records.alive(record):
            pid = record["pid"]
            user = procs.user(pid)
            return {"pid": pid, "command": procs.command(pid), "user": user, "lane": name, "container": ""}
    return None


def named(store: str, holder: Holder, port: int, socket: str) -> Holder:
    """Who holds a port, with its `lane`, and its `container` when it is in one: "" where there is none of ours."""
    lane = records.lane_of(store, holder["pid"])
    inside = {} if lane else container_of(store, holder, port, socket)
    return {**holder, "lane": lane or inside.get("lane", ""), "container": inside.get("container", "")}


def container_of(store: str, holder: Holder, port: int, socket: str) -> dict[str, str]:
    """The living container of a lane that holds a port: {"container": name, "lane": recipe, "" for one of another
    store}. A process is known by its control group; one that is hidden, by the port that the container's label names.
    """
    try:
        engine = Dockerd(socket or SOCKET)
        running = [entry for entry in lanes(engine, engine.containers(RECIPE)) if entry.get("State") == "running"]
    except DockerdError:
        return {}
    group = text(f"/proc/{holder['pid']}/cgroup")  # docker's control groups have the container's id in their names
    for entry in running:
        labels = entry.get("Labels") or {}
        is_holder = entry["Id"] in group if holder["pid"] else labels.get(PORT) == str(port)
        if is_holder:
            is_foreign = is_of_another(labels.get(STORE, ""), store)
            return {"container": name_of(entry), "lane": "" if is_foreign else labels[RECIPE]}
    return {}
