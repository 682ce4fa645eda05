"""Older images of ours in this node's docker: which of them may go, and taking their names away."""

from __future__ import annotations

import os
import re
from typing import Any

from sparkbuild.agent.docker.changes import DockerWork
from sparkbuild.agent.docker.engine import SOCKET, Dockerd, DockerdError
from sparkbuild.agent.docker.ours import TRIAL
from sparkbuild.agent.wire.protocol import AgentError, Reporter

_OURS = re.compile(r"sparkbuild/([^/:]+):([0-9a-f]{12})")


def observe(query: dict[str, Any]) -> dict[str, Any]:
    """Query {"docker", "keep", "wanted", "spared"}: {"old": [{"reference", "bytes"}] that may go, "used": {reference:
    names of containers} of those that may not, "spared": names of which some would go otherwise}, or {"silent": why,
    "next", "absent"}; `absent`: there is no docker, or none that runs.

    Ours are `sparkbuild/<name>:<key>` with that key in their label. Of each name stay: the `wanted` references, those
    named last beside them, `keep` in all, and every one that any container, running or not, was made of; of the
    `spared` names all.
    """
    socket = query["docker"] or SOCKET
    try:
        return _found(Dockerd(socket), query)
    except DockerdError as error:
        return {"silent": error.problem, "next": error.fields["next"], "absent": not os.path.lexists(socket)}


def run(request: dict[str, Any], reporter: Reporter) -> dict[str, Any]:
    """Request as the query; looks again, and takes away the names of those that may go. Docker removes an image with
    its last name. Result {"removed": references}.
    """
    engine = DockerWork(request["docker"] or SOCKET)
    engine.sweep_trials()
    removed = []
    for old in _found(engine, request)["old"]:
        try:
            engine.untag(old["reference"])
        except DockerdError as error:  # a container was made of it just now
            raise AgentError(f"{old['reference']} is not removed", kind="node", found=error.problem) from None
        reporter.log(f"removed {old['reference']}")
        removed.append(old["reference"])
    return {"removed": removed}


def _found(engine: Dockerd, query: dict[str, Any]) -> dict[str, Any]:
    ours = _ours(engine)
    users: dict[str, list[str]] = {}
    for box in engine.containers() if ours else ():
        if TRIAL in (box.get("Labels") or {}) and box.get("State") == "created":
            continue  # a lost connection left it: it is removed first
        users.setdefault(str(box.get("ImageID")), []).append(str((box.get("Names") or ["?"])[0]).lstrip("/"))
    old: list[dict[str, Any]] = []
    used: dict[str, list[str]] = {}
    spared = []
    for name, rows in sorted(ours.items()):
        others = [pair for pair in rows if pair[0] not in query["wanted"]]
        beyond = others[max(0, int(query["keep"]) - (len(rows) - len(others))) :]
        if beyond and name in query["spared"]:
            spared.append(name)
            continue
        for reference, row in beyond:
            if str(row["Id"]) in users:
                used[reference] = users[str(row["Id"])]
            else:
                old.append({"reference": reference, "bytes": int(row.get("Size") or 0)})
    return {"old": old, "used": used, "spared": spared}


def _ours(engine: Dockerd) -> dict[str, list[tuple[str, dict[str, Any]]]]:
    """By name: references with their row (ImageSummary), that which was named last first."""
    found: dict[str, list[tuple[str, str, dict[str, Any]]]] = {}
    for row in engine.get("/images/json"):
        for reference in row.get("RepoTags") or ():
            match = _OURS.fullmatch(str(reference))
            if match and str((row.get("Labels") or {}).get("sparkbuild.key", "")).startswith(match[2]):
                image = engine.image(str(row["Id"]).partition(":")[2]) or {}
                named = str((image.get("Metadata") or {}).get("LastTagTime", ""))
                found.setdefault(match[1], []).append((named, str(reference), row))
    for rows in found.values():
        rows.sort(key=lambda one: one[:2], reverse=True)
    return {name: [(reference, row) for _, reference, row in rows] for name, rows in found.items()}
