"""A way to this node's docker engine: stdin and stdout of this process become a connection to its socket."""

from __future__ import annotations

import errno
import os
import select
import socket
import threading
from typing import TYPE_CHECKING

from sparkbuild.agent.wire.protocol import AgentError, Reporter

if TYPE_CHECKING:
    from sparkbuild.agent.wire.verbs import Placed

OWNS_STDIN = True
_BLOCK = 1 << 18


def run(request: Placed, reporter: Reporter) -> None:
    """The event "ready", then the bytes of both directions as they are, until
    the engine hangs up or stdin is at its end and the engine has answered. Errors are the system's, as numbers: the
    caller words them.
    """
    engine = socket.socket(socket.AF_UNIX)
    try:
        engine.connect(request["docker"])
    except OSError as error:
        name = errno.errorcode.get(error.errno or 0, "")
        raise AgentError(error.strerror or str(error), kind="engine", found=name, where=request["docker"]) from None
    reporter.emit("ready")
    threading.Thread(target=_up, args=(engine,), daemon=True).start()
    buffer = bytearray(_BLOCK)
    view = memoryview(buffer)
    while size := _received(engine, buffer):
        _write(view[:size])


def _up(engine: socket.socket) -> None:
    try:
        while data := os.read(0, _BLOCK):
            engine.sendall(data)
        engine.shutdown(socket.SHUT_WR)
    except OSError:
        return  # it hung up: the other direction ends by itself
    # A caller who hangs up waits for no answer, but one who only ends his request does: his end of stdout tells.
    _end_with_stdout(engine)


def _end_with_stdout(engine: socket.socket) -> None:
    poll = select.poll()
    poll.register(1, 0)  # POLLERR: nobody reads any more
    poll.poll()
    engine.close()
    os._exit(0)


def _received(engine: socket.socket, buffer: bytearray) -> int:
    try:
        return engine.recv_into(buffer)
    except OSError:
        return 0


def _write(view: memoryview) -> None:
    while view:
        try:
            view = view[os.write(1, view) :]
        except OSError:
            os._exit(0)
