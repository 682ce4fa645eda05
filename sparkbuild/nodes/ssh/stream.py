"""A channel of an ssh connection as a real socket, so that anything which works on sockets works on it."""

from __future__ import annotations

import contextlib
import select
import socket
import threading
from typing import Protocol

import paramiko

from sparkbuild.nodes.rpc.pieces import PIECE


class Channel(Protocol):
    """What is joined with a socket: a channel of ssh, or a request of an agent."""

    def recv(self, size: int, /) -> bytes:
        """At most so many bytes as they come, b"" at the end."""

    def sendall(self, data: bytes, /) -> None:
        """Send all of it."""

    def shutdown_write(self) -> None:
        """Nothing more will be sent."""

    def close(self) -> None:
        """End it."""


BROKEN = (OSError, EOFError, paramiko.SSHException)  # what a channel raises when its connection is gone


def hang_up(channel: Channel) -> None:
    """Close a channel; fine when its connection is gone."""
    with contextlib.suppress(*BROKEN):
        channel.close()


def joined(channel: Channel) -> socket.socket:
    """A socket whose other end is the channel. Ends of either direction are passed on; closing it closes the channel,
    and the loss of the connection closes it.
    """
    ours, theirs = socket.socketpair()
    join(channel, theirs)
    return ours


def join(channel: Channel, other: socket.socket) -> None:
    """Copy both ways between a channel and a socket in the background, then close both."""
    down = threading.Thread(target=_down, args=(channel, other), daemon=True)
    up = threading.Thread(target=_up, args=(channel, other, down), daemon=True)
    down.start()
    up.start()


def _down(channel: Channel, other: socket.socket) -> None:
    """From the node."""
    try:
        while data := channel.recv(PIECE):
            other.sendall(data)
    except OSError:
        hang_up(channel)  # nobody reads it here
    with contextlib.suppress(OSError):
        # The answer is whole, and no request will find anybody: hang up, as the engine did.
        other.shutdown(socket.SHUT_RDWR)


def _up(channel: Channel, other: socket.socket, down: threading.Thread) -> None:
    """To the node."""
    gone = True  # a socket that is closed with something unread is an error here, not an end
    with contextlib.suppress(*BROKEN):
        while data := other.recv(PIECE):
            channel.sendall(data)
        channel.shutdown_write()
        gone = _is_closed(other)
    if gone:
        hang_up(channel)
    down.join()
    hang_up(channel)
    other.close()


def _is_closed(other: socket.socket) -> bool:
    """Whether the other end was closed, and not only its sending half."""
    poll = select.poll()
    poll.register(other, 0)
    return bool(poll.poll(0))
