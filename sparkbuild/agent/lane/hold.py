"""Hold this node for one launch: whoever else wants to launch on it meanwhile is refused, and told who is at it.

The claim is a listening socket with an abstract name: the kernel frees it when this process ends, however it ends, and
it needs no file that the users of a node would have to share.
"""

from __future__ import annotations

import errno
import json
import os
import socket
import threading
import time
from typing import Any

from sparkbuild.agent.wire.printable import one_line
from sparkbuild.agent.wire.protocol import AgentError, Reporter

NAME = "\0sparkbuild-launch"
PATIENCE = 3.0  # seconds: a holder that just ended frees the name, one that just began answers soon
BEAT = 0.5  # seconds between two signs of life


def run(request: dict[str, Any], reporter: Reporter) -> dict[str, Any]:
    """Request {"recipe", "who", "name"?}; emits {"event": "held"}, then {"event": "beat"} twice a second until stdin
    closes. Error: somebody else holds this node.
    """
    claim = {"recipe": request["recipe"], "who": request["who"], "since": time.time()}
    server = _claim(str(request.get("name") or NAME))
    threading.Thread(target=_tell, args=(server, claim), daemon=True).start()
    reporter.emit("held")
    while True:  # ends with stdin
        time.sleep(BEAT)
        reporter.emit("beat")


def _claim(name: str) -> socket.socket:
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            server.bind(name)
        except OSError as error:
            server.close()
            if error.errno != errno.EADDRINUSE:
                raise
            holder = _ask(name)
            if holder is not None:
                raise _refused(holder) from None
            time.sleep(0.05)
        else:
            server.listen(16)
            return server
    raise AgentError("another launch holds this node and does not say whose it is", kind="node", next="run again")


def _refused(holder: dict[str, Any]) -> AgentError:
    since = time.strftime("%H:%M:%S UTC", time.gmtime(float(holder["since"])))
    return AgentError(
        f"lane {holder['recipe']} is being launched here at this moment",
        kind="node",
        found=f"by {holder['who']} since {since}",
        wanted="a node that nobody launches on",
        next="wait for it: doit status",
    )


def _ask(name: str) -> dict[str, Any] | None:
    """Who holds the name; None when it was let go of meanwhile."""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
            client.settimeout(1.0)
            client.connect(name)
            holder = json.loads(client.recv(4096))
    except (OSError, ValueError, RecursionError):
        return None
    # any user of this node may have taken the name, and may say anything
    if not isinstance(holder, dict) or not all(isinstance(holder.get(name), str) for name in ("recipe", "who")):
        return None
    since = holder.get("since")
    holder |= {name: one_line(holder[name], 100) for name in ("recipe", "who")}
    return holder if isinstance(since, int | float) and 0 <= since < 1e11 else None


def _tell(server: socket.socket, claim: dict[str, Any]) -> None:
    answer = json.dumps(claim).encode()[:4096]
    while True:
        try:
            client, _ = server.accept()
        except OSError:
            os._exit(1)  # a claim that cannot be told is none
        with client:
            try:
                client.sendall(answer)
            except OSError:
                continue
