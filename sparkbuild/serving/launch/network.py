"""Variables that tell NCCL, GLOO, UCX and MPI which network to use, derived from the facts of a node. Pure.

Names and their use: NVIDIA's DGX Spark playbooks and the launch scripts of public recipes. Without them, each library
guesses by itself, and ranks that guess differently hang. One that is
given a name which is not there ends the load after minutes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from sparkbuild.agent.wire.nodes import Hca, Interface
from sparkbuild.serving.launch.fabric import Fabric


class Derived(msgspec.Struct, frozen=True):
    """A value and where it comes from, in words for `doit plan -v`."""

    value: str
    origin: str


# how each reads its value: a list of beginnings of names (NCCL: `^` excludes, `=` is exact), or of whole names
_BEGINNINGS = ("NCCL_SOCKET_IFNAME",)
_NAMES = ("GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME", "MN_IF_NAME", "OMPI_MCA_btl_tcp_if_include")
_HCAS = ("NCCL_IB_HCA",)


def derive(fabric: Fabric, world_size: int) -> dict[str, Derived]:
    """The variables for one rank; none on a cluster of one node, where nothing leaves it."""
    if world_size == 1:
        return {}
    node, place = fabric.node, f"{fabric.address} on {fabric.node}, {fabric.origin}"
    variables = {name: Derived(fabric.interface, f"the interface of {place}") for name in (*_BEGINNINGS, *_NAMES)}
    if not fabric.hcas:
        variables["UCX_NET_DEVICES"] = variables["NCCL_SOCKET_IFNAME"]
        variables["NCCL_IB_DISABLE"] = Derived("1", f"no active RDMA device on {fabric.interface} of {node}")
        return variables
    hcas, first, index = ",".join(fabric.hcas), fabric.hcas[0], str(fabric.gid_index)
    return variables | {
        "UCX_NET_DEVICES": Derived(f"{first}:1", f"the RDMA device of {place}"),
        "NCCL_NET": Derived("IB", f"active RDMA devices on {node}"),
        "NCCL_IB_DISABLE": Derived("0", f"active RDMA devices on {node}"),
        "NCCL_IB_HCA": Derived(hcas, f"the active RDMA devices of {node}, that of {fabric.address} first"),
        "NCCL_IB_GID_INDEX": Derived(index, f"the GID of {first} that is {fabric.address} and RoCE v2, at this moment"),
    }


def problems(env: Mapping[str, str], interfaces: Sequence[Interface], hcas: Sequence[Hca]) -> list[str]:
    """Which of the variables name nothing that the node has, in words. What the node does not know is not judged."""
    kinds = (
        ("network interface", [interface["name"] for interface in interfaces], (*_BEGINNINGS, *_NAMES)),
        ("RDMA device", [hca["name"] for hca in hcas], _HCAS),
    )
    reasons = []
    for kind, there, names in kinds:
        wrong = [name for name in names if there and not _fits(env.get(name, ""), there, exact=name in _NAMES)]
        reasons += [f"no {kind} is what {name} says: {env[name]!r}; it has {', '.join(there)}" for name in wrong]
    return reasons


def _fits(value: str, there: list[str], *, exact: bool) -> bool:
    """Whether one of the names in the value is there; a value that names none, or excludes, fits."""
    wanted = [word.strip() for word in value.removeprefix("=").split(",") if word.strip()]
    if not wanted or value.startswith("^"):
        return True
    exact = exact or value.startswith("=")
    for word in wanted:
        name = word.partition(":")[0]  # a port, behind a device
        if "/" in word or any(other == name or (not exact and other.startswith(name)) for other in there):
            return True  # a network, as MPI takes it, is no name
    return False
