"""The network that the ranks of a lane talk over: which address and interface each node has on it. Pure.

A wrong choice here is a lane that hangs in its rendezvous for half an hour: anything but one clear answer is an error.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping

import msgspec

from sparkbuild.core.errors import ConfigError
from sparkbuild.nodes.relay.addresses import INNER, addresses, networks
from sparkbuild.serving.launch.asked import NodeSeen

_ROCE_V2 = "RoCE v2"


class Fabric(msgspec.Struct, frozen=True):
    """One node on the fabric. `hcas` are its active RDMA devices, that of the interface first; `gid_index` is that of
    the GID which is both this IPv4 address and of type RoCE v2, None without HCAs. `origin` says how it was found.
    """

    node: str
    address: str
    interface: str
    network: str
    origin: str
    hcas: tuple[str, ...] = ()
    gid_index: int | None = None


def alone(node: str) -> Fabric:
    """A cluster of one node talks to itself."""
    return Fabric(node, "127.0.0.1", "lo", "127.0.0.0/8", "a cluster of one node")


def choose(cluster: str, wanted: str, facts: Mapping[str, NodeSeen]) -> tuple[Fabric, ...]:
    """The fabric of a cluster from what its nodes said, in rank order; `wanted` is the cluster's `fabric`, if it has
    one. Raises ConfigError when there is not exactly one answer.
    """
    if len(facts) == 1 and not wanted:
        return (alone(next(iter(facts))),)
    network, origin = (_parse(cluster, wanted), f"fabric of cluster {cluster}") if wanted else _shared(cluster, facts)
    if network.is_loopback and len(facts) > 1:
        raise ConfigError(
            f"cluster {cluster} of {len(facts)} nodes cannot meet on a loopback address",
            where="config.toml",
            found=f"fabric {network}",
            wanted="a network that connects the nodes",
            next=f'set fabric = "10.0.1.0/24" (yours) in [clusters.{cluster}]',
        )
    places = tuple(_on(cluster, node, fact, network, origin) for node, fact in facts.items())
    by_address: dict[str, str] = {}
    for place in places:
        other = by_address.setdefault(place.address, place.node)
        if other != place.node:
            raise ConfigError(
                f"{other} and {place.node} have the same address on the fabric of {cluster}",
                found=place.address,
                wanted="an address of its own for each node",
            )
    return places


def _parse(cluster: str, text: str) -> ipaddress.IPv4Network:
    try:
        return ipaddress.IPv4Network(text)
    except ValueError as error:
        raise ConfigError(
            f"`fabric` of cluster {cluster} is no network",
            where="config.toml",
            found=str(error),
            wanted='"10.0.1.0/24"',
        ) from error


def _shared(cluster: str, facts: Mapping[str, NodeSeen]) -> tuple[ipaddress.IPv4Network, str]:
    """The one network that all nodes are on; one with RDMA devices on all of them goes before the others."""
    per_node = [networks(fact) for fact in facts.values()]
    shared = [network for network in per_node[0] if all(network in networks for networks in per_node)]
    names = ", ".join(facts)
    if not shared:
        raise ConfigError(
            f"the nodes of cluster {cluster} share no network",
            where="config.toml",
            found="\n".join(f"{node}: {_told(fact)}" for node, fact in facts.items()),
            wanted="one network that all of them are on",
            next=f"set fabric in [clusters.{cluster}] to the network that connects them",
        )
    if len(shared) == 1:
        return shared[0], f"the only network that {names} share"
    fast = [
        network
        for network in shared
        if all(
            any(hca["active"] and hca["interface"] in networks[network] for hca in fact.get("hcas") or ())
            for networks, fact in zip(per_node, facts.values(), strict=True)
        )
    ]
    if len(fast) == 1:
        return fast[0], f"the only network that {names} share with RDMA devices"
    raise ConfigError(
        f"the nodes of cluster {cluster} share more than one network",
        where="config.toml",
        found=", ".join(map(str, fast or shared)),
        wanted="the one that the ranks are to talk over",
        next=f'set fabric = "{(fast or shared)[0]}" (or another of them) in [clusters.{cluster}]',
    )


def _on(cluster: str, node: str, fact: NodeSeen, network: ipaddress.IPv4Network, origin: str) -> Fabric:
    places = [
        Fabric(node, str(address.ip), name, str(network), origin, *_rdma(fact, name, str(address.ip)))
        for name, address in addresses(fact, every=True)
        if address.ip in network
    ]
    # a wide network may hold those of the node's own containers as well
    places = [place for place in places if not place.interface.startswith(INNER)] or places
    # functions of one RDMA card may share a network: any of them will do
    places = [place for place in places if place.hcas] or places
    if places and (places[0].hcas or len({place.interface for place in places}) == 1):
        return places[0]
    if places:
        raise ConfigError(
            f"{node} is on the fabric of cluster {cluster} with more than one interface",
            where="config.toml",
            found=", ".join(f"{place.address} ({place.interface})" for place in places),
            wanted=f"one address in {network}",
            next=f"set fabric in [clusters.{cluster}] to a network that holds only one of them",
        )
    raise ConfigError(
        f"{node} has no address on the fabric of cluster {cluster}",
        where="config.toml",
        found=_told(fact),
        wanted=f"an address in {network}, on an interface that is up",
        next=f"ip -4 address on {node}; is the cable in?",
    )


def _rdma(fact: NodeSeen, interface: str, address: str) -> tuple[tuple[str, ...], int | None]:
    """The active HCAs that can be used with one GID index, that of the interface first.

    The index differs between nodes and between boots, and one of the same number may be RoCE v1 or IPv6: only the GID
    that is this very IPv4 address and of type RoCE v2 counts.
    """
    active = [hca for hca in fact.get("hcas") or () if hca["active"] and hca["name"]]
    fitting = (
        (hca["name"], gid["index"])
        for hca in active
        if hca["interface"] == interface
        for gid in hca["gids"]
        if gid["type"] == _ROCE_V2 and gid["ipv4"] == address
    )
    first, index = next(fitting, ("", -1))
    if not first:
        return (), None
    # the second function of the same port has its own address; it is of use when the same index fits it too
    others = [
        hca["name"]
        for hca in active
        if any(gid["index"] == index and gid["type"] == _ROCE_V2 and gid["ipv4"] for gid in hca["gids"])
    ]
    return tuple(dict.fromkeys((first, *others))), index


def _told(fact: NodeSeen) -> str:
    failed = fact.get("problems") or {}
    problems = [fact.get("problem"), failed.get("interfaces"), failed.get("hcas")]
    known = [f"{address} ({name})" for name, address in addresses(fact)]
    return ", ".join([*known, *(str(problem) for problem in problems if problem)]) or "no address"
