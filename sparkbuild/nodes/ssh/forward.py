"""A door to a port of a node that has no direct way: a listener here, each of its connections carried by the node's."""

from __future__ import annotations

import contextlib
import ipaddress
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from sparkbuild.core.errors import NodeError
from sparkbuild.nodes.ssh.link import Link
from sparkbuild.nodes.ssh.stream import hang_up, join

_PROHIBITED = 1  # RFC 4254, 5.1: administratively; what is merely not connected to may be, a moment later
_KNOCK = 3.0  # seconds for a connection; a firewall may answer nothing


def is_loopback(host: str) -> bool:
    """Whether the address means the machine that it is used on."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def is_open(host: str, port: int) -> bool:
    """Whether something takes connections there, from here."""
    try:
        socket.create_connection((host, port), timeout=_KNOCK).close()
    except OSError:
        return False
    return True


@contextmanager
def forwarded(link: Link, host: str, port: int) -> Iterator[tuple[str, int]]:
    """The address here that leads to `host:port` as the node sees it, while the block runs. A connection that cannot
    be carried on is closed at once; the next one may succeed. NodeError when the server forwards nothing at all.
    """
    link.transport()  # a node that cannot be reached is said here, not as an empty answer
    try:
        hang_up(link.forward(host, port))
    except NodeError as error:
        if getattr(error.__cause__, "code", 0) == _PROHIBITED:
            raise
    with socket.create_server(("127.0.0.1", 0), backlog=32) as listener:
        closing = threading.Event()
        threading.Thread(target=_serve, args=(listener, closing, link, host, port), daemon=True).start()
        try:
            yield "127.0.0.1", listener.getsockname()[1]
        finally:
            closing.set()
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)  # wakes accept


def _serve(listener: socket.socket, closing: threading.Event, link: Link, host: str, port: int) -> None:
    while not closing.is_set():
        try:
            caller, _ = listener.accept()
        except OSError:
            return
        threading.Thread(target=_carry, args=(caller, link, host, port), daemon=True).start()


def _carry(caller: socket.socket, link: Link, host: str, port: int) -> None:
    try:
        join(link.forward(host, port), caller)
    except NodeError:
        caller.close()
