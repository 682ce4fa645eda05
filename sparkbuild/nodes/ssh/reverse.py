"""The way back: a port of a node's 127.0.0.1 whose connections end at a port of this machine."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable

import paramiko

from sparkbuild.core.errors import NodeError
from sparkbuild.nodes.ssh.link import Link
from sparkbuild.nodes.ssh.stream import hang_up, join


def carried_back(link: Link, port: int) -> tuple[int, Callable[[], None]]:
    """The node's port, and what ends it. NodeError where the server forwards nothing (AllowTcpForwarding)."""

    def arrived(channel: paramiko.Channel) -> None:
        # in the transport's own thread, which must go on
        threading.Thread(target=_carry, args=(channel, port), daemon=True).start()

    there = link.listen(arrived)

    def undo() -> None:
        with contextlib.suppress(NodeError, paramiko.SSHException, EOFError, OSError):
            link.unlisten(there)

    return there, undo


def _carry(channel: paramiko.Channel, port: int) -> None:
    try:
        here = socket.create_connection(("127.0.0.1", port), timeout=5.0)
    except OSError:
        hang_up(channel)
        return
    here.settimeout(None)
    channel.settimeout(None)
    join(channel, here)
