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
from typing import TYPE_CHECKING, NamedTuple

from sparkbuild.agent.wire.printable import one_line
from sparkbuild.agent.wire.protocol import AgentError, Reporter

if TYPE_CHECKING:
    from sparkbuild.agent.wire.lanes import Ended, HoldRequest

NAME = "\0sparkbuild-launch"
PATIENCE = 3.0  # seconds: a holder that just ended frees the name, one that just began answers soon
BEAT = 0.5  # seconds between two signs of life


class _Claim(NamedTuple):
    """Who holds this node, for which recipe, and since when in unix seconds."""

    recipe: str
    who: str
    since: float


def run(request: HoldRequest, reporter: Reporter) -> Ended:
    """See HOLD. Emits "held", then "beat" twice a second, until stdin closes."""
    claim = _Claim(request["recipe"], request["who"], time.time())
    server = _claim(request.get("name", NAME))
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


def _refused(holder: _Claim) -> AgentError:
    since = time.strftime("%H:%M:%S UTC", time.gmtime(holder.since))
    return AgentError(
        f"lane {holder.recipe} is being launched here at this moment",
        kind="node",
        found=f"by {holder.who} since {since}",
        wanted="a node that nobody launches on",
        next="wait for it: doit status",
    )


def _ask(name: str) -> _Claim | None:
    """Who holds the name; None when it was let go of meanwhile."""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
            client.settimeout(1.0)
            client.connect(name)
            answer = json.loads(client.recv(4096))
    except (OSError, ValueError, RecursionError):
        return None
    # any user of this node may have taken the name, and may say anything
    recipe, who, since = map(answer.get, _Claim._fields) if isinstance(answer, dict) else (None, None, None)
    if not (isinstance(recipe, str) and isinstance(who, str) and isinstance(since, int | float)):
        return None
    return _Claim(one_line(recipe, 100), one_line(who, 100), since) if 0 <= since < 1e11 else None


def _tell(server: socket.socket, claim: _Claim) -> None:
    answer = json.dumps(claim._asdict()).encode()[:4096]
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
