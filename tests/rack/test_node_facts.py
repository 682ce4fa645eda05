"""What is told of a node, by the agent on real nodes with a real docker, and the client of docker's engine."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import sparkbuild.agent
from sparkbuild.agent.docker.engine import Dockerd, DockerdError
from sparkbuild.agent.docker.fact import uses_gpu
from sparkbuild.agent.machine.network import addresses
from tests.agent.driver import finish
from tests.rack.image import ARCHITECTURE, Image
from tests.rack.node import Node
from tests.rack.proc import wait_for
from tests.rack.rack import Rack

pytestmark = pytest.mark.usefixtures("possible")

OURS = "sparkbuild.recipe=demo"
BOOT = "import sys; sys.path.insert(0, '/opt/agent'); from sparkbuild.agent.main import main; sys.exit(main())"


@pytest.fixture(scope="module")
def node(rack: Rack, tiny: Image) -> Iterator[Node]:  # noqa: ARG001 - the image is there
    first = rack.nodes[0]
    for one in rack.nodes:
        place = one.path("/opt/agent/sparkbuild")
        shutil.copytree(Path(sparkbuild.agent.__file__).parent, place / "agent")
        (place / "__init__.py").write_text("")
    yield first
    for one in rack.nodes:
        shutil.rmtree(one.path("/opt/agent"))


def ask(node: Node, *queries: dict[str, Any], python: str = "/usr/bin/python3", user: str = "root") -> list[Any]:
    """The facts, by the agent on the node."""
    switched = ["setpriv", f"--reuid={user}", f"--regid={user}", "--init-groups", "--"] if user != "root" else []
    pipe = subprocess.PIPE
    command = [*node.inside(), *switched, python, "-I", "-c", BOOT, "facts"]
    process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe)
    assert process.stdin is not None
    process.stdin.write(json.dumps({"store": "/srv/store", "queries": queries}).encode() + b"\n")
    process.stdin.flush()
    answer = finish(process)
    assert answer.code == 0, (answer.events, answer.stderr)
    assert answer.stderr == ""
    facts: list[Any] = answer.last["facts"]
    return facts


def look(node: Node, **query: Any) -> dict[str, Any]:
    fact: dict[str, Any] = ask(node, {"scheme": "node", **query})[0]
    return fact


def test_a_node(node: Node, tiny: Image) -> None:
    fact = look(node, paths=["/", "/srv/store", "/dev/null"], ports=[22], images=[tiny.tag, "none:1", "Bad Name"])
    assert fact["host"] == node.name
    assert fact["problems"] == {}
    assert fact["boot_id"] == node.run(["cat", "/proc/sys/kernel/random/boot_id"]).out.strip()
    card = next(one for one in fact["interfaces"] if one["name"] == "eth0")
    assert card["addresses"] == [f"{node.address}/24"]
    assert card["up"]
    assert fact["ports"]["22"]["command"].startswith("sshd")
    assert fact["disks"]["/"]["file_system"] == "ext4"
    assert fact["disks"]["/srv/store"]["exists"] is False
    assert fact["disks"]["/srv/store"]["total"] < 300 << 20
    docker = fact["docker"]
    shown = json.loads(node.docker("info", "--format", "{{json .}}").out)
    assert (docker["version"], docker["store"], docker["root"]) == (
        shown["ServerVersion"], shown["Driver"], shown["DockerRootDir"],
    )  # fmt: skip
    assert docker["present"]
    assert docker["arch"] in ARCHITECTURE.values()
    assert "dockerd answers 400" in docker["problem"], "of the name that is none"
    image = docker["images"][tiny.tag]
    assert image["id"] == node.docker("image", "inspect", "--format", "{{.Id}}", tiny.tag).out.strip()
    assert len(image["layers"]) == 2
    assert image["labels"] == {"made.by": "a test"}
    assert image["tags"] == [tiny.tag]
    assert image["cmd"] == ["/bin/sh"]
    assert image["size"] > 1_000_000
    assert docker["images"]["none:1"] is None
    assert docker["images"]["Bad Name"] is None


def test_what_a_running_container_has_mounted_is_used(node: Node, tiny: Image) -> None:
    """Whoever launched it: nothing of ours knows of this one."""
    folders = ["/srv/models/demo", "/srv/models-2"]

    def used() -> list[str]:
        found = ask(node, {"scheme": "inventory", "dsts": folders})[0]["folders"]
        return [one["used"] for dst in folders for one in found if one["dst"] == dst]

    named = ["--name", "theirs", "--volume", "/srv/models:/models:ro", "--volume", "kept:/kept"]
    node.docker("run", "--detach", *named, tiny.tag, "sleep", "600")
    node.docker("run", "--detach", "--name", "watcher", "--volume", "/:/host:ro", tiny.tag, "sleep", "600")
    try:
        assert used() == ["container theirs runs and has it mounted", ""]
        node.docker("stop", "--time", "0", "theirs")
        assert used() == ["", ""]
    finally:
        node.docker("rm", "--force", "--volumes", "theirs", "watcher")
        node.docker("volume", "rm", "--force", "kept")


def test_all_addresses_of_an_interface(node: Node) -> None:
    add = ["10.9.0.1/16 dev eth0 label eth0:1", "10.9.0.2/16 dev eth0", "10.8.0.1 peer 10.8.0.2/31 dev eth0"]
    try:
        for one in add:
            node.run(["ip", "address", "add", *one.split()], check=True)
        card = next(one for one in look(node)["interfaces"] if one["name"] == "eth0")
        assert set(card["addresses"]) == {f"{node.address}/24", "10.8.0.1/31", "10.9.0.1/16", "10.9.0.2/16"}
    finally:
        for one in reversed(add):  # the first of a network takes the others with it
            node.run(["ip", "address", "delete", *one.partition(" label")[0].split()], check=True)
    assert any("127.0.0.1/8" in found for found in addresses().values())


def test_containers(node: Node, tiny: Image) -> None:
    run = ["run", "--detach", "--network", "host"]
    node.docker(*run, "--name", "ours", "--label", OURS, "--env", "TOKEN=geheim", tiny.tag, "sleep", "1000")
    node.docker(*run, "--name", "dead", "--label", OURS, tiny.tag, "sh", "-c", "exit 7")
    node.docker(*run, "--name", "stranger", "--device", "/dev/null:/dev/nvidia0", tiny.tag, "sleep", "1000")
    node.docker(*run, "--name", "gone", tiny.tag, "true")
    node.docker("create", "--name", "created", "--label", OURS, tiny.tag, "true")
    try:
        wait_for("it ends", lambda: "Exited" in node.docker("ps", "--all", "--filter", "name=dead").out)
        fact = look(node)
        assert fact["docker"]["problem"] == ""
        found = {one["name"]: one for one in fact["docker"]["containers"]}
        assert sorted(found) == ["created", "dead", "ours", "stranger"]
        assert (found["ours"]["state"], found["ours"]["ours"], found["ours"]["exit_code"]) == ("running", True, None)
        assert found["ours"]["labels"]["sparkbuild.recipe"] == "demo"
        assert abs(found["ours"]["created"] - time.time()) < 60
        shown = node.docker("inspect", "--format", "{{.State.Pid}} {{.Image}}", "ours").out.split()
        assert [str(found["ours"]["pid"]), found["ours"]["image_id"]] == shown
        assert (found["dead"]["state"], found["dead"]["exit_code"], found["dead"]["pid"]) == ("exited", 7, 0)
        assert (found["created"]["state"], found["created"]["exit_code"]) == ("created", None)
        assert (found["stranger"]["ours"], found["stranger"]["gpu"]) == (False, False)
        assert "geheim" not in json.dumps(fact)
    finally:
        node.docker("rm", "--force", "ours", "dead", "stranger", "gone", "created")


def test_a_container_with_gpus(node: Node, tiny: Image) -> None:
    """Without a GPU it can be made, though not be started."""
    node.docker("create", "--gpus", "all", "--name", "with-gpu", tiny.tag, "true")
    try:
        found = Dockerd(node.docker.socket).container("with-gpu")
        assert found is not None
        assert uses_gpu(found)
    finally:
        node.docker("rm", "with-gpu")


def test_who_may_not_use_docker(node: Node) -> None:
    node.add_user("kim")
    node.run(["sh", "-c", "groupadd -f docker; chgrp docker /run/docker.sock"], check=True)
    try:
        fact = ask(node, {"scheme": "node"}, user="kim")[0]
        wanted = "user kim may not use docker: /var/run/docker.sock belongs to group docker"
        assert fact["docker"]["problem"] == wanted
        assert fact["user"] == "kim"
        assert "docker" not in fact["groups"]
        assert fact["memory"]["total"] > 0
        node.run(["usermod", "-aG", "docker", "kim"], check=True)
        fact = ask(node, {"scheme": "node"}, user="kim")[0]
        assert fact["docker"]["problem"] == ""
        assert "docker" in fact["groups"]
    finally:
        node.run(["userdel", "-r", "kim"])


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, signal.SIGSTOP])
def test_a_daemon_that_is_down(node: Node, number: signal.Signals) -> None:
    node.docker("ps")
    if number == signal.SIGSTOP:
        node.run(["sh", "-c", "kill -STOP $(cat /run/docker.pid)"], check=True)
    else:
        node.dockerd_stop(number)
    try:
        began = time.monotonic()
        fact = look(node)
        assert time.monotonic() - began < 9
    finally:
        node.run(["sh", "-c", "kill -CONT $(cat /run/docker.pid) || true"])
        node.dockerd_start()
    docker = fact["docker"]
    assert not docker["present"]
    problems = {
        signal.SIGTERM: "docker is not installed or not running: no /var/run/docker.sock",
        signal.SIGKILL: "dockerd does not answer on /var/run/docker.sock: Connection refused",
        signal.SIGSTOP: "dockerd does not answer on /var/run/docker.sock: nothing within 5 s",
    }
    assert docker["problem"] == problems[number]
    assert fact["host"] == node.name


@pytest.mark.parametrize("version", ["3.10", "3.11", "3.12", "3.13"])
def test_pythons(node: Node, version: str) -> None:
    python = node.python(version)
    if python is None:
        pytest.skip(f"this machine has no Python {version}")
    node_fact, preflight = ask(node, {"scheme": "node"}, {"scheme": "preflight", "paths": ["/srv"]}, python=python)
    assert node_fact["python"].startswith(f"{version}.")
    assert node_fact["problems"] == {}
    assert node_fact["docker"]["present"]
    assert preflight["missing"] == []


def test_peers(rack: Rack, node: Node) -> None:
    other = rack.nodes[1]
    lost = other.address.rpartition(".")[0] + ".250"
    query = {"scheme": "preflight", "peers": [node.address, other.address, lost]}
    fact = ask(node, query)[0]
    assert [one["peer"] for one in fact["unreachable"]] == [lost]
    other.run(["sh", "-c", "kill $(cat /run/sshd.pid)"], check=True)
    try:
        assert [one["peer"] for one in ask(node, query)[0]["unreachable"]] == [lost], "no sshd, and there all the same"
    finally:
        other.run(["/usr/sbin/sshd"], check=True)
    other.cut()
    try:
        began = time.monotonic()
        fact = ask(node, query)[0]
        assert time.monotonic() - began < 20
    finally:
        other.heal()
    assert [one["peer"] for one in fact["unreachable"]] == [other.address, lost]
    assert all(one["problem"] in {"no answer within 2 s", "No route to host"} for one in fact["unreachable"])


def test_logs_of_real_containers(node: Node, tiny: Image) -> None:
    docker = Dockerd(node.docker.socket)
    script = (
        "echo out; echo err >&2; printf half; sleep 1; echo ; i=0; while [ $i -lt 2000 ]; do echo $i; i=$((i+1)); done"
    )
    node.docker("run", "--detach", "--name", "plain", tiny.tag, "sh", "-c", script)
    node.docker("run", "--detach", "--tty", "--name", "terminal", tiny.tag, "sh", "-c", "sleep 1; echo 'a b'; exit 3")
    try:
        found = list(docker.logs("plain", tail=-1, follow=True))
        assert sorted(found[:3]) == ["err", "half", "out"]
        assert found[3:] == [str(number) for number in range(2000)]
        assert list(docker.logs("plain", tail=2)) == ["1998", "1999"]
        assert list(docker.logs("plain", tail=0)) == []
        assert list(docker.logs("plain", tail=-1, since=time.time() + 60)) == []
        assert list(docker.logs("terminal", tail=-1, follow=True)) == ["a b"]
        container = docker.container("terminal")
        assert container is not None
        assert container["State"]["ExitCode"] == 3
        assert docker.container(container["Id"][:12]) == docker.container("/terminal") == container
        assert docker.container(container["Id"][:4]) is None
    finally:
        node.docker("rm", "--force", "plain", "terminal")
    with pytest.raises(DockerdError, match="there is no container plain"):
        next(docker.logs("plain", tail=1))


def test_a_log_that_is_followed_when_the_engine_dies(node: Node, tiny: Image) -> None:
    node.docker("run", "--detach", "--name", "long", tiny.tag, "sh", "-c", "echo first; sleep 1000")
    log = Dockerd(node.docker.socket).logs("long", tail=-1, follow=True)
    try:
        assert next(log) == "first"
        node.dockerd_stop(signal.SIGKILL)
        with pytest.raises(DockerdError, match="dockerd does not answer"):
            next(log)
    finally:
        node.dockerd_start()
        node.docker("rm", "--force", "long")


def test_labels_are_filters(node: Node, tiny: Image) -> None:
    docker = Dockerd(node.docker.socket)
    node.docker("create", "--name", "one", "--label", OURS, tiny.tag, "true")
    node.docker("create", "--name", "two", "--label", "sparkbuild.recipe=a b&c", tiny.tag, "true")
    try:
        assert len(docker.containers("sparkbuild.recipe")) == 2
        assert [one["Names"] for one in docker.containers(OURS)] == [["/one"]]
        assert [one["Names"] for one in docker.containers("sparkbuild.recipe=a b&c")] == [["/two"]]
        assert docker.containers("other") == []
    finally:
        node.docker("rm", "--force", "one", "two")
