"""Older images of ours in this node's docker: which of them may go, and taking their names away."""

from __future__ import annotations

import re
from typing import Any

from sparkbuild.agent.dockerd import SOCKET, Dockerd, DockerdError
from sparkbuild.agent.dockerwork import DockerWork
from sparkbuild.agent.protocol import AgentError, Reporter

_KEY = re.compile(r"[0-9a-f]{12}")


def observe(query: dict[str, Any]) -> dict[str, Any]:
    """Query {"docker", "name", "reference", "keep"}: {"old": [{"reference", "bytes"}] that may go, "used": {reference:
    names of containers} of those that may not}, or {"silent": why, "next"}.

    Ours are `sparkbuild/<name>:<key>` with that key in their label; `reference` is the one that is wanted now. Of the
    others, those named last stay, `keep` in all, and every one that any container, running or not, was made of.
    """
    try:
        return _found(Dockerd(query["docker"] or SOCKET), query)
    except DockerdError as error:
        return {"silent": error.problem, "next": error.fields["next"]}


def run(request: dict[str, Any], reporter: Reporter) -> dict[str, Any]:
    """Request as the query; looks again, and takes away the names of those that may go. Docker removes an image with
    its last name. Result {"removed": references}.
    """
    engine = DockerWork(request["docker"] or SOCKET)
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
    ours: list[tuple[str, str, dict[str, Any]]] = []
    for row in engine.get("/images/json"):
        for reference in row.get("RepoTags") or ():
            name, _, key = str(reference).rpartition(":")
            labels = row.get("Labels") or {}
            if name != f"sparkbuild/{query['name']}" or not _KEY.fullmatch(key) or reference == query["reference"]:
                continue
            if str(labels.get("sparkbuild.key", "")).startswith(key):
                found = engine.image(str(row["Id"]).partition(":")[2]) or {}
                ours.append((str((found.get("Metadata") or {}).get("LastTagTime", "")), str(reference), row))
    ours.sort(key=lambda one: one[:2], reverse=True)
    users: dict[str, list[str]] = {}
    for box in engine.containers():
        users.setdefault(str(box.get("ImageID")), []).append(str((box.get("Names") or ["?"])[0]).lstrip("/"))
    beyond = ours[max(0, int(query["keep"]) - 1) :]
    return {
        "old": [
            {"reference": reference, "bytes": int(row.get("Size") or 0)}
            for _, reference, row in beyond
            if str(row["Id"]) not in users
        ],
        "used": {reference: users[str(row["Id"])] for _, reference, row in beyond if str(row["Id"]) in users},
    }
