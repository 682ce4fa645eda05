"""A lane of two ranks in docker on real nodes: served, looked at, stopped, and what stays of it."""

from __future__ import annotations

import json
import urllib.request
from typing import Any

import pytest

from tests.rack.lanes import AGENTS, NAME, PYTHON, RECIPE, STORE, Lanes, box, names, record, shell
from tests.rack.node import Node
from tests.workspace_tool import until

pytestmark = pytest.mark.usefixtures("possible")
SSHD_LOG = "/var/log/sshd.log"


def ask(url: str) -> str:
    """What the model says to a question."""
    question = {"messages": [{"role": "user", "content": "What is 2 + 2?"}], "temperature": 0, "max_tokens": 32}
    body = json.dumps({"model": "smollm2-135m", **question}).encode()
    request = urllib.request.Request(f"{url}/v1/chat/completions", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as response:
        return str(json.load(response)["choices"][0]["message"]["content"])


def logins(node: Node) -> int:
    """How often somebody logged in since `log_logins`."""
    return node.path(SSHD_LOG).read_text().count("Accepted publickey")


def log_logins(node: Node) -> None:
    """Have sshd write a log, a new one."""
    restart = f"kill $(cat /run/sshd.pid); rm -f {SSHD_LOG}; sleep 0.1; /usr/sbin/sshd -E {SSHD_LOG}"
    shell(node, restart)
    until(node._banner)


def calls(node: Node) -> list[str]:
    """The agents that were started since the last look, by what they were told to do."""
    log = node.path(AGENTS)
    found = log.read_text().split() if log.exists() else []
    log.unlink(missing_ok=True)
    return found


def test_it_is_served_and_then_there_is_nothing_to_do(lanes: Lanes) -> None:
    lanes.config(python=PYTHON)
    before = lanes.plan(f"serve:{RECIPE}")[f"serve:{RECIPE}"]
    assert before["state"] in {"run", "maybe"}
    done = lanes.ok(f"serve:{RECIPE}")
    assert "smollm2-135m at http://" in done.out
    assert "1 gate passed" in done.out
    assert "4" in ask(lanes.url)
    row = lanes.row()
    assert (row["state"], row["current"], row["nodes"]) == ("serving", True, ["dgx1", "dgx2"])
    assert row["gates"] == {"arithmetic": True}
    boxes = [box(node)["Id"] for node in lanes.nodes]
    for node in lanes.nodes:
        log_logins(node)
        calls(node)
    again = lanes.ok(f"serve:{RECIPE}")
    assert "run   " not in again.out, "no task has anything to do"
    assert " up to date; " in again.out
    assert [calls(node) for node in lanes.nodes] == [["serve"], ["serve"]], "one agent for each node"
    assert [logins(node) for node in lanes.nodes] == [1, 1], "one connection to each node"
    assert [box(node)["Id"] for node in lanes.nodes] == boxes
    assert lanes.states(f"serve:{RECIPE}")[f"serve:{RECIPE}"] == "ok"


def test_what_is_told_of_it(lanes: Lanes) -> None:
    lanes.serve()
    head, worker = lanes.nodes
    status = lanes.ok("status").out
    assert f"{RECIPE}  pair      serving since" in status
    assert f"container {box(head)['Id'][:12]} on dgx1, dgx2" in status
    assert "all 2 ranks are there" in lanes.ok("logs", RECIPE).out
    assert lanes.ok("logs", RECIPE, "--rank", "1").out.startswith(f"ranks.py: joined {head.address} port 29532")
    assert "has no rank 2" in lanes.fails("logs", RECIPE, "--rank", "2").err
    health = lanes.ok("health:pair").out
    assert health.startswith("pair: 2/2 online\n  dgx1  serving demo-2x since ")
    assert "  dgx2  rank 1 of demo-2x since " in health
    plan = lanes.ok("plan", "-v", f"serve:{RECIPE}").out
    for rank, node in enumerate(lanes.nodes):
        said = plan.partition(f"    rank {rank} on {node.name}, {node.address} (eth0)\n")[2]
        assert "the only network that dgx1, dgx2 share" in said.splitlines()[0]
        argv = json.loads(said.partition("        argv ")[2].splitlines()[0])
        inspected = box(node)
        assert argv == [inspected["Path"], *inspected["Args"]], "exactly what is told was started"
        assert argv[2:10] == [
            "--rank",
            str(rank),
            "--world-size",
            "2",
            "--head",
            head.address,
            "--fabric",
            node.address,
        ]
        assert f"env  NCCL_SOCKET_IFNAME=eth0    # the interface of {node.address} on {node.name}" in said
        assert f"env  NCCL_IB_DISABLE=1    # no active RDMA device on eth0 of {node.name}" in said
        assert f"mount {STORE}/staged/{RECIPE}/weights at {STORE}/staged/{RECIPE}/weights, read-only" in said
    assert record(worker)["port"] == 0, "only rank 0 serves"


def settings(node: Node) -> dict[str, Any]:
    return dict(box(node)["HostConfig"])


def test_how_its_containers_are_made(lanes: Lanes) -> None:
    row = lanes.serve()
    launches = set()
    for rank, node in enumerate(lanes.nodes):
        found = box(node)
        host, labels = found["HostConfig"], found["Config"]["Labels"]
        assert host["NetworkMode"] == "host"
        assert host["RestartPolicy"]["Name"] == "no"
        assert host["Memory"] == host["MemorySwap"] == 2_000_000_000
        assert host["ShmSize"] == 67_108_864
        assert host["Init"] is True
        assert [limit for limit in host["Ulimits"] if limit["Name"] == "core"] == [
            {"Name": "core", "Hard": 0, "Soft": 0}
        ]
        assert host["LogConfig"]["Config"]["max-size"]
        assert not host["Privileged"]
        mounts = {mount["Destination"]: mount for mount in found["Mounts"]}
        assert len(mounts) == 2
        assert not any(mount["RW"] for mount in mounts.values())
        assert labels["sparkbuild.recipe"] == RECIPE
        assert (labels["sparkbuild.rank"], labels["sparkbuild.world_size"]) == (str(rank), "2")
        assert labels["sparkbuild.key"][:12] == row["key"]
        assert json.loads(labels["sparkbuild.parts"])["nodes"] == ["dgx1", "dgx2"]
        assert labels["sparkbuild.lock"].startswith("demo-ranks@")
        launches.add(labels["sparkbuild.launch"])
        assert record(node)["launch"] in launches
    assert len(launches) == 1, "one launch on both nodes"


def test_stopped_twice_and_what_is_kept(lanes: Lanes) -> None:
    lanes.sleeping()
    lanes.edit("[serve.docker]\n", "[serve.docker]\nkeep = 1\n")
    for number in range(3):
        lanes.ok(f"serve:{RECIPE}")
        assert len(lanes.left()) == 2
        done = lanes.ok(f"stop:{RECIPE}")
        assert [f"stopped container {box(node)['Id'][:12]} on {node.name}" in done.out for node in lanes.nodes] == [
            True,
            True,
        ]
        assert lanes.left() == []
        kept = names(lanes.nodes[0])
        assert f"{NAME} exited" in kept
        assert len(kept) == (1 if number == 0 else 2), "the last one, and one of those before"
    again = lanes.ok(f"stop:{RECIPE}")
    assert f"lane {RECIPE} does not run on dgx1, dgx2" in again.out
    assert lanes.row()["state"] == "did not start"
    assert "was stopped at" in lanes.reasons()[0]
    assert lanes.ok("logs", RECIPE, "--rank", "1").out == "1\n", "its log outlives it"
    assert "2/2 online\n  dgx1  free" in lanes.ok("health:pair").out
