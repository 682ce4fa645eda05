"""The rack's network: a bridge in a network namespace of its own, one port per node, one link to the machine.

The bridge is not in the machine's namespace: there a dockerd's firewall (FORWARD is DROP, br_netfilter) would swallow
what nodes say to each other, and the machine's rules would have to be changed. All the machine gets is one link.
"""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tests.rack.proc import RackError, call, entering

Network = ipaddress.IPv4Network


def candidates() -> Iterator[Network]:
    """Private /24 networks, least likely to be used by others first; the last are for tests of network gear."""
    for start in ("10.77", "172.30", "192.168", "198.18"):
        for third in range(256):
            yield Network(f"{start}.{third}.0/24")


def choose(taken: Iterable[Network]) -> Network:
    """The first network that overlaps none of `taken`."""
    used = list(taken)
    for network in candidates():
        if not any(network.overlaps(one) for one in used):
            return network
    raise RackError("every network that a rack could have is routed elsewhere from this machine")


def present() -> list[Network]:
    """Networks that this machine has routes to or addresses in, the default route apart."""
    routes = json.loads(call(["ip", "-json", "-4", "route", "show", "table", "all"]).out or "[]")
    links = json.loads(call(["ip", "-json", "-4", "address"]).out or "[]")
    found = [Network(route["dst"], strict=False) for route in routes if route["dst"] not in {"default", "0.0.0.0/0"}]
    found += [
        Network(f"{address['local']}/{address['prefixlen']}", strict=False)
        for link in links
        for address in link.get("addr_info", [])
    ]
    return found


@dataclass(frozen=True)
class Switch:
    """The bridge, in the network namespace of process `keeper`. `link` is the name of the machine's end."""

    keeper: int
    link: str
    network: Network

    def install(self) -> None:
        """Make the bridge and the machine's link to it; the machine has the network's first address."""
        self._switch("link add br0 type bridge", "link set br0 up", "link set lo up")
        call(["ip", "link", "add", self.link, "type", "veth", "peer", "name", "uplink", "netns", str(self.keeper)])
        self._switch("link set uplink master br0 up")
        gateway = f"{self.network[1]}/{self.network.prefixlen}"
        _batch([], f"address add {gateway} dev {self.link}", f"link set {self.link} up")

    def remove(self) -> None:
        """Take the machine's end away (the kernel would, but later)."""
        call(["ip", "link", "delete", self.link], check=False)

    def connect(self, port: str, node: int, address: str) -> None:
        """Give the network namespace of process `node` an eth0 that ends in our port. No route leads further."""
        # A card keeps its hardware address over a reboot; with a new one, the others' ARP caches would hide the node.
        card = "02:00:" + ":".join(f"{part:02x}" for part in ipaddress.IPv4Address(address).packed)
        made = f"link add {port} type veth peer name eth0 address {card} netns {node}"
        self._switch(made, f"link set {port} master br0 up")
        wire = f"{address}/{self.network.prefixlen}"
        inside = ["link set lo up", f"address add {wire} dev eth0", "link set eth0 up"]
        _batch(entering(node, "net"), *inside)

    def disconnect(self, port: str) -> None:
        """Pull the cable out; eth0 goes with it. A port that is gone already is fine."""
        call([*entering(self.keeper, "net"), "ip", "link", "delete", port], check=False)

    def cut(self, port: str) -> None:
        self._switch(f"link set {port} down")

    def heal(self, port: str) -> None:
        self._switch(f"link set {port} up")

    def rate(self, port: str, node: int, mbit: float | None) -> None:
        """Limit both directions (each is a queue at its sending end); None lifts the limit."""
        for inside, device in ((self.keeper, port), (node, "eth0")):
            queue = [*entering(inside, "net"), "tc", "qdisc"]
            if mbit is None:
                call([*queue, "delete", "dev", device, "root"], check=False)  # fails when there is none
                continue
            # What may pass at once: 10 ms of the rate, or the limit is not reached between two timer ticks.
            burst = max(32_768, int(mbit * 1e6 / 8 / 100))
            limit = ["rate", f"{int(mbit * 1e6)}bit", "burst", f"{burst}", "latency", "50ms"]
            call([*queue, "replace", "dev", device, "root", "tbf", *limit])

    def _switch(self, *commands: str) -> None:
        _batch(entering(self.keeper, "net"), *commands)


def _batch(prefix: list[str], *commands: str) -> None:
    call([*prefix, "ip", "-batch", "-"], text="\n".join(commands) + "\n")
