"""A TCP connection to an ssh server, from the address, the interface and the family that its configuration names."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager

from sparkbuild.nodes.ssh.config import Target


def connected(target: Target) -> socket.socket:
    """The first of its addresses that takes the connection. OSError of the last one when none does."""
    failure: OSError | None = None
    for family, kind, protocol, _, place in socket.getaddrinfo(
        target.host, target.port, target.family, socket.SOCK_STREAM
    ):
        made = socket.socket(family, kind, protocol)
        try:
            made.settimeout(target.timeout)
            if target.interface:
                with _named(f"BindInterface {target.interface}"):
                    made.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, target.interface.encode() + b"\0")
            if target.bind:
                with _named(f"BindAddress {target.bind}"):
                    made.bind(_own(target.bind, family))
            made.connect(place)
        except OSError as error:
            made.close()
            failure = error
        except BaseException:
            made.close()
            raise
        else:
            return made
    raise failure or OSError("no address")


@contextmanager
def _named(option: str) -> Iterator[None]:
    """Say which option it was that is not of this machine: the system says `No such device`, and not which."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, f"{option}: {error.strerror or error}") from error


def _own(address: str, family: int) -> tuple[str, int]:
    found = socket.getaddrinfo(address, 0, family, socket.SOCK_STREAM)[0][4]
    return str(found[0]), 0
