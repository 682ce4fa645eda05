"""Nodes that cannot be used as configured: another host key, another user, no docker, a docker that went away."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from tests.rack.lanes import RECIPE, Lanes, box, is_running, record
from tests.rack.node import Node
from tests.workspace_tool import until

pytestmark = pytest.mark.usefixtures("possible")


@pytest.fixture
def idle(lanes: Lanes) -> Lanes:
    """Ranks that only live: what is tested of them needs no engine."""
    lanes.sleeping()
    return lanes


def told(lanes: Lanes, *texts: str) -> None:
    """The plan shows the row of the node and the rest, and serving it fails for the same reason."""
    plan = lanes.ok("plan", "-v", f"serve:{RECIPE}")
    done = lanes.fails(f"serve:{RECIPE}")
    for text in texts:
        assert text in plan.out
        assert text in done.text
    rows = {tuple(line.split()[:3]) for line in plan.out.splitlines() if line[:1].strip()}
    assert ("unknown", "dgx2", "sync:demo-ranks:dgx2") in rows
    assert ("unknown", "pair", f"serve:{RECIPE}") in rows
    assert ("ok", "dgx1", "sync:demo-ranks:dgx1") in rows, "the other node is shown as it is"


def test_a_host_key_that_changed(idle: Lanes) -> None:
    idle.ok("sync:demo-ranks")
    idle.config(pinned=False)
    first, second = idle.nodes
    assert f"shows:   ssh-ed25519 {second.host_key_fingerprint}" in idle("trust", "dgx2").text
    for node in idle.nodes:
        idle.ok("trust", node.name, "--fingerprint", node.host_key_fingerprint)
    assert idle.state("sync:demo-ranks:dgx2") == "ok"
    old = second.host_key_fingerprint
    second.rotate_host_key()
    new = second.host_key_fingerprint
    told(idle, "dgx2", new, old, "doit trust dgx2")
    assert "CHANGED" in idle.fails("trust", "dgx2", "--fingerprint", old).text
    assert idle.state("sync:demo-ranks:dgx2") == "unknown"
    assert "recorded in known_hosts" in idle.ok("trust", "dgx2", "--fingerprint", new).out
    assert idle.state("sync:demo-ranks:dgx2") == "ok"
    assert first.host_key_fingerprint in idle.ok("trust").out
    assert not record(first), "nothing was launched meanwhile"


def with_user(lanes: Lanes, user: str) -> None:
    """Log in to the second node as somebody else."""
    lanes.config()
    path = lanes.root / "config.toml"
    head, mark, rest = path.read_text().partition("[nodes.dgx2]")
    path.write_text(head + mark + rest.replace('user = "root"', f'user = "{user}"\npython = "/usr/bin/python3"', 1))


def test_a_user_that_is_not_there(idle: Lanes) -> None:
    idle.ok("sync:demo-ranks")
    with_user(idle, "nobody-such")
    told(idle, "nobody-such", "id_ed25519")


@pytest.fixture
def plain_user(lanes: Lanes) -> Iterator[str]:
    """One who may log in to the second node and not use docker."""
    node = lanes.nodes[1]
    node.add_user("plain")
    node.run(["install", "-d", "-o", "plain", "/srv/plain"], check=True)
    yield "plain"
    node.run(["userdel", "-r", "plain"])
    node.run(["rm", "-rf", "/srv/plain"])


def test_a_user_who_is_not_in_the_group_docker(idle: Lanes, plain_user: str) -> None:
    idle.ok("sync:demo-ranks")
    with_user(idle, plain_user)
    path = idle.root / "config.toml"
    head, mark, rest = path.read_text().partition("[nodes.dgx2]")
    path.write_text(head + mark + rest.replace("/srv/sparkbuild", "/srv/plain", 1))
    told(idle, "plain", "usermod -aG docker plain")
    assert idle.left() == []


def test_a_docker_that_is_down_at_the_plan(idle: Lanes) -> None:
    idle.ok("sync:demo-ranks")
    idle.nodes[1].dockerd_stop()
    told(idle, "docker on dgx2")
    assert idle.left_on(idle.nodes[0]) == []
    idle.nodes[1].dockerd_start()
    idle.ok(f"serve:{RECIPE}")


def crash(node: Node) -> None:
    """Docker ends without ending its containers."""
    node.dockerd_stop(signal.SIGKILL)


def test_a_docker_that_goes_down_while_the_lane_runs(idle: Lanes) -> None:
    """Its containers may live on: nothing is known of them, so nothing is launched beside them."""
    idle.ok(f"serve:{RECIPE}")
    head, worker = idle.nodes
    before = box(head)["Id"]
    crash(worker)
    plan = idle.plan(f"serve:{RECIPE}")[f"serve:{RECIPE}"]
    assert plan["state"] == "unknown"
    assert any("docker on dgx2" in reason["text"] for reason in plan["reasons"])
    assert "docker on dgx2" in idle.fails(f"serve:{RECIPE}").text
    assert box(head)["Id"] == before
    assert is_running(head)
    stop = idle.fails(f"stop:{RECIPE}").text
    assert f"lane {RECIPE} may still run on dgx2" in stop
    assert "it does not run on dgx1" in stop
    worker.dockerd_start()
    until(lambda: not is_running(worker), 30)
    idle.ok(f"serve:{RECIPE}")
    assert len(idle.left()) == 2
    assert box(head)["Id"] != before


def test_a_docker_that_goes_down_during_the_launch(idle: Lanes) -> None:
    worker = idle.nodes[1]
    process = idle.start_and_wait("head")
    crash(worker)
    out, err = process.communicate(timeout=90)
    if process.returncode == 0:  # it was quicker: all of it ran before
        worker.dockerd_start()
        return
    assert "Traceback" not in out + err
    assert "dgx2" in out
    assert idle.left_on(idle.nodes[0]) == [], "the head was taken down again"
    worker.dockerd_start()
    idle.ok(f"serve:{RECIPE}")
    assert len(idle.left()) == 2
