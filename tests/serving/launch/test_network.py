"""The variables that tell NCCL, GLOO, UCX and MPI which network to use, and where each comes from."""

from __future__ import annotations

import pytest

from sparkbuild.serving.launch.fabric import Fabric, alone
from sparkbuild.serving.launch.network import derive

PLAIN = Fabric("dgx1", "10.0.0.1", "eth0", "10.0.0.0/24", "the only network that dgx1, dgx2 share")
RDMA = Fabric("dgx2", "10.0.1.2", "fast", "10.0.1.0/24", "fabric of cluster pair", ("rocep1s0f0", "roceP2p1s0f0"), 0)
INTERFACE = {
    "NCCL_SOCKET_IFNAME",
    "GLOO_SOCKET_IFNAME",
    "TP_SOCKET_IFNAME",
    "MN_IF_NAME",
    "OMPI_MCA_btl_tcp_if_include",
}


def test_one_node_needs_none() -> None:
    assert derive(alone("dgx1"), 1) == {}
    assert derive(RDMA, 1) == {}


def test_without_rdma() -> None:
    found = {name: one.value for name, one in derive(PLAIN, 2).items()}
    assert found == {**dict.fromkeys(INTERFACE, "eth0"), "UCX_NET_DEVICES": "eth0", "NCCL_IB_DISABLE": "1"}


def test_with_rdma() -> None:
    found = {name: one.value for name, one in derive(RDMA, 8).items()}
    assert found == {
        **dict.fromkeys(INTERFACE, "fast"),
        "UCX_NET_DEVICES": "rocep1s0f0:1",
        "NCCL_NET": "IB",
        "NCCL_IB_DISABLE": "0",
        "NCCL_IB_HCA": "rocep1s0f0,roceP2p1s0f0",
        "NCCL_IB_GID_INDEX": "0",
    }


@pytest.mark.parametrize("fabric", [PLAIN, RDMA])
def test_each_says_where_it_comes_from(fabric: Fabric) -> None:
    for name, one in derive(fabric, 2).items():
        assert fabric.node in one.origin or fabric.address in one.origin, name
    place = f"the interface of {fabric.address} on {fabric.node}, {fabric.origin}"
    assert derive(fabric, 2)["GLOO_SOCKET_IFNAME"].origin == place
