"""Take an image that others made under a name of ours: pulled by its digest where it is not there, tried, and named.

Docker lists an image that was pulled by digest without a tag, and would remove it as a dangling one.
"""

from __future__ import annotations

from typing import Any

from sparkbuild.agent.docker.changes import DockerWork
from sparkbuild.agent.docker.engine import SOCKET, DockerdError
from sparkbuild.agent.wire.protocol import AgentError, Reporter


def run(request: dict[str, Any], reporter: Reporter) -> dict[str, Any]:
    """Request {"docker", "repository", "digest", "reference", "pull": whether it may be pulled}. Result {"layers",
    "architecture", "bytes", "pulled"}. Error kind "node" when docker cannot have it.
    """
    engine = DockerWork(request["docker"] or SOCKET)
    pinned, pulled = f"{request['repository']}@{request['digest']}", False
    try:
        found = engine.image(pinned)
        if found is None and request["pull"]:
            engine.pull(request["repository"], request["digest"], _Told(reporter).event)
            found, pulled = engine.image(pinned), True
        if found is None:
            raise AgentError(f"{pinned} is not in docker", kind="node", next="run again")
        engine.trial(found["Id"])
        engine.tag(found["Id"], request["reference"])
    except DockerdError as error:
        full = "no space left" in error.problem.lower()
        raise AgentError(
            f"docker cannot have {pinned}",
            kind="space" if full else "node",
            found=error.problem,
            next=error.fields["next"],
        ) from None
    layers = found["RootFS"]["Layers"]
    return {"layers": layers, "architecture": found["Architecture"], "bytes": found["Size"], "pulled": pulled}


class _Told:
    """Docker's words on a pull as progress."""

    def __init__(self, reporter: Reporter) -> None:
        self._reporter = reporter
        self._layers: dict[str, tuple[int, int]] = {}

    def event(self, event: dict[str, Any]) -> None:
        """One of docker's events."""
        detail, layer = event.get("progressDetail") or {}, str(event.get("id", ""))
        if event.get("status") == "Downloading" and detail.get("total"):
            self._layers[layer] = (int(detail.get("current", 0)), int(detail["total"]))
            done, total = (sum(one[index] for one in self._layers.values()) for index in (0, 1))
            self._reporter.progress("pull", done, total)
        elif event.get("status") in {"Pull complete", "Already exists"}:
            self._reporter.log(f"docker: {layer} {event['status']}")
