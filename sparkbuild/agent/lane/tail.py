"""The end of a lane's log, and what is added to it."""

from __future__ import annotations

import os
import time
from typing import IO, TYPE_CHECKING

from sparkbuild.agent.docker.engine import Dockerd, DockerdError
from sparkbuild.agent.lane import records
from sparkbuild.agent.wire.protocol import AgentError, Reporter

if TYPE_CHECKING:
    from sparkbuild.agent.wire.lanes import TailRequest, TailResult
    from sparkbuild.agent.wire.records import LaneRecord


def run(request: TailRequest, reporter: Reporter) -> TailResult:
    """See TAIL. The event "launch" says what launch the log is of ("rank", "nodes"); the lines are logged."""
    record = records.record(request["store"], request["recipe"])
    if record is None:
        raise AgentError(
            f"lane {request['recipe']} was never started here, so it has no log",
            kind="engine",
            next=f"doit serve:{request['recipe']}",
        )
    reporter.emit("launch", rank=record.get("rank", 0), nodes=record["parts"].get("nodes") or [])
    if records.in_docker(record):
        return _of_container(record, request, reporter)
    path = os.path.join(request["store"], record["log"])
    file = open(path, "rb")  # noqa: SIM115 - it is another one once its bound is reached
    try:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - (1 << 20)))
        for line in file.read().decode(errors="replace").splitlines()[-max(1, request["lines"]) :]:
            reporter.log(line)
        rest = b""
        while request["follow"]:
            is_alive = records.alive(record)  # asked before reading: what it wrote last is read once more
            is_old = _is_old(file, path)  # as well
            *complete, rest = (rest + file.read()).split(b"\n")
            for data in complete:
                reporter.log(data.decode(errors="replace"))
            if is_old:
                file.close()
                file = open(path, "rb")  # noqa: SIM115 - as above
                continue
            if not is_alive:
                if rest:
                    reporter.log(rest.decode(errors="replace"))
                break
            time.sleep(0.1)
    finally:
        file.close()
    return {"log": record["log"], "alive": records.alive(record)}


def _is_old(file: IO[bytes], path: str) -> bool:
    """The log went on in a new file: see keeper."""
    try:
        return os.fstat(file.fileno()).st_ino != os.stat(path).st_ino
    except FileNotFoundError:
        return False


def _of_container(record: LaneRecord, request: TailRequest, reporter: Reporter) -> TailResult:
    container = record["container"]
    docker = Dockerd(request["docker"])
    try:
        for line in docker.logs(container, tail=max(1, request["lines"]), follow=request["follow"]):
            reporter.log(line)
    except DockerdError as error:
        if error.status != 404:
            raise
        raise AgentError(
            f"the log of lane {request['recipe']} is gone with its container, which was removed",
            kind="engine",
            found=f"no container {container[:12]}",
            next=f"doit serve:{request['recipe']} launches it anew; what doit did is in .sparkbuild/runs",
        ) from None
    return {"log": f"container {container[:12]}", "alive": records.alive(record, records.shelf_of(request))}
