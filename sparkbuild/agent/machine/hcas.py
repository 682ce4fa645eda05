"""RDMA adapters of this node (HCAs) with their GIDs: a RoCE connection is made by the index of the right one.

Layout: Documentation/ABI/stable/sysfs-class-infiniband of the kernel. The right GID is the one that holds the fabric's
IPv4 address and whose type is `RoCE v2`; its index differs between nodes and between boots.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from sparkbuild.agent.machine.system import text

if TYPE_CHECKING:
    from sparkbuild.agent.wire.nodes import Gid, Hca

FOLDER = "/sys/class/infiniband"
_MAPPED = "0000:0000:0000:0000:0000:ffff:"  # ::ffff:a.b.c.d


def hcas(folder: str = FOLDER) -> list[Hca]:
    """Every port of every adapter; [] without any."""
    ports: list[Hca] = []
    for name in _listed(folder):
        for port in sorted(filter(str.isdigit, _listed(f"{folder}/{name}/ports")), key=int):
            place = f"{folder}/{name}/ports/{port}"
            gids = _gids(place)
            ports.append({
                "name": name,
                "port": int(port),
                "active": "ACTIVE" in text(f"{place}/state"),
                "interface": _interface(place, f"{folder}/{name}/device/net", int(port), gids),
                "gids": gids,
            })  # fmt: skip
    return ports


def ipv4(gid: str) -> str:
    """The IPv4 address that a GID holds, "" when it holds none."""
    if not gid.startswith(_MAPPED):
        return ""
    digits = gid[len(_MAPPED) :].replace(":", "")
    try:
        return ".".join(str(byte) for byte in bytes.fromhex(digits)) if len(digits) == 8 else ""
    except ValueError:
        return ""


def _gids(place: str) -> list[Gid]:
    gids: list[Gid] = []
    for index in sorted(filter(str.isdigit, _listed(f"{place}/gids")), key=int):
        gid = text(f"{place}/gids/{index}").strip()
        if not gid.strip("0:"):
            continue  # unused
        kind = text(f"{place}/gid_attrs/types/{index}").strip()  # EINVAL when unused
        if kind:
            gids.append({"index": int(index), "gid": gid, "type": kind, "ipv4": ipv4(gid)})
    return gids


def _interface(place: str, cards: str, port: int, gids: list[Gid]) -> str:
    """The network interface of a port: what its GIDs belong to, or the card that the adapter sits on."""
    for gid in gids:
        name = text(f"{place}/gid_attrs/ndevs/{gid['index']}").strip()
        if name:
            return name
    names = _listed(cards)
    # two ports of one card: dev_port counts from 0
    same = [name for name in names if text(f"{cards}/{name}/dev_port").strip() == str(port - 1)]
    return (same or names or [""])[0]


def _listed(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []
