"""A lane in a container, as a node sees it: its record, what keeps it from being written, and its state from docker."""

from __future__ import annotations

import json
import os
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sparkbuild.agent.lane import records
from sparkbuild.agent.machine import procs
from tests.agent.driver import Answer, call, finish, start
from tests.agent.fake_docker import Engine, running
from tests.workspace_tool import is_alive, until

ID = "a" * 64


class Node:
    """One store with a docker engine beside it."""

    def __init__(self, root: Path, engine: Engine) -> None:
        self.store = root / "store"
        self.engine = engine
        self.store.mkdir()

    def call(self, verb: str, **fields: Any) -> Answer:
        shim = f"import sparkbuild.agent.lane.prepare as prepare; prepare.MEMORY = {str(self.store.parent)!r}"
        return call(verb, {"store": str(self.store), "docker": self.engine.path, "recipe": "demo", **fields}, shim=shim)

    def record(self, **changes: Any) -> Answer:
        fixed = {"launch": "l1", "rank": 1, "world_size": 2, "key": "k", "parts": {"port": 8000}, "argv": ["a", "b c"]}
        fixed |= {"host": "10.0.0.2", "port": 0, "model_id": "m", "protect": True, "lock": "demo@1", "container": ID}
        return self.call("record", **{**fixed, **changes})

    def recorded(self, **changes: Any) -> dict[str, Any]:
        answer = self.record(**changes)
        assert answer.code == 0, answer.events
        found: dict[str, Any] = answer.last["record"]
        return found

    def file(self) -> Path:
        return self.store / "lanes/demo/lane.json"

    def fact(self, recipe: str = "demo", runtime: str = "docker", port: int = 8000) -> dict[str, Any]:
        query = {"scheme": "lane", "recipe": recipe, "port": port, "runtime": runtime}
        answer = self.call("facts", queries=[query])
        found: dict[str, Any] = answer.last["facts"][0]
        return found

    def launch_process(self, code: str, recipe: str = "demo") -> dict[str, Any]:
        fixed = {"launch": "l0", "rank": 0, "world_size": 1, "key": "k", "parts": {}, "host": "127.0.0.1", "port": 0}
        argv = [sys.executable, "-c", code]
        answer = self.call("launch", **fixed, recipe=recipe, argv=argv, env={}, model_id="m", lock="demo@1")
        found: dict[str, Any] = answer.last["record"]
        return found


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    with running(tmp_path) as engine:
        here = Node(tmp_path, engine)
        yield here
        for recipe in ("demo", "glm"):
            here.call("stop", recipe=recipe, grace=0)


def test_the_record(node: Node) -> None:
    record = node.recorded(env={"TOKEN": "hf_secret"})
    assert json.loads(node.file().read_text()) == record
    assert stat.S_IMODE(node.file().stat().st_mode) == 0o600
    assert "hf_secret" not in node.file().read_text()
    at = record.pop("launched_at")
    assert at > 1.7e9
    assert 0 <= records.uptime() - record.pop("launched_uptime") < 60
    assert record == {
        "format": "sparkbuild-lane/v1",
        "recipe": "demo",
        "runtime": "docker",
        "launch": "l1",
        "rank": 1,
        "world_size": 2,
        "key": "k",
        "parts": {"port": 8000},
        "container": ID,
        "pid": 0,
        "start_ticks": 0,
        "boot_id": procs.boot_id(),
        "argv": ["a", "b c"],
        "uses": [],
        "host": "10.0.0.2",
        "port": 0,
        "model_id": "m",
        "protect": True,
        "lock": "demo@1",
        "log": "",
        "ready": None,
        "gates": None,
        "served_at": None,
        "stopped_at": None,
    }


@pytest.mark.parametrize("state", ["running", "paused", "restarting"])
def test_a_container_that_lives_is_not_forgotten(node: Node, state: str) -> None:
    before = node.recorded()
    node.engine.add("a", state)
    answer = node.record(launch="l2", container="b" * 64)
    assert (answer.code, answer.last["kind"]) == (1, "engine")
    assert (answer.last["what"], answer.last["found"]) == ("lane demo already runs", f"container {'a' * 12}")
    assert json.loads(node.file().read_text()) == before


@pytest.mark.parametrize("state", ["exited", "created", "dead", ""])
def test_a_dead_one_is(node: Node, state: str) -> None:
    node.recorded()
    if state:
        node.engine.add("a", state)
    assert node.recorded(launch="l2", container="b" * 64)["launch"] == "l2"


def test_a_process_that_lives_is_not_forgotten(node: Node) -> None:
    process = node.launch_process("import time; time.sleep(60)")
    answer = node.record()
    assert (answer.code, answer.last["found"]) == (1, f"process {process['pid']}")
    assert is_alive(process["pid"])


def test_what_a_process_left_behind_is_ended(node: Node) -> None:
    child = "import time; time.sleep(60)"
    code = f"import subprocess, sys; print(subprocess.Popen([sys.executable, '-c', {child!r}]).pid, flush=True)"
    process = node.launch_process(code)
    log = node.store / process["log"]
    until(lambda: log.read_text().strip() and not is_alive(process["pid"]))
    left = int(log.read_text())
    assert is_alive(left)
    assert "ending what the last launch left behind" in node.record().logs
    assert not is_alive(left)


def test_a_port_that_somebody_has(node: Node) -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        port = server.getsockname()[1]
        answer = node.record(rank=0, port=port)
        assert (answer.code, answer.last["kind"]) == (1, "port")
        assert f"process {os.getpid()} of " in answer.last["found"]
        assert not node.file().exists()
    assert node.recorded(rank=0, port=port)["port"] == port


def test_another_agent_at_work(node: Node) -> None:
    node.file().parent.mkdir(parents=True)
    code = "import fcntl, os, sys; fd = os.open(sys.argv[1], 66); fcntl.flock(fd, 2); print(1, flush=True); input()"
    argv = [sys.executable, "-c", code, str(node.file().parent / "lock")]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        other.stdout.readline()
        answer = node.record()
        other.communicate(b"\n")
    assert answer.code == 1
    assert "lane demo is being worked on" in answer.last["what"]


def test_facts_of_a_container(node: Node) -> None:
    node.recorded()
    gone = node.fact()
    assert (gone["alive"], gone["state"], gone["left"], gone["stranger"], gone["docker_problem"]) == (
        False,
        "",
        [],
        "",
        "",
    )
    node.engine.add("a", "running")
    there = node.fact()
    assert (there["alive"], there["listening"], there["answers"]) == (True, False, False), "a worker serves nobody"
    assert there["state"] == "Running a while ago"
    node.engine.containers[0]["State"] = "exited"
    assert node.fact()["alive"] is False


def test_leftovers(node: Node) -> None:
    node.recorded()
    node.engine.add("a", "exited")
    for letter, state in (("b", "running"), ("c", "created"), ("d", "exited")):
        node.engine.add(letter, state, name=f"sparkbuild-demo-{letter}")
    assert [box["id"][0] for box in node.fact()["left"]] == ["b", "c"], "dead ones are kept for their logs"


def test_a_stranger_with_our_name(node: Node) -> None:
    node.engine.add("f", "exited", ours=False)
    fact = node.fact()
    assert fact["stranger"] == "ffffffffffff of image x:1, exited"
    assert (fact["alive"], fact["left"]) == (False, [])


@pytest.mark.parametrize("state", ["running", "exited"])
def test_another_lane_in_docker_holds_the_node(node: Node, state: str) -> None:
    node.recorded(recipe="glm")
    node.engine.add("a", state, recipe="glm")
    expected = ["glm"] if state == "running" else []
    assert node.fact("demo")["others"] == expected
    assert node.fact("demo", runtime="process")["others"] == expected, "a lane that is a process may not join it"


def test_another_lane_that_is_a_process_holds_the_node(node: Node) -> None:
    node.launch_process("import time; time.sleep(60)", recipe="glm")
    assert node.fact("demo")["others"] == ["glm"]


def test_a_lane_that_is_a_process_sees_the_containers_of_other_stores(node: Node) -> None:
    node.engine.add("e", "running", store="elsewhere", by="bob")
    assert [box["id"][0] for box in node.fact("demo", runtime="process")["foreign"]] == ["e"]


def test_a_docker_that_is_not_well(node: Node) -> None:
    node.recorded()
    node.engine.add("a", "running")
    node.engine.broken = True
    fact = node.fact()
    assert (fact["alive"], fact["docker_problem"]) == (False, "dockerd answers 500: it is not well")
    assert node.fact(runtime="process")["docker_problem"], "its last launch was a container"


@pytest.mark.parametrize(
    ("state", "started", "again"),
    [
        ("running", "2026-01-01T00:00:00.000000001Z", ""),
        ("running", "2026-02-03T04:05:06.7Z", "it was started again, by somebody else, at 2026-02-03 04:05:06 UTC"),
        ("paused", "2026-01-01T00:00:00.000000001Z", "it is paused"),
        ("restarting", "2026-01-01T00:00:00.000000001Z", "it is restarting"),
    ],
)
def test_a_container_that_is_not_what_was_launched(node: Node, state: str, started: str, again: str) -> None:
    node.recorded()
    node.engine.add("a", "running")
    node.call("note", launch="l1", set={"started": node.engine.started})
    assert not node.fact()["again"]
    node.engine.started = started
    node.engine.containers[0]["State"] = state
    fact = node.fact()
    assert (fact["alive"], fact["answers"], fact["again"]) == (True, False, again)
    assert not again or fact["problem"] == again


def test_what_becomes_ready_is_what_runs_then(node: Node) -> None:
    node.recorded()
    node.engine.add("a", "running")
    node.call("note", launch="l1", set={"started": "2025-12-31T00:00:00Z"})
    assert node.fact()["again"]
    node.call("note", launch="l1", set={"ready": {"seconds": 1.0, "ttft": 0.1}})
    assert not node.fact()["again"]


def stopped(node: Node) -> dict[str, Any]:
    answer = node.call("stop", grace=1)
    assert answer.code == 0, answer.events
    return answer.last


def test_stopping_names_the_containers_and_touches_none(node: Node) -> None:
    node.recorded()
    for letter, state in (("a", "running"), ("b", "created"), ("c", "exited"), ("d", "paused")):
        node.engine.add(letter, state)
    node.engine.add("e", "running", recipe="glm")
    node.engine.add("f", "running", ours=False)
    done = stopped(node)
    assert [box["id"][0] for box in done["containers"]] == ["a", "b", "d"]
    assert (done["stopped"], done["docker_problem"], done["launch"]) == (False, "", "l1")
    assert not any(path.startswith("/containers/") and "json" not in path for path in node.engine.asked)


def test_only_what_one_launch_started_is_stopped(node: Node) -> None:
    prepared = node.call("prepare", launch="l2", folder="files-0", secrets={"A": "1"}).last["secrets"]
    node.recorded(launch="l2")
    node.engine.add("a", "running", launch="l2")
    node.engine.add("b", "created", name="sparkbuild-demo-b")
    done = node.call("stop", grace=1, launch="l1", by="ann").last
    assert [box["id"][0] for box in done["containers"]] == ["b"]
    node.engine.containers.pop()
    assert node.call("stop", grace=1, launch="l1", by="ann").last["containers"] == []
    assert Path(prepared, "A").exists(), "its secrets are those of the launch that runs"
    assert "stopping" not in json.loads(node.file().read_text())
    done = node.call("stop", grace=1, launch="l2", by="ann").last
    assert [box["id"][0] for box in done["containers"]] == ["a"]
    assert json.loads(node.file().read_text())["stopping"]["by"] == "ann"


def test_a_process_of_another_launch_is_not_stopped(node: Node) -> None:
    pid = node.launch_process("import time; time.sleep(60)")["pid"]
    assert not node.call("stop", grace=1, launch="l9").last["stopped"]
    assert is_alive(pid)
    done = node.call("stop", grace=1, launch="l0", by="ann").last
    assert (done["stopped"], done["pid"]) == (True, pid)
    assert json.loads(node.file().read_text())["stopping"]["by"] == "ann"


def test_where_it_was_launched_is_told_until_it_is_stopped(node: Node) -> None:
    node.recorded(parts={"nodes": ["dgx1", "dgx2"]})
    assert stopped(node)["nodes"] == ["dgx1", "dgx2"]
    node.call("note", launch="l1", set={"stopped_at": 1.0})
    assert stopped(node)["nodes"] == []


def test_a_lane_of_another_store(node: Node) -> None:
    node.engine.add("e", "running", store="elsewhere", by="bob")
    fact = node.fact()
    assert (fact["left"], fact["others"]) == ([], [])
    assert [(box["launch"], box["store"], box["by"]) for box in fact["foreign"]] == [("l1", "elsewhere", "bob")]
    assert [box["id"][0] for box in node.fact("glm")["foreign"]] == ["e"]
    done = stopped(node)
    assert done["containers"] == []
    assert [box["id"][0] for box in done["foreign"]] == ["e"]


def test_secrets_stay_until_nothing_of_the_lane_is_left(node: Node) -> None:
    prepared = node.call("prepare", launch="l1", folder="files-0", secrets={"A": "1"}).last["secrets"]
    node.recorded()
    node.engine.add("a", "running")
    stopped(node)
    assert Path(prepared, "A").exists(), "the container runs on until docker has stopped it"
    node.engine.broken = True
    assert stopped(node)["docker_problem"]
    assert Path(prepared, "A").exists(), "nobody knows whether it runs"
    node.engine.broken = False
    node.engine.containers.clear()
    stopped(node)
    assert not Path(prepared).exists()


def test_stopping_where_docker_is_gone(node: Node) -> None:
    node.recorded()
    done = node.call("stop", docker=f"{node.engine.path}-gone", grace=1).last
    assert "docker is not running" in done["docker_problem"]
    assert node.call("stop", docker="", recipe="never", grace=1).last.get("docker_problem", "") == ""


def watch(node: Node, shim: str = "", **more: str) -> Answer:
    request = {"store": str(node.store), "docker": node.engine.path, "recipe": "demo", "until": "dead", **more}
    return finish(start("watch", request, shim=shim))


def test_watching_a_container_that_is_gone(node: Node) -> None:
    node.recorded()
    answer = watch(node)
    assert (answer.last["alive"], answer.last["state"]) == (False, "the container was removed")
    node.engine.add("a", "exited")
    assert watch(node).last["state"] == "Exited a while ago"


def test_watching_when_docker_does_not_come_back(node: Node) -> None:
    """It is no error of kind `node`: that would be tried again for ever, since the node itself answers."""
    node.recorded()
    node.engine.broken = True
    answer = watch(node, "import sparkbuild.agent.lane.watch as watch; watch._Container.period = 10.0")  # its patience
    assert answer.code == 1
    assert (answer.last["kind"], answer.last["what"]) == ("", "dockerd answers 500: it is not well")


def test_watching_while_docker_is_restarted(node: Node) -> None:
    node.recorded()
    node.engine.add("a", "running")
    node.engine.broken = True
    watching = start("watch", {"store": str(node.store), "docker": node.engine.path, "recipe": "demo"})
    time.sleep(1.0)
    assert watching.poll() is None
    node.engine.broken = False
    time.sleep(0.5)
    node.engine.containers[0]["State"] = "exited"
    answer = finish(watching)
    assert (answer.code, answer.last["alive"]) == (0, False)
    assert all(event["alive"] for event in answer.events[:-2]), "nobody knows, so it is not called dead"


BARS = """
import sys, time
for number in range(4):
    sys.stdout.write(f"\\r shards | {number}/3")
    sys.stdout.flush()
    time.sleep(0.3)
sys.stdout.write("\\r\\nnext\\n" + "x" * 3_000_000)
sys.stdout.flush()
time.sleep(0.5)
print("end")
"""


def test_watching_a_bar_that_is_written_over_and_over(node: Node) -> None:
    node.launch_process(BARS)
    answer = watch(node)
    lines = [line for event in answer.events if event["event"] == "state" for line in event["lines"]]
    assert lines[:5] == [*(f" shards | {number}/3" for number in range(4)), "next"]
    assert lines[5].endswith("xend")
    assert len(lines[5]) <= 65536
    told_early = next(number for number, event in enumerate(answer.events) if event.get("lines"))
    assert answer.events[told_early]["lines"] != lines[:5], "as it is written, not at its end"


def test_watching_a_launch_that_was_replaced_or_stopped(node: Node) -> None:
    node.recorded(launch="l2")
    node.engine.add("a", "running", launch="l2")
    last = watch(node, launch="l1").last
    assert (last["launch"], last["stopping"], last["last_lines"]) == ("l2", None, [])
    node.call("stop", grace=1, by="ann")
    node.engine.containers[0]["State"] = "exited"
    last = watch(node, launch="l2").last
    assert (last["launch"], last["stopping"]["by"]) == ("l2", "ann")
