"""`doit health`: what the facts say, by tables; and the command on this machine. On real nodes: tests/rack."""

from __future__ import annotations

import json
import re
import socket
from pathlib import Path
from typing import Any

import pytest

from sparkbuild.app import health
from sparkbuild.app.health import Look
from sparkbuild.core.errors import NodeError
from tests.workspace_tool import DODO, Tool

GB = 1_000_000_000


def fact(**more: Any) -> dict[str, Any]:
    found: dict[str, Any] = {
        "host": "dgx1",
        "os": "Ubuntu",
        "os_version": "24.04",
        "arch": "aarch64",
        "kernel": "6.11.0",
        "python": "3.12.3",
        "driver": "580.1",
        "time": 1000.0,
        "lanes": [],
        "problems": {},
        "memory": {"total": 128 * GB, "available": 100 * GB},
        "disks": {"/srv/models": disk()},
        "docker": docker(),
    }
    return {**found, **more}


def disk(**more: Any) -> dict[str, Any]:
    return {"free": 900 * GB, "total": 1000 * GB, "read_only": False, "mount": "/", "problem": "", **more}


def docker(**more: Any) -> dict[str, Any]:
    return {"present": True, "problem": "", "version": "28.2.2", "containers": [], **more}


def lane(**more: Any) -> dict[str, Any]:
    found = {"recipe": "demo", "alive": True, "ready": True, "launched_at": 0.0, "served_at": 60.0, "stopped_at": None}
    return {**found, "rank": 0, "container": "", **more}


def box(**more: Any) -> dict[str, Any]:
    found = {"id": "1", "name": "x", "image": "vllm:1", "state": "running", "status": "Up 2 hours", "labels": {}}
    return {**found, "gpu": False, "ours": False, **more}


def look(node: str = "dgx1", **more: Any) -> Look:
    return Look(node, fact(**more), None, 999.9, 1000.1, "/srv/models", docker=True)


STORE = "another store (/srv/b), since 1970-01-01 00:00:09 UTC"
SERVING = "serving demo since 1970-01-01 00:01:00 UTC"


def elsewhere(**more: Any) -> dict[str, Any]:
    found = {"recipe": "demo", "pid": 7, "user": "ann", "store": "/srv/b", "ours": False, "ports": [8431]}
    return {**found, "since": 9.0, "gpus": False, **more}


FIGURES = "memory 100.0 GB of 128.0 GB, disk 900.0 GB free, clock +0.0 s"
UNKNOWN = "unknown (docker cannot be asked)"
THEIRS = {
    "ours": True,
    "labels": {"sparkbuild.recipe": "demo", "sparkbuild.store": "5e1f", "sparkbuild.by": "bob@desk"},
}
OURS = {"ours": True, "labels": {"sparkbuild.recipe": "demo"}}


@pytest.mark.parametrize(
    ("more", "states", "problems"),
    [
        ({}, ["free"], []),
        ({"lanes": [lane()]}, ["serving demo since 1970-01-01 00:01:00 UTC"], []),
        ({"lanes": [lane(served_at=None)]}, ["serving demo, gates not passed"], []),
        ({"lanes": [lane(served_at=None, ready=False)]}, ["starting demo"], []),
        ({"lanes": [lane(rank=1, ready=False)]}, ["rank 1 of demo since 1970-01-01 00:00:00 UTC"], []),
        ({"lanes": [lane(alive=False, stopped_at=9.0)]}, ["free"], []),
        ({"lanes": [lane(alive=False, ready=False)]}, ["free"], []),
        ({"lanes": [lane(alive=False)]}, ["free"], ["demo is dead (was not stopped): doit logs demo"]),
        (
            {"docker": docker(containers=[box(**THEIRS), box(**{**THEIRS, "state": "created"})])},
            ["held by container x of another store (5e1f, launched by bob@desk)"],
            [],
        ),
        (
            {"docker": docker(containers=[box(**OURS)])},
            ["held by container x"],
            ["leftover of ours: container x (Up 2 hours): doit stop:demo"],
        ),
        (
            {"docker": docker(containers=[box(**OURS, state="created", status="Created")])},
            ["free"],
            ["leftover of ours: container x (Created): doit stop:demo"],
        ),
        ({"docker": docker(containers=[box(**OURS) | {"state": "exited"}])}, ["free"], []),
        (
            {"docker": docker(containers=[box(**OURS)]), "lanes": [lane(container="1")]},
            ["serving demo since 1970-01-01 00:01:00 UTC"],
            [],
        ),
        ({"docker": docker(containers=[box()])}, ["free"], []),
        ({"docker": docker(containers=[box(gpu=True, state="exited")])}, ["free"], []),
        (
            {"docker": docker(containers=[box(gpu=True)])},
            ["free"],
            ["container x (vllm:1) uses the GPU and is not ours"],
        ),
        ({"time": 1002.05}, ["free"], []),
        ({"time": 1003.0}, ["free"], ["its clock is 3.0 s ahead of this machine's"]),
        ({"time": 990.0}, ["free"], ["its clock is 10.0 s behind this machine's"]),
        ({"docker": docker(present=False, problem="no docker here")}, [UNKNOWN], ["no docker here"]),
        (
            {"docker": docker(present=False, problem="gone"), "lanes": [lane(alive=None)]},
            [UNKNOWN],
            ["whether demo runs is not known: docker does not answer", "gone"],
        ),
        (
            {"docker": docker(present=False, problem="gone"), "lanes": [lane(alive=None, stopped_at=1)]},
            [UNKNOWN],
            ["gone"],
        ),
        (
            {"docker": docker(problem="gone"), "lanes": [lane()]},
            ["serving demo since 1970-01-01 00:01:00 UTC", UNKNOWN],
            ["gone"],
        ),
        ({"disks": {"/srv/models": disk(problem="hangs")}}, ["free"], ["/srv/models: hangs"]),
        (
            {"disks": {"/srv/models": disk(read_only=True)}},
            ["free"],
            ["/srv/models is on a file system that is read-only (/)"],
        ),
        (
            {"disks": {"/srv/models": disk(free=GB)}},
            ["free"],
            ["the disk of /srv/models is full: 1.0 GB of 1.0 TB free"],
        ),
        ({"problems": {"gpus": "OSError: x"}}, ["free"], ["gpus cannot be looked at: OSError: x"]),
        ({"disks": {}}, ["free"], []),
        (  # a node without docker, whose lane is a process
            {"docker": docker(present=False, problem="no docker here"), "lanes": [lane()]},
            ["serving demo since 1970-01-01 00:01:00 UTC"],
            ["no docker here"],
        ),
        (
            {"lanes": [lane(again="it is paused")]},
            ["held by demo, which is not serving"],
            ["demo runs, but it is paused: doit serve:demo"],
        ),
        ({"elsewhere": [elsewhere()]}, [f"held by process 7 of ann on port 8431, lane demo of {STORE}"], []),
        (
            {"elsewhere": [elsewhere(ours=True, ports=[])]},
            ["held by process 7 of ann, lane demo without a record, since 1970-01-01 00:00:09 UTC"],
            ["process 7 is of lane demo, and no record names it any more"],
        ),
        ({"unread": [{"recipe": "glm", "text": "lane glm is of user bob"}]}, ["free"], ["lane glm is of user bob"]),
        (
            {"strangers": {"8431": "a process of uid 1001"}},
            ["perhaps held: a process of uid 1001 listens on port 8431"],
            [],
        ),
        ({"strangers": {"8431": "a process of uid 1001"}, "lanes": [lane(alive=True)]}, [SERVING], []),
    ],
)
def test_a_node(more: dict[str, Any], states: list[str], problems: list[str]) -> None:
    row = health.row(look(**more))
    assert row["online"]
    assert (row["states"], row["problems"]) == (states, problems)


def test_docker_is_missed_only_where_it_is_needed() -> None:
    gone = docker(present=False, problem="docker is not installed or not running")
    row = health.row(Look("local", fact(docker=gone), None, 1000, 1000, "", docker=False))
    assert (row["problems"], row["states"]) == ([], ["free"])
    half = docker(problem="dockerd answers 500: x")
    assert health.row(Look("local", fact(docker=half), None, 1000, 1000, "", docker=False))["problems"] != []


def test_a_docker_that_cannot_be_asked_is_not_told_to_be_missing() -> None:
    gone = docker(present=False, version="", problem="nothing within 5 s")
    assert health.lines(health.cluster("one", [look(docker=gone)]))[1].endswith(f"{UNKNOWN}  {FIGURES}")


def test_a_slow_way_is_no_wrong_clock() -> None:
    slow = Look("dgx1", fact(time=1004.9), None, 995, 1005, "/srv/models", docker=True)
    row = health.row(slow)
    assert row["problems"] == []
    assert row["clock_skew"] == 0.0


def test_a_row_names_the_machine() -> None:
    assert health.row(look())["arch"] == "aarch64"


@pytest.mark.parametrize(
    ("silent", "problem", "then"),
    [
        (
            Look("dgx4", None, NodeError("dgx4 does not answer\nsecond line", next="ping 10.0.0.4")),
            "dgx4 does not answer",
            "ping 10.0.0.4",
        ),
        (Look("dgx4", {"present": False, "problem": "KeyError: x"}), "KeyError: x", ""),
        (Look("dgx4", {}), "no answer", ""),
        (Look("dgx4", None), "no answer", ""),
    ],
)
def test_a_node_that_does_not_answer(silent: Look, problem: str, then: str) -> None:
    row = health.row(silent)
    assert (row["online"], row["problems"], row["next"]) == (False, [problem], then)


def test_what_differs() -> None:
    other = look("dgx3", driver="575.3", docker=docker(version="20.10"), python="3.12.3", kernel="6.8")
    found = health.differences(
        [look(), look("dgx2"), other, Look("dgx4", None), look("dgx5", docker=docker(present=False))]
    )
    assert found == [
        {"part": "driver", "fatal": True, "values": {"580.1": ["dgx1", "dgx2", "dgx5"], "575.3": ["dgx3"]}},
        {"part": "kernel", "fatal": False, "values": {"6.11.0": ["dgx1", "dgx2", "dgx5"], "6.8": ["dgx3"]}},
        {"part": "docker", "fatal": False, "values": {"28.2.2": ["dgx1", "dgx2"], "20.10": ["dgx3"]}},
    ]


def test_a_cluster_as_it_is_read() -> None:
    error = NodeError("dgx4 does not answer", where="root@10.0.0.4:22", found="no route", next="ping 10.0.0.4")
    silent = Look("dgx4", None, error)
    nodes = [
        look(lanes=[lane()]),
        look("dgx2", driver="575.3", time=1000.0),
        look("dgx3", python="3.10.1", driver=""),
        silent,
    ]
    found = health.cluster("4nodes", nodes)
    assert (found["online"], found["total"], found["ok"]) == (3, 4, False)
    tail = "memory 100.0 GB of 128.0 GB, disk 900.0 GB free, clock +0.0 s, docker 28.2.2"
    assert health.lines(found) == [
        "4nodes: 3/4 online",
        f"  dgx1  serving demo since 1970-01-01 00:01:00 UTC  {tail}",
        f"  dgx2  free                                        {tail}",
        f"  dgx3  free                                        {tail}",
        "  dgx4  offline",
        "        ! dgx4 does not answer",
        "          where: root@10.0.0.4:22",
        "          found: no route",
        "          next:  ping 10.0.0.4",
        "  ! driver differs: 580.1 on dgx1; 575.3 on dgx2; none on dgx3",
        "  - python differs: 3.12.3 on dgx1, dgx2; 3.10.1 on dgx3",
    ]


def test_what_only_differs_a_little_is_no_fault() -> None:
    assert health.cluster("pair", [look(), look("dgx2", python="3.10.1", kernel="6.8")])["ok"]
    assert not health.cluster("pair", [look(), look("dgx2", arch="x86_64")])["ok"]


@pytest.mark.parametrize(
    ("second", "same"),
    [
        ({"host": "dgx1", "boot_id": "b1"}, True),
        ({"host": "dgx2", "boot_id": "b1"}, False),  # containers of one machine
        ({"host": "dgx1", "boot_id": "b2"}, False),  # machines that nobody gave a name
        ({"host": "dgx1", "boot_id": ""}, False),
    ],
)
def test_two_nodes_that_are_one_machine(second: dict[str, str], same: bool) -> None:
    found = health.cluster("pair", [look(boot_id="b1"), look("dgx2", **second)])
    assert [node["problems"] for node in found["nodes"]] == [[], ["it is the same machine as dgx1"] if same else []]
    assert found["ok"] is not same


# -- the command ---------------------------------------------------------------------------------------------------


@pytest.fixture
def doit(tmp_path: Path) -> Tool:
    (tmp_path / "dodo.py").write_text(DODO)
    config(tmp_path)
    return Tool(tmp_path)


def config(root: Path, more: str = "", cluster: str = '"local"') -> None:
    text = f'[nodes.local]\nconnection = "local"\n{more}\n[clusters.local]\nnodes = ["local"]\n'
    (root / "config.toml").write_text(f"{text}\n[clusters.pair]\nnodes = [{cluster}]\n")


@pytest.mark.parametrize("words", [["health"], ["health", "local"], ["health:local"], ["health", "pair", "local"]])
def test_this_machine(doit: Tool, words: list[str]) -> None:
    done = doit.ok(*words)
    # a lane that other tests serve on this machine is one of another store
    assert re.search(r"local: 1/1 online\n  local  (free|held by process)", done.out)
    assert ("pair: 1/1" in done.out) is (words in (["health"], ["health", "pair", "local"]))
    assert done.err == ""


@pytest.mark.parametrize("words", [["health", "--json", "local"], ["health:local", "--json"]])
def test_as_json(doit: Tool, words: list[str]) -> None:
    found = json.loads(doit.ok(*words).out)
    assert found["ok"] is True
    node = found["clusters"][0]["nodes"][0]
    assert node["online"]
    assert 0 < node["memory_available"] <= node["memory_total"]
    assert 0 < node["disk_free"] <= node["disk_total"], "of the store's disk, though the store is not there yet"
    assert not (doit.root / ".sparkbuild" / "node").exists(), "looking makes nothing"


PAIR = ["dgx1", "dgx2"]
MEND = "doit stop:demo, doit serve:demo"


def ranked(rank: int, **more: Any) -> dict[str, Any]:
    return lane(rank=rank, launch="l1", nodes=PAIR, ready=not rank, served_at=None if rank else 60.0, **more)


RANKS: dict[str, tuple[list[dict[str, Any]], list[dict[str, Any]], list[str], list[str]]] = {
    "all live": ([ranked(0)], [ranked(1)], [], []),
    "a worker died": (
        [ranked(0)], [ranked(1, alive=False)],
        [f"demo is broken: its rank on dgx2 does not run: {MEND}"],
        [f"rank 1 of demo is dead, and the lane runs on dgx1: {MEND}"],
    ),
    "a worker's record is gone": ([ranked(0)], [], [f"demo is broken: its rank on dgx2 does not run: {MEND}"], []),
    "a worker of another launch": (
        [ranked(0)], [ranked(1) | {"launch": "l2"}],
        [f"demo is broken: its rank on dgx2 does not run: {MEND}"],
        [f"rank 1 of demo runs without rank 0 on dgx1: {MEND}"],
    ),
    "the head died": (
        [ranked(0, alive=False)], [ranked(1)],
        ["demo is dead (was not stopped): doit logs demo"],
        [f"rank 1 of demo runs without rank 0 on dgx1: {MEND}"],
    ),
    "an orphan": ([], [ranked(1)], [], [f"rank 1 of demo runs without rank 0 on dgx1: {MEND}"]),
    "all died": (
        [ranked(0, alive=False)], [ranked(1, alive=False)], ["demo is dead (was not stopped): doit logs demo"], [],
    ),
    "stopped": ([ranked(0, alive=False, stopped_at=9.0)], [ranked(1, alive=False, stopped_at=9.0)], [], []),
    "docker does not say": ([ranked(0)], [ranked(1, alive=None)], [], [
        "whether demo runs is not known: docker does not answer",
    ]),
}  # fmt: skip


@pytest.mark.parametrize(("head", "worker", "on_head", "on_worker"), RANKS.values(), ids=RANKS)
def test_ranks_on_several_nodes(
    head: list[dict[str, Any]], worker: list[dict[str, Any]], on_head: list[str], on_worker: list[str]
) -> None:
    looks = [look("dgx1", host="dgx1", lanes=head), look("dgx2", host="dgx2", lanes=worker)]
    found = health.cluster("pair", looks)
    assert [node["problems"] for node in found["nodes"]] == [on_head, on_worker]
    assert found["ok"] == (not on_head and not on_worker)
    alone = health.cluster("one", looks[1:], looks)
    assert alone["nodes"][0]["problems"] == on_worker, "the other node was asked for another cluster"


def test_names_that_are_none(doit: Tool) -> None:
    for words in (["health", "loca"], ["health:loca"]):
        done = doit.fails(*words)
        assert done.code == 3
        assert "there is no cluster 'loca'\n  did you mean: local?\n  wanted: local, pair" in done.err
    assert "list cannot be made along with a look at health" in doit.fails("health:local", "list").err
    assert "there is no task 'healthy'" in doit.fails("healthy").err


def test_a_node_that_is_not_there(doit: Tool) -> None:
    with socket.socket() as taken:  # bound, and nobody listens: refused
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        more = f'[nodes.dgx2]\nconnection = "ssh"\naddress = "127.0.0.1"\nport = {port}\nstore = "/srv/sparkbuild"\n'
        config(doit.root, more, '"local", "dgx2"')
        done = doit.fails("health", "pair")
        assert done.code == 1
        assert done.out.startswith("pair: 1/2 online\n  local  ")
        assert "  dgx2   offline\n         ! " in done.out
        assert doit.ok("health", "local").code == 0
