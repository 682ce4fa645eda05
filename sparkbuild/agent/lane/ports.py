"""Who holds a port when it is a container: its processes are root's most often, and hidden from us."""

from __future__ import annotations

from typing import Any

from sparkbuild.agent.docker.engine import SOCKET, Dockerd, DockerdError
from sparkbuild.agent.docker.ours import is_of_another, lanes
from sparkbuild.agent.wire.lanelabels import PORT, RECIPE, STORE


def container_of(store: str, holder: dict[str, Any], port: int, socket: str) -> dict[str, str]:
    """{"container": name, "lane": recipe} of the living container of a lane that holds a port, {} when it is none's.
    `lane` is "" for a lane of another store, which is not ours to stop.

    A process is known by its control group; one that is hidden, by the port that the container's label names.
    """
    try:
        engine = Dockerd(socket or SOCKET)
        running = [entry for entry in lanes(engine, engine.containers(RECIPE)) if entry.get("State") == "running"]
    except DockerdError:
        return {}
    group = _group(holder["pid"])
    for entry in running:
        labels = entry.get("Labels") or {}
        is_it = entry["Id"] in group if holder["pid"] else labels.get(PORT) == str(port)
        if is_it:
            name = str((entry.get("Names") or ["/"])[0]).lstrip("/")
            other = is_of_another({"store": str(labels.get(STORE, ""))}, store)  # type: ignore[typeddict-item]
            return {"container": name, "lane": "" if other else str(labels[RECIPE])}
    return {}


def _group(pid: int) -> str:
    """The control groups of a process; docker's have the container's id in their names."""
    try:
        with open(f"/proc/{pid}/cgroup", encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""
