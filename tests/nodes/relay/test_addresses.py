"""Which address of one node another may use, from what both say of their interfaces."""

from __future__ import annotations

from typing import Any

from sparkbuild.nodes.relay.addresses import ways


def node(**interfaces: Any) -> dict[str, Any]:
    rows = [
        {"name": name, "up": True, "speed_mbit": speed, "addresses": [address]}
        for name, (address, speed) in interfaces.items()
    ]
    return {"interfaces": rows, "hcas": []}


THERE = node(eth0=("10.0.0.11/24", 1000), rail0=("10.0.1.11/24", 200000), docker0=("172.17.0.1/16", 0))
HERE = node(eth0=("10.0.0.12/24", 1000), rail0=("10.0.1.12/24", 200000), docker0=("172.17.0.1/16", 0))


def test_the_fast_one_first() -> None:
    assert ways(THERE, HERE) == [("10.0.1.11", 200000), ("10.0.0.11", 1000)]


def test_the_fabric_first() -> None:
    assert ways(THERE, HERE, ["10.0.0.0/24"])[0] == ("10.0.0.11", 1000)


def test_rdma_before_speed() -> None:
    fact = {**THERE, "hcas": [{"name": "mlx5_0", "active": True, "interface": "eth0"}]}
    assert ways(fact, HERE)[0] == ("10.0.0.11", 1000)


def test_only_networks_that_both_are_on() -> None:
    assert ways(THERE, node(eth0=("10.0.0.12/24", 1000))) == [("10.0.0.11", 1000)]
    assert ways(THERE, node(eth0=("192.0.2.1/24", 1000))) == []
    assert ways(THERE, node(docker0=("172.17.0.1/16", 0))) == [], "that network is another one on each node"
    down = {"interfaces": [{**row, "up": False} for row in THERE["interfaces"]]}
    assert ways(down, HERE) == []
