"""Take an image that others made under a name of ours: pulled by its digest where it is not there, tried, and named.

Docker lists an image that was pulled by digest without a tag, and would remove it as a dangling one.
"""

from __future__ import annotations

from typing import Any

from sparkbuild.agent.docker.bydigest import have
from sparkbuild.agent.docker.changes import DockerWork
from sparkbuild.agent.docker.engine import SOCKET, DockerdError, layers_of, too_deep
from sparkbuild.agent.wire.protocol import AgentError, Reporter


def run(request: dict[str, Any], reporter: Reporter) -> dict[str, Any]:
    """Request {"docker", "repository", "digest", "reference", "pull": whether it may be pulled, "login"?: for its
    registry}. Result {"layers", "architecture", "bytes", "pulled"}. Error kind "node" when docker cannot have it,
    "config" for another architecture.
    """
    engine = DockerWork(request["docker"] or SOCKET)
    pinned = f"{request['repository']}@{request['digest']}"
    try:
        may, login = bool(request["pull"]), str(request.get("login", ""))
        found, pulled = have(engine, request["repository"], request["digest"], reporter, pull=may, login=login)
        engine.trial(found["Id"])
        engine.tag(found["Id"], request["reference"])
    except DockerdError as error:
        full = "no space left" in error.problem.lower()
        deep = "an image of at most 125 layers: docker's store takes no more" if too_deep(error.problem) else ""
        raise AgentError(
            f"docker cannot have {pinned}",
            kind="space" if full else "node",
            found=error.problem,
            next=deep or error.fields["next"],
        ) from None
    return {"layers": layers_of(found), "architecture": found["Architecture"], "bytes": found["Size"], "pulled": pulled}
