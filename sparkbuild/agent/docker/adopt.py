"""Take an image that others made under a name of ours: pulled by its digest where it is not there, tried, and named.

Docker lists an image that was pulled by digest without a tag, and would remove it as a dangling one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparkbuild.agent.docker.bydigest import have
from sparkbuild.agent.docker.changes import DockerWork
from sparkbuild.agent.docker.engine import SOCKET, DockerdError, layers_of, too_deep
from sparkbuild.agent.wire.protocol import AgentError, Reporter

if TYPE_CHECKING:
    from sparkbuild.agent.wire.engine import AdoptRequest, AdoptResult


def run(request: AdoptRequest, reporter: Reporter) -> AdoptResult:
    """See ADOPT. Error kind "node" when docker cannot have it, "config" for another architecture."""
    engine = DockerWork(request["docker"] or SOCKET)
    pinned = f"{request['repository']}@{request['digest']}"
    try:
        may, login = request["pull"], request.get("login", "")
        image, pulled = have(engine, request["repository"], request["digest"], reporter, pull=may, login=login)
        engine.trial(image["Id"])
        engine.tag(image["Id"], request["reference"])
    except DockerdError as error:
        full = "no space left" in error.problem.lower()
        deep = "an image of at most 125 layers: docker's store takes no more" if too_deep(error.problem) else ""
        raise AgentError(
            f"docker cannot have {pinned}",
            kind="space" if full else "node",
            found=error.problem,
            next=deep or error.fields["next"],
        ) from None
    return {"layers": layers_of(image), "architecture": image["Architecture"], "bytes": image["Size"], "pulled": pulled}
