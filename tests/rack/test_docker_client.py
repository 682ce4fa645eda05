"""docker-py over our connections to real engines: what a lane needs of it, and why an engine cannot be used."""

from __future__ import annotations

import io
import os
import signal
import tarfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import docker
import pytest

from sparkbuild.core.errors import NodeError
from sparkbuild.nodes.cluster import Nodes
from sparkbuild.nodes.ssh import link
from tests.rack.image import Image
from tests.rack.node import Node
from tests.rack.rack import Rack
from tests.rack.reach import STORE, agents, place, reached, wait_for_agents, workspace

pytestmark = pytest.mark.usefixtures("possible", "home")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An operator whose own docker is set to go elsewhere."""
    (tmp_path / "home/.docker").mkdir(parents=True)
    (tmp_path / "home/.docker/config.json").write_text("no json")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("DOCKER_HOST", "tcp://203.0.113.1:2375")
    monkeypatch.setenv("HTTP_PROXY", "http://203.0.113.1:3128")
    monkeypatch.setenv("http_proxy", "http://203.0.113.1:3128")
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)


@pytest.fixture(scope="module")
def farm(possible: None) -> Iterator[Rack]:  # noqa: ARG001 - a fixture for what it does
    with Rack.up(2) as up:
        yield up


@pytest.fixture
def node(farm: Rack) -> Node:
    return farm.nodes[0]


@pytest.fixture
def nodes(tmp_path: Path, farm: Rack) -> Iterator[Nodes]:
    root = workspace(tmp_path / "ws", farm)
    first, second = farm.nodes
    with reached(root, {"dgx1": place(first), "dgx2": place(second, jump="dgx1")}) as made:
        yield made


@pytest.fixture
def tiny(farm: Rack) -> Image:
    image = Image("tiny:1", files={"/hello.txt": b"hello\n"}, labels={"sparkbuild.key": "k"})
    for node in farm.nodes:
        if not node.docker("image", "inspect", image.tag, check=False).out.startswith("[{"):
            node.docker.load(image)
    return image


def close(logs: Any) -> None:
    """docker-py closes the socket of a stream, and leaves what reads from it to the garbage collector."""
    logs.close()
    logs._response.close()


@pytest.mark.parametrize("name", ["dgx1", "dgx2"])
def test_the_life_of_a_container(farm: Rack, nodes: Nodes, tiny: Image, name: str) -> None:
    client = nodes.docker(name)
    assert nodes.docker(name) is client
    script = "echo out; echo err >&2; cat /hello.txt; exec sleep 60"
    env = {"AWKWARD": "a 'b' \"c\" $HOME\nline"}
    made = client.containers.create(
        tiny.tag, ["sh", "-c", script], name="lane", environment=env, network_mode="host", init=True, labels={"x": "y"}
    )
    try:
        made.start()
        logs = made.logs(stream=True, follow=True)
        lines = [line for _, line in zip(range(3), logs, strict=False)]
        close(logs)
        assert sorted(b"".join(lines).split()) == [b"err", b"hello", b"out"]
        assert client.containers.get("lane").status == "running"
        made.reload()
        assert f"AWKWARD={env['AWKWARD']}" in made.attrs["Config"]["Env"]
        made.kill(signal.SIGKILL)
        assert made.wait()["StatusCode"] == 137
    finally:
        made.remove(force=True)
    with pytest.raises(docker.errors.NotFound):
        client.containers.get("lane")
    for _ in range(20):
        client.ping()
    node = farm.node(name)
    assert len(agents(node, "dial")) <= 2, "what is left are the connections that are kept for the next request"


def test_an_image_of_200_mb(node: Node, nodes: Nodes) -> None:
    """Uploaded as a stream of pieces, as a relay would; the layers arrive as they are."""
    image = Image("big:1", files={"/big.bin": os.urandom(1 << 20) * 200})
    data = image.tar()

    def pieces() -> Iterator[bytes]:
        for at in range(0, len(data), 1 << 20):
            yield data[at : at + (1 << 20)]

    client = nodes.docker("dgx1")
    loaded = client.images.load(pieces())
    assert [one.tags for one in loaded] == [["big:1"]]
    assert len(data) > 200 << 20
    client.images.remove("big:1")
    assert "big:1" not in node.docker("images").out


def test_a_file_into_a_container_and_out(nodes: Nodes, tiny: Image) -> None:
    made = nodes.docker("dgx1").containers.create(tiny.tag, ["true"])
    try:
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w") as tar:
            entry = tarfile.TarInfo("secret")
            entry.size = 5
            tar.addfile(entry, io.BytesIO(b"s3cre"))
        assert made.put_archive("/", packed.getvalue())
        stream, _ = made.get_archive("/secret")
        assert b"s3cre" in b"".join(stream)
    finally:
        made.remove()


def test_many_threads_share_one_client(nodes: Nodes) -> None:
    client = nodes.docker("dgx1")
    found: list[bool] = []
    threads = [threading.Thread(target=lambda: found.append(client.ping())) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [True] * 12


def test_connections_end_with_their_client(node: Node, nodes: Nodes) -> None:
    nodes.docker("dgx1").ping()
    assert agents(node, "dial")
    nodes.close()
    wait_for_agents(node, 0, "dial", timeout=5)


def test_a_follower_that_leaves_leaves_nothing_behind(node: Node, nodes: Nodes, tiny: Image) -> None:
    client = nodes.docker("dgx1")
    made = client.containers.run(tiny.tag, ["sleep", "60"], detach=True)
    try:
        began = len(agents(node, "dial"))
        logs = made.logs(stream=True, follow=True)
        threading.Timer(0.5, logs.close).start()
        assert list(logs) == []
        close(logs)
        wait_for_agents(node, began, "dial", timeout=5)
        dial = nodes.agent("dgx1").dial()
        dial.sendall(f"GET /containers/{made.id}/logs?follow=1&stdout=1 HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        assert dial.recv(12) == b"HTTP/1.1 200"
        wait_for_agents(node, began + 1, "dial", timeout=5)
        dial.close()
        wait_for_agents(node, began, "dial", timeout=5)
    finally:
        made.remove(force=True)


def failure(tmp_path: Path, farm: Rack, **fields: str) -> NodeError:
    root = workspace(tmp_path / "ws", farm)
    with reached(root, {"dgx1": place(farm.nodes[0], **fields)}) as nodes, pytest.raises(NodeError) as raised:
        nodes.docker("dgx1")
    return raised.value


def test_a_user_without_the_group(tmp_path: Path, farm: Rack, node: Node) -> None:
    node.add_user("kim")
    error = failure(tmp_path, farm, user="kim", store="/home/kim/store")
    assert error.what == "kim may not use docker on dgx1"
    assert error.where == "node dgx1, /var/run/docker.sock"
    assert error.next.startswith("sudo usermod -aG docker kim, on dgx1")


def test_no_docker(tmp_path: Path, farm: Rack) -> None:
    error = failure(tmp_path, farm, docker="/run/no/docker.sock")
    assert error.what == "there is no docker on dgx1"
    assert error.where == "node dgx1, /run/no/docker.sock"


def test_dockerd_that_is_down(tmp_path: Path, farm: Rack, node: Node, nodes: Nodes) -> None:
    client = nodes.docker("dgx1")
    node.dockerd_stop(signal.SIGKILL)
    try:
        error = failure(tmp_path, farm)
        assert error.what == "docker does not run on dgx1"
        assert error.next == "sudo systemctl start docker, on dgx1"
        with pytest.raises(NodeError, match=r"docker does not run on dgx1|hung up"):
            client.ping()
        with pytest.raises(NodeError, match="docker does not run on dgx1"):
            client.ping()
    finally:
        node.dockerd_start()
    assert client.ping(), "the same client goes on when it is back"


def test_dockerd_that_dies_meanwhile(node: Node, nodes: Nodes, tiny: Image) -> None:
    client = nodes.docker("dgx1")
    made = client.containers.run(tiny.tag, ["sleep", "60"], detach=True)
    try:
        threading.Timer(0.5, node.dockerd_stop, args=(signal.SIGKILL,)).start()
        with pytest.raises(NodeError, match="docker on dgx1 hung up") as raised:
            made.wait()
        assert "(" not in raised.value.found, "what happened, and no exceptions in one another"
    finally:
        time.sleep(1)
        node.dockerd_start()
        made.remove(force=True)


def test_a_link_that_is_cut_meanwhile(farm: Rack, nodes: Nodes, tiny: Image, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link, "PULSE", 0.5)
    monkeypatch.setattr(link, "PATIENCE", 2.0)
    node = farm.nodes[1]
    made = nodes.docker("dgx2").containers.run(tiny.tag, ["sleep", "60"], detach=True)
    threading.Timer(0.5, node.cut).start()
    began = time.monotonic()
    try:
        with pytest.raises(NodeError, match="lost the connection to dgx2"):
            made.wait()
        assert time.monotonic() - began < 12
    finally:
        node.heal()
    made.remove(force=True)


def test_the_engine_of_this_machine(tmp_path: Path, farm: Rack, node: Node) -> None:
    from sparkbuild.nodes.cluster import Place  # noqa: PLC0415

    with reached(workspace(tmp_path / "ws", farm), {"local": Place("local", STORE, docker=node.docker.socket)}) as here:
        assert here.docker("local").ping()
    nowhere = {"local": Place("local", STORE, docker=str(tmp_path / "none"))}
    with reached(tmp_path, nowhere) as here, pytest.raises(NodeError, match="there is no docker on local"):
        here.docker("local")
