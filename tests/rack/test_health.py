"""`doit health` over ssh on real nodes: what is wrong with each is told, and one that is silent hides no other."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.rack.image import Image
from tests.rack.rack import Rack
from tests.workspace_tool import DODO, Tool

pytestmark = pytest.mark.usefixtures("possible")


@pytest.fixture
def doit(rack: Rack, tmp_path: Path) -> Iterator[Tool]:
    tables = [
        f'[nodes.{node.name}]\nconnection = "ssh"\naddress = "{node.address}"\nuser = "root"\nkey = "{node.key_file}"\n'
        f'host_key = "{node.host_key}"\nstore = "/srv/sparkbuild"\npython = "/usr/bin/python3"\n'
        for node in rack.nodes
    ]
    names = json.dumps([node.name for node in rack.nodes])
    (tmp_path / "config.toml").write_text("\n".join([*tables, f"[clusters.pair]\nnodes = {names}\n"]))
    (tmp_path / "dodo.py").write_text(DODO)
    yield Tool(tmp_path)
    for node in rack.nodes:
        node.boot()
        node.heal()


def look(doit: Tool) -> tuple[int, dict[str, Any]]:
    done = doit("health", "pair", "--json")
    assert "Traceback" not in done.text, done
    assert done.code in {0, 1}, done
    cluster: dict[str, Any] = json.loads(done.out)["clusters"][0]
    return done.code, cluster


def test_two_nodes(doit: Tool) -> None:
    code, cluster = look(doit)
    assert (code, cluster["online"], cluster["differences"]) == (0, 2, [])
    for node in cluster["nodes"]:
        assert node["states"] == ["free"]
        assert node["problems"] == []
        assert abs(node["clock_skew"]) < 1, "one kernel, one clock"
        assert node["docker"]
        assert 0 < node["disk_total"] < 300 << 20
    assert "pair: 2/2 online" in doit.ok("health:pair").out


def test_containers_that_should_not_be_there(doit: Tool, rack: Rack, tiny: Image) -> None:
    first, second = rack.nodes
    first.docker("run", "--detach", "--name", "left", "--label", "sparkbuild.recipe=old", tiny.tag, "sleep", "1000")
    second.docker("run", "--detach", "--name", "other", "--device", "/dev/null:/dev/nvidia0", tiny.tag, "sleep", "1000")
    second.docker("run", "--detach", "--name", "one-more", tiny.tag, "sleep", "1000")
    try:
        code, cluster = look(doit)
    finally:
        first.docker("rm", "--force", "left")
        second.docker("rm", "--force", "other", "one-more")
    assert code == 1
    problems = [problem for node in cluster["nodes"] for problem in node["problems"]]
    assert len(problems) == 1, "a stranger's container that has no GPU harms nobody"
    assert problems[0].startswith("leftover of ours: container left (Up ")
    assert problems[0].endswith("doit stop:old")


def test_a_node_without_power(doit: Tool, rack: Rack) -> None:
    rack.nodes[1].kill()
    done = doit("health", "pair")
    assert done.code == 1, done
    assert done.out.startswith("pair: 1/2 online\n  dgx1  free")
    assert "  dgx2  offline\n        ! " in done.out
    assert "Traceback" not in done.text


def test_a_node_whose_cable_is_out(doit: Tool, rack: Rack) -> None:
    rack.nodes[0].cut()
    began = time.monotonic()
    code, cluster = look(doit)
    assert time.monotonic() - began < 30
    assert (code, cluster["online"]) == (1, 1)
    assert [node["online"] for node in cluster["nodes"]] == [False, True]


def test_a_docker_that_is_down_is_told_on_its_node(doit: Tool, rack: Rack) -> None:
    node = rack.nodes[0]
    node.run(["sh", "-c", "kill -STOP $(cat /run/docker.pid)"], check=True)
    try:
        code, cluster = look(doit)
    finally:
        node.run(["sh", "-c", "kill -CONT $(cat /run/docker.pid)"], check=True)
    assert code == 0, "no recipe needs it"
    assert cluster["online"] == 2
    assert [bool(one["docker"]) for one in cluster["nodes"]] == [False, True]


def test_a_full_disk(doit: Tool, rack: Rack) -> None:
    look(doit)  # from here on, the agent is on the node
    rack.nodes[1].fill_disk(leave_bytes=300_000)
    try:
        code, cluster = look(doit)
    finally:
        rack.nodes[1].free_disk()
    assert code == 1
    assert "the disk of /srv/sparkbuild is full" in cluster["nodes"][1]["problems"][0]
