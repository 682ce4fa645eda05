"""Network interfaces of this node and all their IPv4 addresses, asked of the kernel by netlink (man 7 rtnetlink)."""

from __future__ import annotations

import os
import socket
import struct
from typing import TYPE_CHECKING

from sparkbuild.agent.machine import netlink
from sparkbuild.agent.machine.hcas import hcas
from sparkbuild.agent.machine.system import number, text

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sparkbuild.agent.wire.nodes import Interface, NetworkAsk, NetworkFact

FOLDER = "/sys/class/net"
_ROUTE, _NEW_ADDRESS, _GET_ADDRESS = 0, 20, 22
_ADDRESS, _LOCAL = 1, 2  # of IFA_*: with a peer, ADDRESS is the peer's
_UP = 1  # IFF_UP


def observe(query: NetworkAsk) -> NetworkFact:
    """See NETWORK."""
    del query
    return {"interfaces": interfaces(), "hcas": hcas()}


def interfaces(folder: str = FOLDER) -> list[Interface]:
    """All interfaces, by name. `up`: switched on and with a carrier. `speed_mbit` is 0 where none is known."""
    by_index = addresses()
    rows: list[Interface] = []
    for index, name in sorted(socket.if_nameindex(), key=lambda row: row[1]):
        place = os.path.join(folder, name)
        flags = text(f"{place}/flags").strip()
        on = flags.startswith("0x") and int(flags, 16) & _UP
        rows.append({
            "name": name,
            "up": bool(on) and text(f"{place}/carrier").strip() == "1",
            "speed_mbit": max(0, int(number(text(f"{place}/speed")))),  # -1 when unknown, EINVAL when down
            "addresses": by_index.get(index, []),
        })  # fmt: skip
    return rows


def addresses() -> dict[int, list[str]]:
    """All IPv4 addresses, as "10.0.0.1/24", by the index of their interface."""
    # struct ifaddrmsg: family, and seven bytes
    return read(netlink.listed(_ROUTE, _GET_ADDRESS, struct.pack("=B7x", socket.AF_INET)))


def read(answers: Iterable[tuple[int, bytes]]) -> dict[int, list[str]]:
    """The addresses of what netlink answered."""
    by_index: dict[int, list[str]] = {}
    for kind, body in answers:
        if kind == _NEW_ADDRESS and len(body) >= 8:
            _, prefix, _, _, index = struct.unpack_from("=BBBBI", body)
            attributes = _attributes(body[8:])
            address = attributes.get(_LOCAL) or attributes.get(_ADDRESS)
            if address and len(address) == 4:
                by_index.setdefault(index, []).append(f"{'.'.join(map(str, address))}/{prefix}")
    return by_index


def _attributes(data: bytes) -> dict[int, bytes]:
    """By type, of struct rtattr: length, type, value, padded to four bytes."""
    by_type = {}
    at = 0
    while at + 4 <= len(data):
        length, kind = struct.unpack_from("=HH", data, at)
        if length < 4 or at + length > len(data):
            break
        by_type[kind] = data[at + 4 : at + length]
        at += (length + 3) & ~3
    return by_type
