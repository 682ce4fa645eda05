"""Which address and interface each node has on its cluster's network, from what the nodes say; one answer, or none."""

from __future__ import annotations

from typing import Any

import pytest

from sparkbuild.core.errors import ConfigError
from sparkbuild.serving.launch.fabric import Fabric, choose

V1, V2 = "IB/RoCE v1", "RoCE v2"
Fact = dict[str, Any]


def nic(name: str, *addresses: str, up: bool = True) -> Fact:
    return {"name": name, "up": up, "addresses": list(addresses)}


def mapped(address: str) -> str:
    """An IPv4 address as sysfs shows its GID."""
    digits = "".join(f"{int(part):02x}" for part in address.split("."))
    return f"0000:0000:0000:0000:0000:ffff:{digits[:4]}:{digits[4:]}"


def gid(index: int, address: str, kind: str = V2) -> Fact:
    is_v4 = address.count(".") == 3
    return {
        "index": index,
        "type": kind,
        "gid": mapped(address) if is_v4 else address,
        "ipv4": address if is_v4 else "",
    }


def hca(name: str, interface: str, *gids: Fact, active: bool = True) -> Fact:
    return {"name": name, "port": 1, "active": active, "interface": interface, "gids": list(gids)}


def node(*interfaces: Fact, hcas: tuple[Fact, ...] = ()) -> Fact:
    return {"interfaces": [nic("lo", "127.0.0.1/8"), *interfaces], "hcas": list(hcas)}


def pair(*interfaces: tuple[str, str]) -> dict[str, Fact]:
    """dgx1 and dgx2 with the same interfaces; X in an address is the number of the node."""
    return {
        f"dgx{number}": node(*(nic(name, text.replace("X", str(number))) for name, text in interfaces))
        for number in (1, 2)
    }


def spark(number: int, shift: int = 0) -> Fact:
    """A node with two functions of one RDMA card, each with an address of its own, and an office network."""
    one, two = f"10.0.1.{number}", f"10.0.2.{number}"
    gids = [gid(0, "fe80::1", V1), gid(1, "fe80::1"), gid(2 + shift, one, V1), gid(3 + shift, one)]
    twins = [gid(0, "fe80::2", V1), gid(1, "fe80::2"), gid(2 + shift, two, V1), gid(3 + shift, two)]
    return node(
        nic("enP2p1s0f0np0", f"{two}/24"),
        nic("enP7s7", f"192.168.7.{number}/24"),
        nic("enp1s0f0np0", f"{one}/24"),
        hcas=(hca("roceP2p1s0f0", "enP2p1s0f0np0", *twins), hca("rocep1s0f0", "enp1s0f0np0", *gids)),
    )


def places(found: tuple[Fabric, ...]) -> list[tuple[str, str, str]]:
    return [(one.node, one.address, one.interface) for one in found]


LAN = ("eth0", "10.0.0.X/24")

# name: facts, `fabric` of the cluster, (node, address, interface) of each
FOUND: dict[str, tuple[dict[str, Fact], str, list[tuple[str, str, str]]]] = {
    "one node": ({"dgx1": node()}, "", [("dgx1", "127.0.0.1", "lo")]),
    "one node that says nothing": ({"dgx1": {}}, "", [("dgx1", "127.0.0.1", "lo")]),
    "one node, loopback wanted": ({"dgx1": node()}, "127.0.0.0/8", [("dgx1", "127.0.0.1", "lo")]),
    "one node, a network wanted": (
        {"dgx1": node(nic("eth0", "10.0.0.1/24"))},
        "10.0.0.0/24",
        [("dgx1", "10.0.0.1", "eth0")],
    ),
    "one shared network": (pair(LAN), "", [("dgx1", "10.0.0.1", "eth0"), ("dgx2", "10.0.0.2", "eth0")]),
    "wanted": (
        pair(LAN, ("eth1", "10.0.1.X/24")),
        "10.0.1.0/24",
        [("dgx1", "10.0.1.1", "eth1"), ("dgx2", "10.0.1.2", "eth1")],
    ),
    "another interface on each": (
        {"dgx2": node(nic("b", "10.0.0.2/24")), "dgx1": node(nic("a", "10.0.0.1/24"))},
        "",
        [("dgx2", "10.0.0.2", "b"), ("dgx1", "10.0.0.1", "a")],
    ),
    "a wanted part of their network": (
        pair(("wlan0", "10.0.0.10X/24"), LAN),
        "10.0.0.0/28",
        [("dgx1", "10.0.0.1", "eth0"), ("dgx2", "10.0.0.2", "eth0")],
    ),
    "a wanted network that two cables make up": (
        {"dgx1": node(nic("eth0", "10.0.0.1/24")), "dgx2": node(nic("eth0", "10.0.1.2/24"))},
        "10.0.0.0/16",
        [("dgx1", "10.0.0.1", "eth0"), ("dgx2", "10.0.1.2", "eth0")],
    ),
    "a wanted network that holds docker's": (
        pair(("br-0a1b", "10.0.9.1/24"), ("docker0", "10.0.8.1/24"), LAN),
        "10.0.0.0/16",
        [("dgx1", "10.0.0.1", "eth0"), ("dgx2", "10.0.0.2", "eth0")],
    ),
    "everything wanted": (pair(LAN), "0.0.0.0/0", [("dgx1", "10.0.0.1", "eth0"), ("dgx2", "10.0.0.2", "eth0")]),
    "the nodes' own networks": (
        pair(
            *((f"{name}0", f"172.{17 + at}.0.1/16") for at, name in enumerate(("docker", "br-", "veth", "virbr"))),
            ("podman0", "10.88.0.1/16"),
            ("lxcbr0", "10.0.3.1/24"),
            LAN,
        ),
        "",
        [("dgx1", "10.0.0.1", "eth0"), ("dgx2", "10.0.0.2", "eth0")],
    ),
    "an address for itself alone": (
        pair(("dummy0", "10.9.9.9/32"), LAN),
        "",
        [("dgx1", "10.0.0.1", "eth0"), ("dgx2", "10.0.0.2", "eth0")],
    ),
    "a second address of the interface": (
        {"dgx1": node(nic("eth0", "10.0.0.1/24", "10.0.0.200/24")), "dgx2": node(nic("eth0", "10.0.0.2/24"))},
        "",
        [("dgx1", "10.0.0.1", "eth0"), ("dgx2", "10.0.0.2", "eth0")],
    ),
    "another interface is down": (
        {
            "dgx1": node(nic("eth0", "10.0.0.1/24"), nic("eth1", "10.0.1.1/24")),
            "dgx2": node(nic("eth0", "10.0.0.2/24"), nic("eth1", "10.0.1.2/24", up=False)),
        },
        "",
        [("dgx1", "10.0.0.1", "eth0"), ("dgx2", "10.0.0.2", "eth0")],
    ),
    "RDMA decides": (
        {
            f"dgx{number}": node(
                nic("eth0", f"10.0.0.{number}/24"),
                nic("fast", f"10.0.1.{number}/24"),
                hcas=(hca("rocep1s0f0", "fast", gid(3, f"10.0.1.{number}")),),
            )
            for number in (1, 2)
        },
        "",
        [("dgx1", "10.0.1.1", "fast"), ("dgx2", "10.0.1.2", "fast")],
    ),
    "of two functions with addresses in one network": (
        {
            f"dgx{number}": node(
                nic("fast", f"169.254.1.{number}/16"),
                nic("plain", f"169.254.3.{number}/16"),
                nic("slow", f"10.0.0.{number}/24"),
                hcas=(hca("rocep1s0f0", "fast", gid(3, f"169.254.1.{number}")),),
            )
            for number in (1, 2)
        },
        "",
        [("dgx1", "169.254.1.1", "fast"), ("dgx2", "169.254.1.2", "fast")],
    ),
}


@pytest.mark.parametrize("name", FOUND)
def test_found(name: str) -> None:
    facts, wanted, expected = FOUND[name]
    assert places(choose("pair", wanted, facts)) == expected


def test_what_is_told_of_the_choice() -> None:
    (found, _) = choose("pair", "", pair(LAN))
    assert found.origin == "the only network that dgx1, dgx2 share"
    assert found.network == "10.0.0.0/24"
    (found, _) = choose("pair", "10.0.0.0/16", pair(LAN))
    assert (found.origin, found.network) == ("fabric of cluster pair", "10.0.0.0/16")
    (alone,) = choose("one", "", {"dgx1": node()})
    assert alone.origin == "a cluster of one node"


# name: facts, `fabric` of the cluster, what stands in the error
REFUSED: dict[str, tuple[dict[str, Fact], str, list[str]]] = {
    "no shared network": (
        {"dgx1": node(nic("eth0", "10.0.0.1/24")), "dgx2": node(nic("eth0", "10.0.1.2/24"))},
        "",
        ["share no network", "dgx1: 10.0.0.1/24 (eth0)", "dgx2: 10.0.1.2/24 (eth0)", "[clusters.pair]"],
    ),
    "a prefix of another length": (
        {"dgx1": node(nic("eth0", "10.0.0.1/24")), "dgx2": node(nic("eth0", "10.0.0.2/16"))},
        "",
        ["share no network", "dgx1: 10.0.0.1/24", "dgx2: 10.0.0.2/16"],
    ),
    "only docker's": (pair(("docker0", "172.17.0.1/16")), "", ["share no network", "dgx1: no address"]),
    "docker's, wanted": (pair(("docker0", "172.17.0.1/16")), "172.17.0.0/16", ["dgx1 and dgx2 have the same address"]),
    "no interface": ({"dgx1": node(), "dgx2": node()}, "", ["share no network", "dgx2: no address"]),
    "its look failed": (
        {"dgx1": node(), "dgx2": {"interfaces": [], "problems": {"interfaces": "ValueError: cut"}}},
        "",
        ["share no network", "dgx2: ValueError: cut"],
    ),
    "all looks failed": (
        {"dgx1": node(nic("eth0", "10.0.0.1/24")), "dgx2": {"present": False, "problem": "KeyError: 'x'"}},
        "10.0.0.0/24",
        ["dgx2 has no address on the fabric", "KeyError"],
    ),
    "two shared networks": (
        pair(LAN, ("eth1", "10.0.1.X/24")),
        "",
        ["share more than one network", "10.0.0.0/24, 10.0.1.0/24", 'fabric = "10.0.0.0/24"'],
    ),
    "two with RDMA": ({"dgx1": spark(1), "dgx2": spark(2)}, "", ["more than one network", "10.0.2.0/24, 10.0.1.0/24"]),
    "RDMA on one node only": (
        {"dgx1": spark(1), "dgx2": {**spark(2), "hcas": []}},
        "",
        ["more than one network", "10.0.2.0/24, 192.168.7.0/24, 10.0.1.0/24"],
    ),
    "loopback": (
        pair(LAN),
        "127.0.0.0/8",
        ["cannot meet on a loopback address", "[clusters.pair]", "fabric 127.0.0.0"],
    ),
    "a part of loopback": (pair(LAN), "127.0.0.1/32", ["cannot meet on a loopback address"]),
    "the same address": (
        {"dgx1": node(nic("eth0", "10.0.0.1/24")), "dgx2": node(nic("eth0", "10.0.0.1/24"))},
        "",
        ["dgx1 and dgx2 have the same address", "10.0.0.1"],
    ),
    "not on the wanted network": (
        {"dgx1": node(nic("eth0", "10.0.0.1/24")), "dgx2": node(nic("eth0", "10.0.1.2/24"))},
        "10.0.0.0/24",
        ["dgx2 has no address on the fabric of cluster pair", "10.0.1.2/24 (eth0)", "an address in 10.0.0.0/24"],
    ),
    "its cable is out": (
        {"dgx1": node(nic("eth0", "10.0.0.1/24")), "dgx2": node(nic("eth0", "10.0.0.2/24", up=False))},
        "10.0.0.0/24",
        ["dgx2 has no address", "no address", "is the cable in?"],
    ),
    "two interfaces on it": (
        pair(LAN, ("wlan0", "10.0.0.10X/24")),
        "10.0.0.0/24",
        ["dgx1 is on the fabric", "10.0.0.1 (eth0), 10.0.0.101 (wlan0)"],
    ),
    "two interfaces on the shared one": (pair(LAN, ("wlan0", "10.0.0.10X/24")), "", ["more than one interface"]),
    "host bits": (pair(LAN), "10.0.0.1/24", ["`fabric` of cluster pair is no network", "host bits"]),
    "IPv6": (pair(LAN), "fd00::/64", ["is no network"]),
    "a word": (pair(LAN), "fast", ["is no network", "'fast'", '"10.0.1.0/24"']),
    "one address for two": (pair(LAN), "10.0.0.1", ["dgx2 has no address"]),
    "addresses that are none": (
        {"dgx1": node(nic("eth0", "10.0.0.1/99", "", "x", "fe80::1/64")), "dgx2": node(nic("eth0", "10.0.0.2/24"))},
        "10.0.0.0/24",
        ["dgx1 has no address"],
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    facts, wanted, texts = REFUSED[name]
    with pytest.raises(ConfigError) as raised:
        choose("pair", wanted, facts)
    for text in texts:
        assert text in str(raised.value)


@pytest.mark.parametrize("wanted", ["10.0.1.0/24", "10.0.0.0/16"])
def test_gid_index_of_each_node(wanted: str) -> None:
    one, two = choose("pair", wanted, {"dgx1": spark(1), "dgx2": spark(2, shift=4)})
    assert (one.gid_index, two.gid_index) == (3, 7)
    assert set(one.hcas) == {"rocep1s0f0", "roceP2p1s0f0"}
    assert one.hcas[0] == {"enp1s0f0np0": "rocep1s0f0", "enP2p1s0f0np0": "roceP2p1s0f0"}[one.interface]


PLACE = "10.0.1.1"
MINE = gid(3, PLACE)

# name: HCAs of a node whose interface "fast" has the address PLACE; what is used of them, by which index
RDMA: dict[str, tuple[list[Fact], tuple[str, ...], int | None]] = {
    "none": ([], (), None),
    "one": ([hca("a", "fast", MINE)], ("a",), 3),
    "index 0": ([hca("a", "fast", gid(0, PLACE))], ("a",), 0),
    "v1 only": ([hca("a", "fast", gid(2, PLACE, V1))], (), None),
    "v1 and v2 of one address": ([hca("a", "fast", gid(2, PLACE, V1), MINE)], ("a",), 3),
    "v2 before v1": ([hca("a", "fast", MINE, gid(4, PLACE, V1))], ("a",), 3),
    "twice": ([hca("a", "fast", MINE, gid(5, PLACE))], ("a",), 3),
    "IPv6 only": ([hca("a", "fast", gid(0, "fe80::1"), gid(1, "fd00::a00:101"))], (), None),
    "the same digits in IPv6": ([hca("a", "fast", gid(0, "fe80:0000:0000:0000:0000:0000:0a00:0101"))], (), None),
    "of another address": ([hca("a", "fast", gid(3, "10.0.1.11"))], (), None),
    "of another interface": ([hca("a", "eth0", MINE)], (), None),
    "without a link": ([hca("a", "fast", MINE, active=False)], (), None),
    "InfiniBand": ([hca("a", "", gid(0, "fe80::1", "IB"))], (), None),
    "a twin that the index fits": ([hca("b", "twin", gid(3, "10.0.2.1")), hca("a", "fast", MINE)], ("a", "b"), 3),
    "a twin with another index": ([hca("a", "fast", MINE), hca("b", "twin", gid(5, "10.0.2.1"))], ("a",), 3),
    "a twin with IPv6 there": ([hca("a", "fast", MINE), hca("b", "twin", gid(3, "fe80::2"))], ("a",), 3),
    "a twin with v1 there": ([hca("a", "fast", MINE), hca("b", "twin", gid(3, "10.0.2.1", V1))], ("a",), 3),
    "a twin without a link": ([hca("a", "fast", MINE), hca("b", "t", gid(3, "10.0.2.1"), active=False)], ("a",), 3),
    "a twin without an address": ([hca("a", "fast", MINE), hca("b", "twin")], ("a",), 3),
    "a twin of two ports": ([hca("a", "fast", MINE), *[hca("b", "t", gid(3, "10.0.2.1"))] * 2], ("a", "b"), 3),
    "no GIDs": ([hca("a", "fast")], (), None),
    "no name": ([hca("", "fast", MINE)], (), None),
    "a GID that is none": ([hca("a", "fast", {"index": 1, "gid": "x", "type": V2, "ipv4": ""})], (), None),
}


@pytest.mark.parametrize("name", RDMA)
def test_rdma(name: str) -> None:
    hcas, used, index = RDMA[name]
    fact = node(nic("fast", f"{PLACE}/24"), hcas=tuple(hcas))
    (found,) = choose("pair", "10.0.1.0/24", {"dgx1": fact})
    assert (found.hcas, found.gid_index) == (used, index)
