"""Docker on the nodes of a rack: a daemon and a store each, images made here, containers that talk."""

from __future__ import annotations

import hashlib
import signal
import socket
from pathlib import Path

import pytest

from tests.rack.image import Image
from tests.rack.proc import wait_for
from tests.rack.rack import Rack

pytestmark = pytest.mark.usefixtures("possible")


def test_docker_on_two_nodes(rack: Rack, tiny: Image) -> None:
    first, second = rack.nodes
    served = ["--network", "host", "--name", "web", tiny.tag, "httpd", "-f", "-p", "8080", "-h", "/"]
    first.docker("run", "--detach", *served)
    try:
        assert second.docker("ps", "--all", "--quiet").out == "", "each has a docker of its own"
        fetch = ["sh", "-c", f"printf 'GET /hello.txt HTTP/1.0\\r\\n\\r\\n' | nc {first.address} 8080"]
        ask = ["run", "--rm", "--network", "host", tiny.tag, *fetch]
        wait_for("it is served", lambda: second.docker(*ask, check=False).out.endswith("\nhello\n"), 10)
        limit = ["--memory", "32m", tiny.tag, "cat", "/sys/fs/cgroup/memory/memory.limit_in_bytes"]
        if Path("/sys/fs/cgroup/memory").exists():
            assert second.docker("run", "--rm", *limit).out == f"{32 << 20}\n"
        shown = first.docker("image", "inspect", "--format", "{{json .Config.Labels}} {{.Architecture}}", tiny.tag).out
        assert '{"made.by":"a test"}' in shown
    finally:
        first.docker("rm", "--force", "web")


def test_an_image_of_another_architecture(rack: Rack) -> None:
    docker = rack.nodes[0].docker
    docker.load(Image("other:1", architecture="riscv64"))
    assert docker("image", "inspect", "--format", "{{.Architecture}}", "other:1").out == "riscv64\n"
    docker("image", "rm", "other:1")


def test_the_same_image_has_the_same_bytes() -> None:
    one, two = (hashlib.sha256(Image("x:1", files={"/a/b": b"c"}).tar()).hexdigest() for _ in range(2))
    assert one == two


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_dockerd_stops_and_starts(rack: Rack, tiny: Image, number: signal.Signals) -> None:
    node = rack.nodes[1]
    assert node.docker.ready()
    node.dockerd_stop(number)
    assert not node.docker.ready()
    assert "Cannot connect" in node.docker("ps", check=False).err
    assert node.ssh(["true"]).code == 0
    node.dockerd_stop()
    node.dockerd_start()
    node.dockerd_start()
    assert tiny.tag in node.docker("images", "--format", "{{.Repository}}:{{.Tag}}").out


def test_docker_answers_on_its_socket_from_the_machine(rack: Rack) -> None:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(rack.nodes[0].docker.socket)
