"""Take a file into this node's store: its bytes follow the request on stdin, for a node that cannot fetch it."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from sparkbuild.agent.disk.files import inside
from sparkbuild.agent.disk.lock import locked
from sparkbuild.agent.store.kept import keep, resumed
from sparkbuild.agent.wire.protocol import AgentError, Reporter, integrity_error

if TYPE_CHECKING:
    from sparkbuild.agent.wire.store import Bytes, PutRequest

OWNS_STDIN = True
_BLOCK = 1 << 20
_CALLER_GONE = 143


def run(request: PutRequest, reporter: Reporter) -> Bytes:
    """Take the file; the bytes are those that were received now. The event {"event": "ready", "offset"} asks for the
    bytes from there on: what an earlier try left is kept, and read into the digest. When the whole does not fit,
    nothing is kept: the next try begins anew. Error kind "integrity".
    """
    store, size = request["store"], request["size"]
    path = inside(store, request["path"])
    if os.path.isabs(request["path"]) or not path.startswith(os.path.normpath(store) + os.sep):
        raise AgentError("a file is put only into the store", found=request["path"], wanted=f"a path in {store}")
    folder = os.path.dirname(path)
    os.makedirs(folder, exist_ok=True)
    with locked(os.path.join(folder, ".lock"), os.path.basename(path)):
        part = f"{path}.part"
        fd = os.open(part, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
        with os.fdopen(fd, "r+b", buffering=0) as file:
            digest, offset = resumed(file, size)
            reporter.emit("ready", offset=offset)
            _receive(file, digest, offset, size, reporter)
            if digest.hexdigest() != request["sha256"]:
                os.unlink(part)
                raise integrity_error(
                    f"{os.path.basename(path)} arrived as something else",
                    where=path,
                    found=f"sha256 {digest.hexdigest()}",
                    wanted=f"sha256 {request['sha256']}",
                    next="run again: nothing was kept",
                )
        keep(part, path)
        return {"bytes": size - offset}


def _receive(file: Any, digest: Any, offset: int, size: int, reporter: Reporter) -> None:
    done = offset
    while done < size:
        block = os.read(0, min(_BLOCK, size - done))
        if not block:
            os._exit(_CALLER_GONE)  # the part stays, and the next try goes on from it
        view = memoryview(block)
        while view:
            view = view[file.write(view) :]
        digest.update(block)
        done += len(block)
        with suppress(BrokenPipeError):  # nobody listens: what has arrived is kept, and the end of stdin ends this
            reporter.progress("send", done, size)
