"""The way through on a node that is arm64, driven from an amd64 machine: facts, data of each kind, an environment from
wheels, a lane; and the same data on an amd64 node, for comparison.

Its programs run under qemu: what is shown is that they are right, and nothing of speed.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import engine
from tests.agent.driver import flip
from tests.engine import ROOT, healthy
from tests.rack import foreign
from tests.rack.lanes import STORE, Lanes
from tests.rack.node import Node
from tests.rack.rack import Rack
from tests.staging.checkpoint import make
from tests.staging.hubcache import TWO_HOP, usual
from tests.workspace_tool import bare

pytestmark = pytest.mark.long
ARM, AMD = "demo", "demo-amd"  # the recipes: one node each, since ranks of one lane are to be of one machine
CLUSTERS = {"amd": '["dgx1"]', "arm": '["dgx2"]', "both": '["dgx1", "dgx2"]'}
SOURCE = "/srv/models"
BLOCKS = """
[[staging]]
id = "rows"
kind = "sparse-rows"
src = "/srv/models/checkpoint"

[[staging]]
id = "holes"
kind = "sparse-rows"
src = "/srv/models/checkpoint"
layout = "sparse-copy"

[[staging]]
id = "model"
kind = "hub-mirror"
src = "/srv/models/hub"
repos = ["demo-org/demo-model"]

[[staging.exports]]
kind = "tree"
id = "files"
target = "/model"
"""
# Its data fits only when that of another recipe goes.
NEXT = """
cluster = "arm"
image = "llamacpp"
model_id = "m"

[serve]
port = 8000
command = ["x"]

[[staging]]
id = "data"
kind = "files"
src = "/srv/models/next"
min_free = {min_free}
"""
GATES = """
[[gates]]
kind = "smoke"
id = "arithmetic"
prompt = "What is 2 + 2?"
expect = "4"
max_tokens = 16
timeout = 900.0
"""


@pytest.fixture(scope="module")
def mixed(possible: None) -> Iterator[Rack]:  # noqa: ARG001 - a fixture for what it does
    """dgx1 is of this machine, dgx2 is arm64."""
    if problem := foreign.lacking():
        pytest.skip(problem)
    with Rack.up(2, disk_mb=900, docker=False, arm64=["dgx2"]) as rack:
        yield rack


@pytest.fixture
def lanes(mixed: Rack, lane_store: Path, test_cache: Path, tmp_path: Path) -> Iterator[Lanes]:
    """The demo for each of the nodes, with staged data of each kind beside its weights; no node has internet."""
    root = tmp_path / "ws"
    bare(root)
    for folder in ("images/llamacpp", "images/harness", "locks", f"recipes/{ARM}"):
        shutil.copytree(ROOT / folder, root / folder)
    (root / "home/.ssh").mkdir(parents=True)
    made = Lanes(root, mixed, lane_store, {"HOME": str(root / "home")})
    made.config(clusters="".join(f"[clusters.{name}]\nnodes = {nodes}\n" for name, nodes in CLUSTERS.items()))
    recipe = made.path(ARM)
    head, gates, _ = recipe.read_text().partition("[[gates]]")
    assert gates
    recipe.write_text(head + BLOCKS + GATES)
    made.edit('"--host", "127.0.0.1"', '"--host", "{{ host }}"', ARM)
    made.edit("ready_timeout = 120.0", "ready_timeout = 900.0", ARM)
    made.edit('"--ctx", "8192", "--parallel", "2"', '"--ctx", "1024", "--parallel", "1"', ARM)
    shutil.copytree(recipe.parent, made.path(AMD).parent)
    made.edit('cluster = "local"', 'cluster = "arm"', ARM)
    made.edit('cluster = "local"', 'cluster = "amd"', AMD)
    source = tmp_path / "models"
    make(source / "checkpoint", vocab=300)
    usual(source / "hub").add("deep/table.bin", b"shared" * 99_999, TWO_HOP)
    (source / "next").mkdir()
    (source / "next/table.bin").write_bytes(b"next" * 99_999)
    for node in mixed.nodes:
        shutil.copytree(source, node.path(SOURCE), symlinks=True)
    wheels = engine.arm64_wheels("llamacpp", test_cache)
    shutil.copytree(wheels, mixed.nodes[1].path(f"{STORE}/wheels"), ignore=shutil.ignore_patterns(".*"))
    yield made
    made(f"stop:{ARM}")
    for node in mixed.nodes:
        node.run(["rm", "-rf", STORE, SOURCE], check=True)


def staged(node: Node, recipe: str) -> dict[str, bytes | str]:
    """Every file and link below a recipe's staged folders. Its ledgers are without what is each node's own: when they
    were written, inode and ctime of the source.
    """
    found: dict[str, bytes | str] = {}
    top = node.path(f"{STORE}/staged/{recipe}")
    for path in top.rglob("*"):
        name = str(path.relative_to(top))
        if path.is_symlink():
            found[name] = os.readlink(path)
        elif path.name == "ledger.json":
            found[name] = re.sub(rb'"(at|inode|ctime_ns)": ?[0-9.]+', rb'"\1":0', path.read_bytes())
        elif path.is_file() and ".sparkbuild" not in path.parts:
            found[name] = path.read_bytes()
    return found


def begun(lanes: Lanes, *args: str) -> list[str]:
    """Run doit; the tasks that it made."""
    before = len(lanes.runs())
    lanes.ok(*args, timeout=1800)
    return sorted(entry["task"] for entry in lanes.runs()[before:] if entry["event"] == "start")


def test_a_node_that_is_arm64(mixed: Rack) -> None:
    amd, arm = mixed.nodes
    assert [node.run(["uname", "-m"]).out for node in mixed.nodes] == ["x86_64\n", "aarch64\n"]
    assert arm.ssh(["python3", "-c", "import os; print(os.uname().machine)"]).out == "aarch64\n"
    assert amd.ssh(["ssh", arm.name, "uname", "-m"]).out == "aarch64\n"
    assert arm.ssh(["ssh", amd.name, "uname", "-m"]).out == "x86_64\n"
    assert [node.is_arm64 for node in Rack.attach(mixed.folder).nodes] == [False, True]
    arm.kill()
    arm.boot()
    assert arm.ssh(["uname", "-m"]).out == "aarch64\n"


def test_health_tells_machines_apart(lanes: Lanes) -> None:
    found = lanes.fails("health", "both", "--json")
    (both,) = json.loads(found.out)["clusters"]
    assert [node["arch"] for node in both["nodes"]] == ["x86_64", "aarch64"]
    assert [node["problems"] for node in both["nodes"]] == [[], []]
    (arch,) = [one for one in both["differences"] if one["part"] == "arch"]
    assert (arch["fatal"], arch["values"]) == (True, {"x86_64": ["dgx1"], "aarch64": ["dgx2"]})
    assert "aarch64" in lanes("health", "both").out
    assert "arm: 1/1 online" in lanes.ok("health", "arm").out


def test_wheels_of_another_machine_are_none(lanes: Lanes) -> None:
    """What the node has is for x86_64: it is refused when the environment is made, by the name of the machine."""
    wheels = lanes.nodes[1].path(f"{STORE}/wheels")
    for wheel in wheels.iterdir():
        wheel.rename(wheels / wheel.name.replace("aarch64", "x86_64"))
    done = lanes.fails("image:llamacpp:dgx2", timeout=900)
    assert "this node is offline, and has not all of its wheels" in done.text
    assert "for Python 3.11 on aarch64" in done.text
    assert lanes.states("image:llamacpp:dgx2") == {"image:llamacpp:dgx2": "run"}


def test_staged_data_makes_room(lanes: Lanes) -> None:
    weights = f"stage:{ARM}:dgx2:weights"
    assert begun(lanes, weights) == ["artifact:demo:smollm2:dgx2", weights]
    disk = os.statvfs(lanes.nodes[1].path("/srv"))
    lanes.path("next").parent.mkdir()
    lanes.path("next").write_text(NEXT.format(min_free=disk.f_bavail * disk.f_frsize + 30_000_000))
    assert "doit stage:next --evict, which removes " in lanes.fails("stage:next").text
    done = lanes.ok("stage:next", "--evict")
    assert f"evicted {STORE}/staged/{ARM}/weights on dgx2: 98.4 MB given back" in done.text
    assert lanes.states(f"stage:{ARM}")[weights] == "run"
    assert lanes.states("stage:next") == {"stage:next:dgx2:data": "ok"}


def test_the_way_through(lanes: Lanes) -> None:
    arm = lanes.nodes[1]
    blocks = [f"stage:{ARM}:dgx2:{name}" for name in ("holes", "model", "model:files", "rows", "weights")]
    states = lanes.states(f"stage:{ARM}")
    assert {states[block] for block in blocks} == {"run"}
    assert [task for task in begun(lanes, "stage") if "dgx2" in task] == ["artifact:demo:smollm2:dgx2", *blocks]
    assert begun(lanes, "stage") == []
    of_amd, of_arm = (staged(node, recipe) for node, recipe in zip(lanes.nodes, (AMD, ARM), strict=True))
    assert len([name for name in of_arm if name.endswith("ledger.json")]) == 4
    assert sorted(of_arm) == sorted(of_amd)
    assert [name for name in of_arm if of_arm[name] != of_amd[name]] == []

    flip(arm.path(f"{STORE}/staged/{ARM}/rows/engram-l1-r0of1.bin"), 12345)
    lanes.fails(f"verify:{ARM}", "--full")
    assert "differs from its ledger" in lanes.plan(blocks[3])[blocks[3]]["reasons"][0]["text"]
    assert begun(lanes, f"stage:{ARM}") == [blocks[3]]
    assert staged(arm, ARM) == of_arm
    assert " 98.4 MB read " in lanes.ok(f"verify:{ARM}", "--full").out

    assert begun(lanes, f"serve:{ARM}") == ["image:llamacpp:dgx2", f"serve:{ARM}"]
    assert lanes.row(ARM)["state"] == "serving"
    assert healthy(f"http://{arm.address}:8431")
    assert begun(lanes, f"serve:{ARM}") == []
    assert "dgx2  serving demo since " in lanes.ok("health", "arm").out
    assert "serve.py: serving" in lanes.ok("logs", ARM).out
    lanes.ok(f"stop:{ARM}")
    assert not healthy(f"http://{arm.address}:8431")
    assert "dgx2  free" in lanes.ok("health", "arm").out
