"""What a launch would fail of, from facts alone: refusals, what is missing on nodes, what differs between them."""

from __future__ import annotations

from typing import Any

import pytest

from sparkbuild.serving.launch.preflight import before_stop, consistency, problems, refusals
from sparkbuild.serving.ranks import ranks_of
from sparkbuild.workspace.shapes.schema import Docker
from tests.serving.lanes import FOREIGN, FOREIGN_TEXT, IMAGE, goal, launched, rank, spec

Fact = dict[str, Any]
NAME = "sparkbuild-demo"


def box(launch: str = "l1", **changes: Any) -> Fact:
    """A record of a container."""
    fixed = {"runtime": "docker", "container": "c0ffee" * 10, "pid": 0, "launch": launch, "protect": False}
    return {**fixed, "parts": goal().key.parts, **changes}


def alive(record: Fact | None = None, **changes: Any) -> Fact:
    return {"record": record or box(), "alive": True, "others": [], "stranger": "", **changes}


def idle(**changes: Any) -> Fact:
    return {"record": None, "alive": False, "others": [], "stranger": "", **changes}


PROTECTED = (
    "lane demo is protected and is not replaced: container c0ffeec0ffee, launched from another state of the recipe;"
    " doit stop:demo, then doit serve:demo"
)

# facts of dgx1 and dgx2, does the recipe protect, the refusals
REFUSALS: dict[str, tuple[Fact, Fact, bool, list[str]]] = {
    "idle": (idle(), idle(), False, []),
    "idle, and protected when it runs": (idle(), idle(), True, []),
    "running": (alive(), alive(), False, []),
    "running, protected since": (alive(), alive(), True, [PROTECTED]),
    "protected": (alive(box(protect=True)), alive(box(protect=True)), False, [PROTECTED]),
    "protected, and only a worker left": (
        {**idle(), "record": box(protect=True)},
        alive(box(protect=True)),
        False,
        [PROTECTED],
    ),
    "the head was never here, a worker is": (idle(), alive(), True, [PROTECTED]),
    "the record of a dead one says protected": ({**idle(), "record": box(protect=True)}, alive(), False, []),
    "another lane": (idle(), idle(others=["glm"]), False, ["dgx2 serves lane glm: doit stop:glm"]),
    "a lane of another store": (idle(), idle(foreign=[FOREIGN]), False, [FOREIGN_TEXT]),
    "several": (
        idle(others=["glm", "qwen"]),
        idle(others=["glm"]),
        False,
        [
            f"{node} serves lane {lane}: doit stop:{lane}"
            for node, lane in (("dgx1", "glm"), ("dgx1", "qwen"), ("dgx2", "glm"))
        ],
    ),
    "a stranger": (
        idle(),
        idle(stranger="0123456789ab of image x, exited"),
        False,
        [
            (
                f"a container on dgx2 that is not ours has the name {NAME}: 0123456789ab of image x, exited\n"
                f"  on dgx2: docker rename {NAME} {NAME}-old, or docker rm -f {NAME} when it is yours to end"
            )
        ],
    ),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_refusals(name: str) -> None:
    one, two, protect, expected = REFUSALS[name]
    wanted = goal(protect=protect)
    seen = ranks_of(wanted, {"ranks": {"dgx1": one, "dgx2": two}})
    assert refusals(wanted, seen, replaces=any(each.alive for each in seen)) == expected


def test_refusals_of_a_process() -> None:
    wanted = goal(("dgx1",), runtime="process")
    record = {"pid": 77, "protect": True, "parts": wanted.key.parts}
    seen = ranks_of(wanted, alive(record))
    assert "process 77" in refusals(wanted, seen, replaces=True)[0]
    assert refusals(wanted, seen, replaces=False) == []


def image(**changes: Any) -> Fact:
    return {"labels": {"sparkbuild.key": "k" * 64}, "layers": ["sha256:1", "sha256:2"], "arch": "arm64", **changes}


def engine(*containers: Fact, **changes: Any) -> Fact:
    return {
        "present": True,
        "problem": "",
        "arch": "arm64",
        "images": {IMAGE: image()},
        "containers": containers,
        **changes,
    }


def machine(**docker: Any) -> Fact:
    """A node's own fact."""
    return {"arch": "aarch64", "driver": "580.95", "docker": engine(**docker)}


def container(**changes: Any) -> Fact:
    return {"name": "x", "image": "y:1", "gpu": True, "ours": False, "state": "running", **changes}


FINE: Fact = {"missing": [], "devices_missing": [], "not_devices": [], "unknown": {}, "unreachable": []}

# facts of dgx2 itself, the answer to what the launch needs of it, what the recipe says, the problems
PROBLEMS: dict[str, tuple[Fact, Fact, dict[str, Any], list[str]]] = {
    "none": (machine(), FINE, {}, []),
    "silent": ({"unreachable": "no route"}, FINE, {}, ["dgx2 does not answer: no route"]),
    "silent since": (machine(), {"unreachable": "no route"}, {}, ["dgx2 does not answer: no route"]),
    "its look failed": (
        machine(),
        {"present": False, "problem": "OSError: x"},
        {},
        ["dgx2 could not be looked at: OSError: x"],
    ),
    "a mount": (machine(), {**FINE, "missing": ["/srv/a b"]}, {}, ["dgx2: no /srv/a b, which a mount names"]),
    "a device": (machine(), {**FINE, "devices_missing": ["/dev/x"]}, {}, ["dgx2: no device /dev/x"]),
    "a device that is none": (machine(), {**FINE, "not_devices": ["/etc"]}, {}, ["dgx2: /etc is no device"]),
    "a path that hangs": (
        machine(),
        {**FINE, "unknown": {"/nas/x": "no answer within 5 s"}},
        {},
        ["dgx2: /nas/x: no answer within 5 s"],
    ),
    "a peer": (
        machine(),
        {**FINE, "unreachable": [{"peer": "10.0.0.1", "problem": "no answer within 2 s"}]},
        {},
        ["dgx2 does not reach 10.0.0.1 on the fabric: no answer within 2 s"],
    ),
    "memory": (
        machine(),
        {**FINE, "memory_available": 60_000_000_000},
        {"min_memory": 100_000_000_000},
        ["dgx2: 60.0 GB of memory available, 100.0 GB wanted (min_memory)"],
    ),
    "memory enough": (machine(), {**FINE, "memory_available": 7}, {"min_memory": 7}, []),
    "memory not known": (machine(), FINE, {"min_memory": 7}, []),
    "docker does not answer": (
        machine(problem="user ann may not use docker"),
        FINE,
        {},
        ["docker on dgx2: user ann may not use docker"],
    ),
    "docker is not there": ({"docker": None}, FINE, {}, ["docker on dgx2: not there"]),
    "no docker, not needed": ({"docker": None}, FINE, {"runtime": "process"}, []),
    "another architecture": (
        machine(arch="amd64"),
        FINE,
        {},
        [f"dgx2 is amd64, image {IMAGE} is for arm64"],
    ),
    "an architecture by its other name": (machine(arch="aarch64"), FINE, {}, []),
    "the image comes later": (machine(images={IMAGE: None}), FINE, {}, []),
    "a GPU in use": (
        machine(containers=[container()]),
        FINE,
        {"docker": Docker(gpus=True)},
        ["dgx2: container x (y:1) uses the GPU and is not ours"],
    ),
    "a GPU in use by one that is paused": (
        machine(containers=[container(state="paused")]),
        FINE,
        {"docker": Docker(gpus=True)},
        ["dgx2: container x (y:1) uses the GPU and is not ours"],
    ),
    "GPUs in no use": (
        machine(containers=[container(gpu=False), container(ours=True), container(state="exited")]),
        FINE,
        {"docker": Docker(gpus=True)},
        [],
    ),
    "a GPU in use that is not wanted": (machine(containers=[container()]), FINE, {}, []),
    "several": (
        machine(problem="dead"),
        {**FINE, "missing": ["/a", "/b"], "devices_missing": ["/dev/x"]},
        {},
        [
            "dgx2: no /a, which a mount names",
            "dgx2: no /b, which a mount names",
            "dgx2: no device /dev/x",
            "docker on dgx2: dead",
        ],
    ),
}


@pytest.mark.parametrize("name", PROBLEMS)
def test_problems(name: str) -> None:
    node, check, changes, expected = PROBLEMS[name]
    wanted = goal(**changes)
    launches = tuple((rank(number), launched(number, **changes)) for number in (0, 1))
    nodes, checks = {"dgx1": machine(), "dgx2": node}, {"dgx1": FINE, "dgx2": check}
    assert problems(wanted, launches, nodes, checks) == expected


def test_two_nodes_that_are_one_machine() -> None:
    nodes = {name: {**machine(), "host": "dgx1", "boot_id": "b1"} for name in ("dgx1", "dgx2")}
    launches = tuple((rank(number), launched(number)) for number in (0, 1))
    found = problems(goal(), launches, nodes, {"dgx1": FINE, "dgx2": FINE})
    assert found == ["dgx2 is the same machine as dgx1: one rank each is wanted"]


def test_what_a_lane_holds_is_free_once_it_is_replaced_and_no_more() -> None:
    wanted = goal(("dgx1",), min_memory=100_000_000_000)
    launches = ((rank(), launched(min_memory=100_000_000_000)),)

    def found(own: int) -> list[str]:
        checks = {"dgx1": {**FINE, "memory_available": 40_000_000_000, "memory_own": own}}
        return problems(wanted, launches, {"dgx1": machine()}, checks)

    assert found(60_000_000_000) == []
    (text,) = found(20_000_000_000)
    held = "20.0 GB held by the lane that it replaces"
    assert text == f"dgx1: 40.0 GB of memory available and {held}, 100.0 GB wanted (min_memory)"
    (text,) = found(0)
    assert "held by" not in text


DOUBLED = "the entrypoint of image sparkbuild/demo-ranks:0123456789ab would double the command"
# what docker says of the image on the only node, of itself, what the recipe says, the beginning of what is refused
HOPELESS: dict[str, tuple[Fact, Fact, dict[str, Any], str]] = {
    "an entrypoint that is the command": (image(entrypoint=["engine", "serve"]), {}, {}, DOUBLED),
    "an entrypoint that begins it": (image(entrypoint=["/usr/bin/engine"]), {}, {}, DOUBLED),
    "an entrypoint that is a wrapper": (image(entrypoint=["/opt/start.sh"]), {}, {}, ""),
    "an entrypoint that is taken away": (image(entrypoint=["engine"]), {}, {"docker": Docker(entrypoint=())}, ""),
    "no GPU to be had": (image(), {"gives_gpus": False}, {"docker": Docker(gpus=True)}, "docker on dgx1 gives no"),
    "GPUs to be had": (image(), {"gives_gpus": True}, {"docker": Docker(gpus=True)}, ""),
    "GPUs not wanted": (image(), {"gives_gpus": False}, {}, ""),
    "secrets, and a user of the image": (
        image(user="1001"),
        {},
        {"secrets": ("KEY",)},
        "user 1001 of the image cannot",
    ),
    "secrets, and the user that is ours": (image(user="1000:1000"), {}, {"secrets": ("KEY",)}, ""),
    "secrets, and root": (image(user="0"), {}, {"secrets": ("KEY",)}, ""),
    "secrets, and a name of the image": (image(user="vllm"), {}, {"secrets": ("KEY",)}, ""),
    "secrets, and other users": (image(), {"remaps_users": True}, {"secrets": ("KEY",)}, "root of a container is"),
    "other users, and no secret": (image(user="1001"), {"remaps_users": True}, {}, ""),
}


@pytest.mark.parametrize("name", HOPELESS)
def test_what_docker_would_refuse_after_the_old_lane_was_stopped(name: str) -> None:
    of_docker, docker, changes, begins = HOPELESS[name]
    wanted = goal(("dgx1",), **changes)
    others = {name: value for name, value in changes.items() if name != "secrets"}
    launches = ((rank(), launched(0, {"KEY": "s3cr3t-value"} if "secrets" in changes else None, **others)),)
    node = {**machine(**{"images": {IMAGE: of_docker}, **docker}), "uid": 1000, "user": "ann"}
    found = problems(wanted, launches, {"dgx1": node}, {"dgx1": FINE})
    assert len(found) == bool(begins), found
    assert all(begins in text for text in found)
    if "gpus" not in str(changes):  # what comes with the image is looked at again right before the stop
        assert before_stop(wanted.spec, launches, {"dgx1": node}) == found


@pytest.mark.parametrize(
    ("env", "says"),
    [
        (
            {"NCCL_SOCKET_IFNAME": "enp9"},
            "no network interface is what NCCL_SOCKET_IFNAME says: 'enp9'",
        ),
        ({"NCCL_SOCKET_IFNAME": "et"}, ""),
        ({"NCCL_SOCKET_IFNAME": "=et"}, "NCCL_SOCKET_IFNAME"),
        ({"NCCL_SOCKET_IFNAME": "^docker0"}, ""),
        ({"GLOO_SOCKET_IFNAME": "et"}, "GLOO_SOCKET_IFNAME"),
        ({"GLOO_SOCKET_IFNAME": "wlan0,eth0"}, ""),
        ({"OMPI_MCA_btl_tcp_if_include": "10.0.0.0/24"}, ""),
        ({"NCCL_IB_HCA": "mlx5_1"}, "no RDMA device is what NCCL_IB_HCA says: 'mlx5_1'; it has roce0"),
        ({"NCCL_IB_HCA": "=roce0:1"}, ""),
        ({}, ""),
    ],
)
def test_interfaces_of_the_recipe_that_no_node_has(env: dict[str, str], says: str) -> None:
    node = {**machine(), "interfaces": [{"name": "lo"}, {"name": "eth0"}], "hcas": [{"name": "roce0"}]}
    launches = ((rank(), launched(env={"NCCL_SOCKET_IFNAME": "eth0", **env}, network="none")),)
    found = problems(goal(("dgx1",)), launches, {"dgx1": node}, {"dgx1": FINE})
    assert [says in text for text in found] == [True] * bool(says), found
    assert not problems(goal(("dgx1",)), launches, {"dgx1": machine()}, {"dgx1": FINE}), "not known there"


def with_image(found: Fact | None, **changes: Any) -> Fact:
    return {**machine(images={IMAGE: found}), **changes}


LONG = [f"sha256:{number:064x}" for number in range(3)]

# facts of dgx1, dgx2 and dgx3, what stands in what is said, in order
CONSISTENCY: dict[str, tuple[Fact, Fact, Fact, list[list[str]]]] = {
    "the same": (machine(), machine(), machine(), []),
    "drivers": (
        machine(),
        {**machine(), "driver": "570.1"},
        machine(),
        [["GPU drivers differ", "580.95 on dgx1, dgx3; 570.1 on dgx2"]],
    ),
    "a driver is missing": (machine(), {**machine(), "driver": None}, machine(), [["none on dgx2"]]),
    "image gone": (machine(), with_image(None), with_image(None), [[f"image {IMAGE} is not on dgx2, dgx3"]]),
    "image and driver": (
        machine(),
        with_image(None, driver=""),
        machine(),
        [["GPU drivers differ"], ["is not on dgx2"]],
    ),
    "keys": (
        machine(),
        machine(),
        with_image(image(labels={"sparkbuild.key": "m" * 64})),
        [["different keys", f"{'k' * 12} on dgx1, dgx2; {'m' * 12} on dgx3"]],
    ),
    "no labels": (machine(), with_image(image(labels=None)), machine(), [["different keys", "none on dgx2"]]),
    "layers": (
        with_image(image(layers=LONG)),
        with_image(image(layers=[LONG[0], *LONG])),
        with_image(image(layers=LONG)),
        [["different layers", "3 layers (", ") on dgx1, dgx3; 4 layers (", ") on dgx2"]],
    ),
    "as many layers, the last the same": (
        with_image(image(layers=LONG)),
        with_image(image(layers=[LONG[0], LONG[0], LONG[2]])),
        with_image(image(layers=LONG)),
        [["different layers", ") on dgx1, dgx3; 3 layers (", ") on dgx2"]],
    ),
    "no layers": (machine(), machine(), with_image(image(layers=[])), [["2 layers", "0 layers (", ") on dgx3"]]),
}


@pytest.mark.parametrize("name", CONSISTENCY)
def test_consistency(name: str) -> None:
    *facts, expected = CONSISTENCY[name]
    found = consistency(spec(), {f"dgx{number}": fact for number, fact in enumerate(facts, 1)})
    assert len(found) == len(expected)
    for text, pieces in zip(found, expected, strict=True):
        for piece in pieces:
            assert piece in text


def test_a_process_needs_the_same_driver_and_no_image() -> None:
    facts = {"dgx1": {"driver": "580.95"}, "dgx2": {"driver": "570.1"}}
    assert len(consistency(spec(runtime="process"), facts)) == 1
    assert consistency(spec(runtime="process"), {"dgx1": {}, "dgx2": {}}) == []
