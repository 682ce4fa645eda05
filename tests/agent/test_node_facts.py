"""What is told of a node: hardware that is not here by folders of files, the rest by this machine, and bad input."""

from __future__ import annotations

import os
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from sparkbuild.agent import node
from sparkbuild.agent.docker.fact import docker_fact, gives_gpus, no_docker, uses_gpu
from sparkbuild.agent.lane.records import write
from sparkbuild.agent.machine import gpus, hcas, mounts as disks, netlink, network, system
from sparkbuild.agent.machine.procs import boot_id, start_ticks
from sparkbuild.agent.machine.together import together
from tests.agent.driver import call


def files(base: Path, tree: Mapping[str, str]) -> str:
    for name, text in tree.items():
        path = base / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return str(base)


def ask(store: Path, **query: Any) -> dict[str, Any]:
    answer = call("facts", {"store": str(store), "queries": [{"scheme": "node", **query}]})
    assert answer.code == 0, answer.events
    fact: dict[str, Any] = answer.last["facts"][0]
    return fact


def test_this_machine(tmp_path: Path) -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        port = server.getsockname()[1]
        before = time.time()
        fact = ask(tmp_path, paths=["/", "/dev/null"], ports=[port, 1], docker=str(tmp_path / "docker.sock"))
        assert before <= fact["time"] <= time.time()
    assert fact["ports"][str(port)]["pid"] == os.getpid()
    assert fact["ports"]["1"] is None
    assert fact["problems"] == {}
    assert (fact["host"], fact["kernel"]) == (os.uname().nodename, os.uname().release)
    assert fact["python"] == ".".join(map(str, sys.version_info[:3]))
    assert fact["boot_id"] == boot_id()
    assert 0 < fact["memory"]["available"] <= fact["memory"]["total"]
    assert fact["cpus"] == os.cpu_count()
    assert fact["user"] == subprocess.check_output(["id", "-un"], text=True).strip()
    assert sorted(fact["groups"]) == sorted(subprocess.check_output(["id", "-Gn"], text=True).split())
    assert fact["docker"] == {
        **no_docker(f"docker is not installed or not running: no {tmp_path}/docker.sock"),
        "images": {},
    }
    shown = subprocess.check_output(["ip", "-4", "-o", "address"], text=True).splitlines()
    wanted = sorted(line.split()[3] for line in shown)
    assert sorted(one for card in fact["interfaces"] for one in card["addresses"]) == wanted
    loopback = next(card for card in fact["interfaces"] if card["name"] == "lo")
    assert loopback["addresses"][0] == "127.0.0.1/8"


def test_a_docker_that_hangs_is_a_problem_of_docker_alone(tmp_path: Path) -> None:
    path = tmp_path / "docker.sock"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen()
        began = time.monotonic()
        fact = docker_fact(str(path), ["a:1"])
        assert time.monotonic() - began < 8
    assert fact == {**no_docker(f"dockerd does not answer on {path}: nothing within 5 s"), "images": {"a:1": None}}


def test_an_engine_that_answers_nonsense(tmp_path: Path) -> None:
    """Any JSON of the wrong shape is a problem, not a crash."""
    path = tmp_path / "docker.sock"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen()

        def serve() -> None:
            while True:
                try:
                    with server.accept()[0] as connection:
                        connection.recv(4096)
                        connection.sendall(b'HTTP/1.1 200 OK\r\nContent-Length: 12\r\n\r\n[{"a":null}]')
                except OSError:
                    return

        threading.Thread(target=serve, daemon=True).start()
        fact = docker_fact(str(path), ["a:1"])
        server.shutdown(socket.SHUT_RDWR)
    assert not fact["present"]
    assert fact["images"] == {"a:1": None}
    assert fact["containers"] == []


LANE = {
    "format": "sparkbuild-lane/v1", "recipe": "demo", "key": "k", "parts": {}, "port": 8431, "model_id": "m",
    "protect": True, "log": "lanes/demo/log", "launched_at": 5.0, "served_at": 7.0, "ready": {"seconds": 1},
    "stopped_at": None, "pid": 0, "start_ticks": 0, "boot_id": "", "container": "",
}  # fmt: skip


def test_lanes(tmp_path: Path) -> None:
    for name in ("demo", "dead", "boxed"):
        (tmp_path / "lanes" / name).mkdir(parents=True)
    ours = {"pid": os.getpid(), "start_ticks": start_ticks(os.getpid()), "boot_id": boot_id()}
    write(str(tmp_path), {**LANE, **ours})  # type: ignore[typeddict-item]
    write(str(tmp_path), {**LANE, "recipe": "dead", "pid": os.getpid(), "start_ticks": 1, "boot_id": boot_id()})  # type: ignore[typeddict-item]
    write(str(tmp_path), {**LANE, "recipe": "boxed", "runtime": "docker", "container": "c" * 64, "rank": 1})  # type: ignore[typeddict-item]
    (tmp_path / "lanes" / "torn").mkdir()
    (tmp_path / "lanes" / "torn" / "lane.json").write_text('{"format": "sparkb')
    silent = {row["recipe"]: row for row in node.lane_rows(str(tmp_path), no_docker("gone"))}
    assert {name: row["alive"] for name, row in silent.items()} == {"demo": True, "dead": False, "boxed": None}
    row = {"protect": True, "port": 8431, "model_id": "m", "served_at": 7.0, "ready": True, "runtime": "process"}
    assert silent["demo"].items() >= row.items()
    assert silent["boxed"]["rank"] == 1
    box: Any = {"id": "c" * 64, "state": "running"}
    assert [row["alive"] for row in node.lane_rows(str(tmp_path), {**no_docker(""), "containers": [box]})] == [
        True, False, True,
    ]  # fmt: skip
    box["state"] = "exited"
    rows = node.lane_rows(str(tmp_path), {**no_docker(""), "containers": [box]})
    assert next(row["alive"] for row in rows if row["recipe"] == "boxed") is False


# -- disks ---------------------------------------------------------------------------------------------------------


def test_paths(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "link").symlink_to("file")
    (tmp_path / "dangling").symlink_to("none")
    (tmp_path / "a b").mkdir()
    os.mkfifo(tmp_path / "pipe")
    names = ("file", "link", "dangling", "a b", "pipe", "none/below", "file/below")
    found = disks.disks([str(tmp_path / name) for name in names] + ["/dev/null"])
    kinds = [one["kind"] for one in found.values()]
    assert kinds == ["file", "file", "missing", "dir", "other", "missing", "missing", "device"]
    assert [one["exists"] for one in found.values()] == [kind != "missing" for kind in kinds]
    room = os.statvfs(tmp_path)
    for one in list(found.values())[:-1]:
        assert one["total"] == room.f_blocks * room.f_frsize
        assert one["free"] > 0
        assert os.path.ismount(one["mount"])
        assert one["file_system"]
        assert not one["read_only"]


def test_a_path_that_hangs_or_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    looked = disks.look

    def look(path: str, mounts: Any) -> Any:
        if path == "/nas":
            time.sleep(2)
        if path == "/closed":
            raise PermissionError(13, "Permission denied")
        return looked(path, mounts)

    monkeypatch.setattr(disks, "PATIENCE", 0.2)
    monkeypatch.setattr(disks, "look", look)
    found = disks.disks(["/nas", "/closed", str(tmp_path)])
    assert found["/nas"]["problem"] == "no answer within 0.2 s"
    assert found["/closed"]["problem"] == "Permission denied"
    assert found[str(tmp_path)]["problem"] == ""


MOUNTS = """\
22 27 0:21 / / rw,relatime - ext4 /dev/root rw
30 22 0:40 / /srv ro,relatime shared:1 master:2 - xfs /dev/sdb ro
31 30 0:41 / /srv/a\\040b rw - nfs4 10.0.0.9:/models rw,vers=4.2
32 22 0:42 / /srv rw - tmpfs tmpfs rw
33 22 0:43 / /cut rw
nonsense
34 22 0:44 / /half rw - """


@pytest.mark.parametrize(
    ("path", "mount"),
    [
        ("/srv/a b/c", ("/srv/a b", "nfs4")),
        ("/srv/models", ("/srv", "tmpfs")),
        ("/srvother", ("/", "ext4")),
        ("/cut/x", ("/", "ext4")),
        ("/half", ("/", "ext4")),
        ("/", ("/", "ext4")),
    ],
)
def test_mounts(path: str, mount: tuple[str, str]) -> None:
    assert disks.mount_of(path, disks.parse(MOUNTS)) == mount
    assert disks.mount_of(path, []) == ("", "")


# -- system --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("", (0, 0)),
        ("MemTotal:       100 kB\nMemAvailable:    50 kB\nSwapTotal: 1 kB\n", (102400, 51200)),
        ("MemTotal:       100 kB\nMemAvail", (102400, 0)),
        ("MemTotal:\nMemAvailable: x kB\nSwapTotal", (0, 0)),
        ("\0\0\0", (0, 0)),
    ],
)
def test_memory(text: str, wanted: tuple[int, int]) -> None:
    assert tuple(system.memory(text).values()) == wanted


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ('NAME="Ubuntu"\nVERSION_ID="24.04"\n', ("Ubuntu", "24.04")),
        ("NAME=Arch\n# x\n\nVERSION", ("Arch", "")),
        ("", ("", "")),
    ],
)
def test_release(text: str, wanted: tuple[str, str]) -> None:
    assert system.release(text) == wanted


# -- network -------------------------------------------------------------------------------------------------------


def message(index: int, attributes: bytes, *, kind: int = 20, prefix: int = 24) -> bytes:
    body = struct.pack("=BBBBI", 2, prefix, 0, 0, index) + attributes
    return struct.pack("=IHHII", 16 + len(body), kind, 0, 1, 0) + body


def attribute(kind: int, value: bytes) -> bytes:
    return struct.pack("=HH", 4 + len(value), kind) + value + bytes(-len(value) % 4)


def test_addresses_of_netlink() -> None:
    peer, ours = attribute(1, bytes([10, 0, 0, 9])), attribute(2, bytes([10, 0, 0, 1]))
    label = attribute(3, b"eth0:1\0")
    data = message(2, peer + ours + label) + message(2, attribute(1, bytes([10, 0, 1, 1])), prefix=8)
    answers = netlink.messages(data + message(3, label) + message(0, b"", kind=3))
    assert network.read(answers) == {2: ["10.0.0.1/24", "10.0.1.1/8"]}
    for cut in (data[:-4], struct.pack("=IHHII", 4, 20, 0, 1, 0)):
        with pytest.raises(ValueError, match="is cut"):
            network.read(netlink.messages(cut))
    with pytest.raises(OSError, match="does not list"):
        network.read(netlink.messages(message(0, b"", kind=2)))


# -- HCAs ----------------------------------------------------------------------------------------------------------

ZERO = "0000:0000:0000:0000:0000:0000:0000:0000"


def test_hcas(tmp_path: Path) -> None:
    port = "rocep1s0f0/ports/1"
    folder = files(tmp_path, {
        f"{port}/state": "4: ACTIVE\n",
        f"{port}/gids/0": "fe80:0000:0000:0000:4ebb:47ff:fe00:0001\n",
        f"{port}/gids/1": "0000:0000:0000:0000:0000:ffff:0a00:0001\n",
        f"{port}/gids/10": "0000:0000:0000:0000:0000:ffff:0a00:0001\n",
        f"{port}/gids/2": f"{ZERO}\n",
        f"{port}/gids/3": "fe80:0000:0000:0000:4ebb:47ff:fe00:0003\n",
        f"{port}/gid_attrs/types/0": "IB/RoCE v1\n",
        f"{port}/gid_attrs/types/1": "IB/RoCE v1\n",
        f"{port}/gid_attrs/types/10": "RoCE v2\n",
        f"{port}/gid_attrs/types/2": "RoCE v2\n",
        f"{port}/gid_attrs/types/3/as-unreadable-as-EINVAL": "",
        f"{port}/gid_attrs/ndevs/0": "enp1s0f0np0\n",
        "roceP2p1s0f0/ports/1/state": "1: DOWN\n",
        "roceP2p1s0f0/ports/2/state": "",
        "roceP2p1s0f0/device/net/enP2p1s0f0np0/dev_port": "0\n",
        "roceP2p1s0f0/device/net/enP2p1s0f1np1/dev_port": "1\n",
        "empty/node_type": "",
        "torn/ports/x/state": "",
    })  # fmt: skip
    found = hcas.hcas(folder)
    assert [(one["name"], one["port"], one["active"], one["interface"]) for one in found] == [
        ("roceP2p1s0f0", 1, False, "enP2p1s0f0np0"),
        ("roceP2p1s0f0", 2, False, "enP2p1s0f1np1"),
        ("rocep1s0f0", 1, True, "enp1s0f0np0"),
    ]
    gids = [(gid["index"], gid["type"], gid["ipv4"]) for gid in found[2]["gids"]]
    assert gids == [(0, "IB/RoCE v1", ""), (1, "IB/RoCE v1", "10.0.0.1"), (10, "RoCE v2", "10.0.0.1")]
    assert hcas.hcas(str(tmp_path / "none")) == []


@pytest.mark.parametrize("gid", ["", "0000:0000:0000:0000:0000:ffff:0a00", "0000:0000:0000:0000:0000:ffff:zzzz:0001"])
def test_gids_that_hold_no_address(gid: str) -> None:
    assert hcas.ipv4(gid) == ""


# -- GPUs ----------------------------------------------------------------------------------------------------------

NVRM = "NVRM version: NVIDIA UNIX Open Kernel Module for aarch64  580.95.05  Release Build  (x)\nGCC version: 13\n"


def test_gpus(tmp_path: Path) -> None:
    folder = files(tmp_path, {
        "version": NVRM,
        "gpus/000f:01:00.0/information": "Model: \t\t NVIDIA GB10\nIRQ: \t 9\nGPU UUID: \t GPU-12ab\n",
        "gpus/0010:01:00.0/information": "",
    })  # fmt: skip
    cards, driver = gpus.gpus(folder)
    assert driver == "580.95.05"
    assert cards == [
        {"index": 0, "name": "NVIDIA GB10", "uuid": "GPU-12ab", "driver": "580.95.05"},
        {"index": 1, "name": "", "uuid": "", "driver": "580.95.05"},
    ]
    (tmp_path / "version").write_text("")
    assert gpus.gpus(folder)[1] == ""
    empty = tmp_path / "empty"
    empty.mkdir()
    assert gpus.gpus(str(empty)) == ([], "")


@pytest.mark.parametrize(
    ("script", "wanted"),
    [
        ("echo '0, NVIDIA GB10, GPU-1, 580.95.05'; echo nonsense", 1),
        ("exit 9", 0),
        ("sleep 30", 0),
        ("echo 'No devices were found'", 0),
    ],
)
def test_nvidia_smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, wanted: int) -> None:
    path = tmp_path / "nvidia-smi"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr(gpus, "PATIENCE", 0.08 if "sleep" in script else 10)
    began = time.monotonic()
    cards, driver = gpus.gpus(str(tmp_path / "none"))
    assert time.monotonic() - began < (20 if "sleep" in script else 10)
    assert (len(cards), driver) == (wanted, "580.95.05" if wanted else "")


def test_no_nvidia_smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert gpus.gpus(str(tmp_path / "none")) == ([], "")


@pytest.mark.parametrize(
    ("inspected", "gpu"),
    [
        ({}, False),
        ({"HostConfig": None, "Config": None}, False),
        ({"HostConfig": {"DeviceRequests": [{"Driver": "", "Capabilities": [["gpu"]]}]}}, True),
        ({"HostConfig": {"DeviceRequests": [{"Driver": "cdi", "DeviceIDs": ["nvidia.com/gpu=all"]}]}}, True),
        ({"HostConfig": {"DeviceRequests": [{"Driver": "cdi", "DeviceIDs": ["vendor.com/nic=1"]}]}}, False),
        ({"HostConfig": {"Devices": [{"PathOnHost": "/dev/nvidia0"}]}}, True),
        ({"HostConfig": {"Devices": [{"PathOnHost": "/dev/infiniband"}]}}, False),
        ({"HostConfig": {"Runtime": "nvidia"}, "Config": {"Env": ["NVIDIA_VISIBLE_DEVICES=all"]}}, True),
        ({"HostConfig": {"Runtime": "nvidia"}, "Config": {"Env": ["NVIDIA_VISIBLE_DEVICES=void", "A"]}}, False),
        ({"HostConfig": {"Runtime": "nvidia"}, "Config": {"Env": None}}, False),
        ({"HostConfig": {"Runtime": "runc"}, "Config": {"Env": ["NVIDIA_VISIBLE_DEVICES=all"]}}, False),
    ],
)
def test_containers_with_a_gpu(inspected: dict[str, Any], gpu: bool) -> None:
    assert uses_gpu(inspected) is gpu


# -- together ------------------------------------------------------------------------------------------------------


def test_looks_at_the_same_time() -> None:
    def fail() -> Any:
        raise ValueError("bad")

    began = time.monotonic()
    looks: dict[str, Any] = {"a": lambda: 0, "slow": lambda: time.sleep(30), "bad": fail, "none": lambda: None}
    found = together(looks, 0.2)
    assert time.monotonic() - began < 20
    assert list(found) == ["a", "slow", "bad", "none"]
    assert (found["a"], found["none"]) == (0, None)
    assert isinstance(found["slow"], TimeoutError)
    assert isinstance(found["bad"], ValueError)


def test_whether_docker_can_hand_over_gpus(tmp_path: Path) -> None:
    programs, cdi = tmp_path / "bin", tmp_path / "cdi"
    assert not gives_gpus({"Runtimes": {"runc": {}}, "CDISpecDirs": [str(cdi)]}, (str(programs),))
    assert gives_gpus({"Runtimes": {"runc": {}, "nvidia": {}}}, ())
    cdi.mkdir()
    (cdi / "nvidia.yaml").touch()
    assert gives_gpus({"CDISpecDirs": [str(cdi)]}, ())
    programs.mkdir()
    (programs / "nvidia-container-runtime-hook").touch()
    assert gives_gpus({}, (str(programs),))
