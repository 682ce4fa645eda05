"""On which addresses of this node a port is listened on."""

from __future__ import annotations

import socket
import struct
from typing import Any

from sparkbuild.agent.machine.procs import Glance

_ANY = {"0.0.0.0": ("127.0.0.1",), "::": ("127.0.0.1", "::1")}  # noqa: S104 - recognised, not bound to


def observe(query: dict[str, Any]) -> dict[str, Any]:
    """Query {"port", "glance"?}; {"addresses": where this node itself reaches what listens there}."""
    return {"addresses": addresses(int(query["port"]), query.get("glance") or Glance())}


def addresses(port: int, glance: Glance) -> list[str]:
    """Addresses of this node that lead to what listens on the port: those it is bound to, loopback where it is bound to
    all. Names that others have for this node mean nothing here.
    """
    bound = dict.fromkeys(_shown(text) for text in glance.bound(port))
    return list(dict.fromkeys(one for address in bound for one in _ANY.get(address, (address,))))


def _shown(text: str) -> str:
    """An address of /proc/net/tcp or tcp6: words of 32 bits in hex, each in the order of bytes of this machine."""
    raw = b"".join(struct.pack("=I", int(text[at : at + 8], 16)) for at in range(0, len(text), 8))
    if len(raw) == 4:
        return socket.inet_ntop(socket.AF_INET, raw)
    return socket.inet_ntop(socket.AF_INET6, raw).removeprefix("::ffff:")
