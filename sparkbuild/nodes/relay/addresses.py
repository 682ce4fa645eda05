"""The addresses of nodes, by what they say of their interfaces: which networks two of them share. Pure."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence
from typing import Any

# Made by container engines on the node itself: every node has one, and no two nodes share it.
INNER = ("docker", "br-", "veth", "virbr", "cni", "flannel", "cali", "podman", "lxcbr", "lxdbr", "lo")


def addresses(fact: Mapping[str, Any], *, every: bool = False) -> Sequence[tuple[str, ipaddress.IPv4Interface]]:
    """(interface, address) of the interfaces that are up; without those that only lead to the node's own containers,
    unless `every` is wanted.
    """
    return [
        (str(interface["name"]), address)
        for interface in fact.get("interfaces") or ()
        if interface.get("up", True) and (every or not str(interface["name"]).startswith(INNER))
        for address in map(_interface, interface.get("addresses") or ())
        if address is not None
    ]


def networks(fact: Mapping[str, Any]) -> dict[ipaddress.IPv4Network, set[str]]:
    """The networks of a node that others may be on as well, with its interfaces there."""
    found: dict[ipaddress.IPv4Network, set[str]] = {}
    for name, address in addresses(fact):
        if address.network.prefixlen < 32:
            found.setdefault(address.network, set()).add(name)
    return found


def ways(there: Mapping[str, Any], here: Mapping[str, Any], fabrics: Sequence[str] = ()) -> list[tuple[str, int]]:
    """The addresses of the node `there` on networks that `here` is on as well, the best first, each with the speed of
    its interface in Mbit/s (0: not known): those in a network of `fabrics`, with RDMA, with more speed.
    """
    shared = networks(here)
    rdma = {str(hca.get("interface")) for hca in there.get("hcas") or () if hca.get("active")}
    speeds = {str(one["name"]): int(one.get("speed_mbit") or 0) for one in there.get("interfaces") or ()}
    wanted = [ipaddress.IPv4Network(text) for text in fabrics]
    found = [
        (not any(address.ip in one for one in wanted), name not in rdma, -speeds.get(name, 0), str(address.ip))
        for name, address in addresses(there)
        if address.network in shared
    ]
    return [(address, -speed) for _, _, speed, address in sorted(found)]


def _interface(text: str) -> ipaddress.IPv4Interface | None:
    try:
        return ipaddress.IPv4Interface(text)
    except ValueError:
        return None
