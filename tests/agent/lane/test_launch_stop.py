"""A lane on a node: started so that no kill leaves an engine without a record, ended so that nothing stays behind."""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from sparkbuild.agent.lane import launch, records
from sparkbuild.agent.machine import procs
from tests.agent.driver import Answer, call, finish, start
from tests.workspace_tool import is_alive, until

# A tiny engine. It says who it is, then serves like one: /health and /v1/models, and "down" makes it answer 503.
ENGINE = """
import http.server, json, os, signal, socketserver, subprocess, sys, time
port, *how = sys.argv[1:]
if "deaf" in how:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
if "family" in how:
    sleep = "import time; time.sleep(60)"
    deaf = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); " + sleep
    inside = subprocess.Popen([sys.executable, "-c", deaf], stdout=subprocess.PIPE)
    inside.stdout.readline()
    outside = subprocess.Popen([sys.executable, "-c", sleep], start_new_session=True)
    print("family", inside.pid, outside.pid, flush=True)
print("engine", os.getpid(), os.environ.get("TOKEN"), os.environ.get("SHELL_ONLY"), flush=True)
if "die" in how:
    print("CUDA error: out of memory", file=sys.stderr, flush=True)
    sys.stdout.write("no newline at the end")
    sys.exit(3)
if "slow" in how:
    time.sleep(1)
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        print(self.command, self.path, flush=True)
        body = json.dumps({"data": [{"id": "m"}]}).encode()
        self.send_response(503 if "down" in how else 200)
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *args):
        pass
class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = allow_reuse_address = True
if "six" in how:
    Server.address_family = 10
host = next((one[3:] for one in how if one.startswith("at=")), "127.0.0.1")
Server((host, int(port)), Handler).serve_forever()
"""


@pytest.fixture
def port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        found: int = free.getsockname()[1]
        return found


LAUNCHES = count(1)


class Node:
    """One store, and the agent's verbs on it."""

    def __init__(self, root: Path, port: int) -> None:
        self.store = root / "store"
        self.store.mkdir()
        self.engine = root / "engine.py"
        self.engine.write_text(ENGINE)
        self.port = port

    def request(self, *how: str, recipe: str = "demo", **more: Any) -> dict[str, Any]:
        argv = [sys.executable, str(self.engine), str(self.port), *how]
        fixed = {"key": "k", "parts": {"port": self.port}, "host": "127.0.0.1", "model_id": "m", "lock": "demo@1"}
        fixed |= {"launch": f"l{next(LAUNCHES)}", "rank": 0, "world_size": 1}
        own = {"store": str(self.store), "recipe": recipe, "argv": argv, "env": {}, "port": self.port, "protect": False}
        return {**fixed, **own, **more}

    def launch(self, *how: str, **more: Any) -> Answer:
        return call("launch", self.request(*how, **more))

    def started(self, *how: str, **more: Any) -> dict[str, Any]:
        """Launch, and wait until it said who it is."""
        answer = self.launch(*how, **more)
        assert answer.code == 0, answer.events
        record: dict[str, Any] = answer.last["record"]
        until(lambda: f"engine {record['pid']} " in self.log(record))
        return record

    def stop(self, grace: float = 5.0, recipe: str = "demo") -> dict[str, Any]:
        answer = call("stop", {"store": str(self.store), "recipe": recipe, "grace": grace})
        assert answer.code == 0, answer.events
        return {name: answer.last[name] for name in ("stopped", "pid", "killed")}

    def record(self, recipe: str = "demo") -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.store / f"lanes/{recipe}/lane.json").read_text())
        return found

    def log(self, record: dict[str, Any]) -> str:
        return (self.store / record["log"]).read_text()

    def fact(self, recipe: str = "demo", port: int | None = None) -> dict[str, Any]:
        query = {"scheme": "lane", "recipe": recipe, "port": port or self.port}
        answer = call("facts", {"store": str(self.store), "queries": [query]})
        fact: dict[str, Any] = answer.last["facts"][0]
        return fact

    def listens(self) -> bool:
        return bool(procs.Glance().inodes(self.port))

    def clean(self) -> None:
        """End whatever still carries the mark of one of this store's launches."""
        for log in (self.store / "lanes").glob("*/*.log"):
            for pid in procs.marked(f"SPARKBUILD_LANE={log.relative_to(self.store)}"):
                os.kill(pid, signal.SIGKILL)


@pytest.fixture
def node(tmp_path: Path, port: int) -> Iterator[Node]:
    here = Node(tmp_path, port)
    yield here
    here.clean()


NOT_STOPPED = {"stopped": False, "pid": 0, "killed": False}


def test_a_launch_and_its_record(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHELL_ONLY", "the operator's")
    record = node.started(env={"TOKEN": "hf_secret"})
    assert node.record() == record
    assert procs.is_same(record["pid"], record["start_ticks"], record["boot_id"])
    assert (record["ready"], record["gates"], record["served_at"], record["stopped_at"]) == (None,) * 4
    assert record["argv"][0] == sys.executable
    assert f"engine {record['pid']} hf_secret None\n" in node.log(record)
    assert os.getsid(record["pid"]) == record["pid"], "it leads a session, and outlives whoever launched it"
    file = node.store / "lanes/demo/lane.json"
    assert "hf_secret" not in file.read_text()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert b"hf_secret" not in Path(f"/proc/{record['pid']}/cmdline").read_bytes()


def test_facts_of_a_lane(node: Node) -> None:
    fact = node.fact()
    assert abs(fact.pop("now") - time.time()) < 5
    assert fact == {
        "record": None,
        "alive": False,
        "listening": False,
        "answers": False,
        "port_holder": None,
        "others": [],
    }
    node.started("slow")
    starting = node.fact()
    assert (starting["alive"], starting["listening"], starting["answers"]) == (True, False, False)
    until(node.listens)
    serving = node.fact()
    assert (serving["alive"], serving["listening"], serving["answers"]) == (True, True, True)
    assert serving["served_ids"] == ["m"]
    assert serving["port_holder"] is None
    node.stop()
    gone = node.fact()
    assert (gone["alive"], gone["listening"], gone["answers"]) == (False, False, False)
    assert gone["record"]["stopped_at"]


PLACES = [("at=127.0.0.1",), ("at=0.0.0.0",), ("at=127.0.0.7",), ("at=::", "six"), ("at=::1", "six")]


@pytest.mark.parametrize("how", PLACES)
def test_a_node_asks_its_lane_where_that_listens(node: Node, how: tuple[str, ...]) -> None:
    node.started(*how, host="a-name-of-the-operators-own.invalid")
    until(node.listens)
    fact = node.fact()
    assert (fact["answers"], fact.get("problem")) == (True, None)
    there = call("facts", {"store": str(node.store), "queries": [{"scheme": "listener", "port": node.port}]})
    (heard,) = there.last["facts"]
    wanted = {"0.0.0.0": ["127.0.0.1"], "::": ["127.0.0.1", "::1"]}
    assert heard["addresses"] == wanted.get(how[0][3:], [how[0][3:]])
    node.stop()


def test_a_lane_that_listens_and_is_not_well(node: Node) -> None:
    node.started("down")
    until(node.listens)
    fact = node.fact()
    assert (fact["alive"], fact["listening"], fact["answers"]) == (True, True, False)
    assert fact["problem"] == "/health answers 503"


def test_stopping(node: Node) -> None:
    assert node.stop() == NOT_STOPPED
    record = node.started()
    until(node.listens)
    assert node.stop() == {"stopped": True, "pid": record["pid"], "killed": False}
    assert not is_alive(record["pid"])
    assert not node.listens()
    assert node.record()["stopped_at"] >= record["launched_at"]
    assert node.stop() == NOT_STOPPED
    assert "engine" in node.log(record), "the log outlives the lane"


def test_an_engine_that_ignores_sigterm_is_killed_after_the_grace(node: Node) -> None:
    record = node.started("deaf")
    begun = time.monotonic()
    assert node.stop(grace=0.5) == {"stopped": True, "pid": record["pid"], "killed": True}
    assert 0.5 <= time.monotonic() - begun < 10
    assert not is_alive(record["pid"])


def family(node: Node, record: dict[str, Any]) -> list[int]:
    return [int(word) for word in node.log(record).split("family ")[1].splitlines()[0].split()]


def test_grandchildren_end_too_even_those_that_left_the_session(node: Node) -> None:
    record = node.started("family")
    inside, outside = family(node, record)
    assert node.stop(grace=0.5)["killed"], "one of them ignores SIGTERM"
    assert not any(map(is_alive, (record["pid"], inside, outside)))


def test_a_new_launch_ends_what_a_dead_engine_left_behind(node: Node) -> None:
    first = node.started("family", "die")
    inside, outside = family(node, first)
    until(lambda: not is_alive(first["pid"]))
    assert is_alive(inside)
    second = node.started()
    assert second["pid"] != first["pid"]
    assert not is_alive(inside)
    assert not is_alive(outside)


def test_stop_touches_no_other_lane(node: Node, tmp_path: Path) -> None:
    """Not in the same store, not in another one, not one of the same name that was launched in the same second."""
    mine = node.started()
    neighbours = []
    for name in ("a", "b"):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            other_port = free.getsockname()[1]
        (tmp_path / name).mkdir()
        other = node if name == "a" else Node(tmp_path / name, other_port)
        argv = [sys.executable, str(node.engine), str(other_port)]
        recipe = "other" if name == "a" else "demo"
        neighbours.append((other, other.started(recipe=recipe, argv=argv, port=other_port)))
    assert node.stop()["stopped"]
    assert not is_alive(mine["pid"])
    assert all(is_alive(record["pid"]) for _, record in neighbours)
    for other, _ in neighbours:
        other.clean()


def test_a_reused_pid_is_not_stopped(node: Node) -> None:
    """The record names another process by now: its start time, or the boot, is not the recorded one."""
    with subprocess.Popen(["sleep", "60"], start_new_session=True) as bystander:
        try:
            record = node.started("die")
            until(lambda: not procs.marked(records.mark(record["log"])))  # what keeps its log ends a moment later
            path = node.store / "lanes/demo/lane.json"
            path.write_text(json.dumps({**record, "pid": bystander.pid}))
            assert node.stop() == NOT_STOPPED
            assert not node.fact()["alive"]
            ticks = procs.start_ticks(bystander.pid)
            path.write_text(json.dumps({**record, "pid": bystander.pid, "start_ticks": ticks, "boot_id": "before"}))
            assert node.stop() == NOT_STOPPED
            assert is_alive(bystander.pid)
        finally:
            bystander.kill()


def test_one_lane_of_a_recipe_at_a_time(node: Node) -> None:
    record = node.started()
    answer = node.launch()
    assert answer.code == 1
    assert (answer.last["kind"], answer.last["what"]) == ("engine", "lane demo already runs")
    assert answer.last["found"] == f"process {record['pid']}"
    assert node.record() == record


def test_a_port_held_by_another_program(node: Node) -> None:
    with socket.create_server(("127.0.0.1", node.port)):
        answer = node.launch()
    error = answer.last
    assert (error["kind"], error["what"]) == ("port", f"port {node.port} is in use")
    assert error["found"].startswith(f"process {os.getpid()} of ")
    assert "serve.port" in error["next"]
    assert not (node.store / "lanes/demo/lane.json").exists()
    assert list((node.store / "lanes/demo").glob("*.log")) == []


def test_a_port_held_by_another_lane(node: Node) -> None:
    node.started(recipe="first")
    until(node.listens)
    error = node.launch(recipe="second").last
    assert error["found"].startswith("lane first (process ")
    assert error["next"] == "doit stop:first"
    assert node.fact("second")["port_holder"]["lane"] == "first"


def test_a_port_of_a_lane_that_does_not_listen_yet(node: Node) -> None:
    """An engine that loads its weights for an hour has its port from its launch on."""
    loading = [sys.executable, "-c", "import time; time.sleep(60)"]
    assert node.launch(recipe="first", argv=loading).code == 0
    holder = node.fact("second")["port_holder"]
    assert (holder["lane"], holder["pid"]) == ("first", node.record("first")["pid"])
    error = node.launch(recipe="second").last
    assert (error["kind"], error["next"]) == ("port", "doit stop:first")
    assert error["found"].startswith("lane first (process ")
    assert not (node.store / "lanes/second/lane.json").exists()
    assert node.fact("first")["port_holder"] is None
    node.stop(recipe="first")
    assert node.launch(recipe="second", argv=loading).code == 0


def test_two_launches_on_one_port_at_the_same_moment(node: Node) -> None:
    """Both look before either has written its record: one of them waits for the other."""
    loading = [sys.executable, "-c", "import time; time.sleep(60)"]
    slow = "import time, sparkbuild.agent.lane.launch as l; check = l.check_port\n"
    slow += "def wait(*a): check(*a); time.sleep(1.0)\nl.check_port = wait"
    both = [start("launch", node.request(recipe=name, argv=loading), shim=slow) for name in ("one", "other")]
    ends = [finish(process) for process in both]
    assert sorted(end.code for end in ends) == [0, 1]
    won, lost = ("one", "other") if ends[0].code == 0 else ("other", "one")
    error = next(end.last for end in ends if end.code)
    assert error["found"].startswith(f"lane {won} (process ")
    assert not (node.store / f"lanes/{lost}/lane.json").exists()


def test_the_record_is_on_the_disk_before_the_engine_runs(node: Node) -> None:
    """The agent is killed after it wrote the record, before it lets the engine go."""
    shim = "import os, signal; write = os.write\n"
    shim += "def kill(fd, data): return os.kill(os.getpid(), 9) if data == b'1' else write(fd, data)\nos.write = kill"
    assert call("launch", node.request(), shim=shim).code == -signal.SIGKILL
    record = node.record()
    until(lambda: not is_alive(record["pid"]), 5)
    assert node.log(record) == "", "it never became the engine"
    assert not node.fact()["alive"]
    assert node.started()["pid"] != record["pid"]


def test_an_agent_killed_before_the_record_leaves_no_engine(node: Node) -> None:
    shim = "import os, sparkbuild.agent.lane.records as l\nl.write = lambda *a: os.kill(os.getpid(), 9)"
    assert call("launch", node.request(), shim=shim).code == -signal.SIGKILL
    assert not (node.store / "lanes/demo/lane.json").exists()
    (log,) = (node.store / "lanes/demo").glob("*.log")
    mark = f"SPARKBUILD_LANE={log.relative_to(node.store)}"
    until(lambda: not procs.marked(mark), 5)
    assert log.read_text() == ""


def test_a_full_disk_leaves_no_engine(node: Node) -> None:
    shim = (
        "import sparkbuild.agent.lane.records as l\ndef full(*a): raise OSError(28, 'No space left on device')\n"
        "l.write = full"
    )
    answer = call("launch", node.request(), shim=shim)
    assert (answer.code, answer.last["kind"]) == (1, "space")
    (log,) = (node.store / "lanes/demo").glob("*.log")
    until(lambda: not procs.marked(f"SPARKBUILD_LANE={log.relative_to(node.store)}"), 5)


def test_a_program_that_is_not_there(node: Node) -> None:
    answer = node.launch(argv=["/no/such/engine"])
    record = answer.last["record"]
    until(lambda: not is_alive(record["pid"]))
    assert node.log(record) == "cannot start /no/such/engine: No such file or directory\n"
    assert node.fact()["last_lines"] == ["cannot start /no/such/engine: No such file or directory"]


def test_a_launch_while_another_is_at_it_is_refused(node: Node) -> None:
    slow = "import time, sparkbuild.agent.lane.launch as l; check = l.check_port\n"
    slow += "def wait(*a): time.sleep(1.5); check(*a)\nl.check_port = wait"
    first = start("launch", node.request(), shim=slow)
    until((node.store / "lanes/demo/lock").exists)
    time.sleep(0.3)
    second = node.launch()
    assert second.code == 1
    assert "being worked on by another process" in second.last["what"]
    assert finish(first).code == 0


def test_old_logs_are_removed_and_the_newest_stay(node: Node) -> None:
    folder = node.store / "lanes/demo"
    folder.mkdir(parents=True)
    old = [f"2026010{day}T000000Z.log" for day in range(1, 9)] + [
        f"202601{day}T000000Z-00ff.log" for day in (10, 11, 12)
    ]
    for name in old:
        (folder / name).write_text(name)
    record = node.started()
    names = sorted(path.name for path in folder.glob("*.log"))
    assert len(names) == launch.KEEP_LOGS
    assert names[:-1] == old[-launch.KEEP_LOGS + 1 :]
    assert names[-1] == os.path.basename(record["log"])


def watch(node: Node, till: str) -> subprocess.Popen[bytes]:
    return start("watch", {"store": str(node.store), "recipe": "demo", "until": till})


def test_watching_until_it_listens(node: Node) -> None:
    record = node.started("slow")
    answer = finish(watch(node, "listening"))
    states = [event for event in answer.events if event["event"] == "state"]
    assert (states[0]["alive"], states[0]["listening"]) == (True, False)
    assert [line for state in states for line in state["lines"]] == [f"engine {record['pid']} None None"]
    assert (answer.last["alive"], answer.last["listening"]) == (True, True)
    assert "GET" not in node.log(record), "watching opens no connection"


def test_watching_a_lane_that_dies(node: Node) -> None:
    node.started("slow", "family")
    watching = watch(node, "dead")
    time.sleep(0.3)
    os.kill(node.record()["pid"], signal.SIGKILL)
    answer = finish(watching)
    assert (answer.code, answer.last["alive"]) == (0, False)
    assert answer.last["last_lines"][-1].startswith("engine ")


def test_a_lane_that_dies_at_once_tells_its_last_words(node: Node) -> None:
    node.started("die")
    answer = finish(watch(node, "dead"))
    assert answer.last["last_lines"][-2:] == ["CUDA error: out of memory", "no newline at the end"]
    assert node.fact()["last_lines"][-1] == "no newline at the end"


def test_watching_what_was_never_started(node: Node) -> None:
    answer = finish(watch(node, "dead"))
    assert (answer.code, answer.last["kind"]) == (1, "engine")


def tail(node: Node, lines: int = 100, *, follow: bool = False) -> subprocess.Popen[bytes]:
    return start("tail", {"store": str(node.store), "recipe": "demo", "lines": lines, "follow": follow})


def test_the_log_of_a_dead_lane_can_be_read(node: Node) -> None:
    record = node.started("die")
    until(lambda: not is_alive(record["pid"]))
    answer = finish(tail(node))
    assert answer.logs.splitlines()[-2:] == ["CUDA error: out of memory", "no newline at the end"]
    assert answer.last["alive"] is False
    assert finish(tail(node, 1)).logs == "no newline at the end"


def test_following_a_log_ends_with_the_lane_and_misses_nothing(node: Node) -> None:
    record = node.started()
    until(node.listens)
    following = tail(node, follow=True)
    time.sleep(0.3)
    node.fact()  # it asks the engine, which says so in its log
    node.stop()
    answer = finish(following)
    assert answer.logs.splitlines() == [f"engine {record['pid']} None None", "GET /health", "GET /v1/models"]


def test_the_log_of_a_lane_that_never_was(node: Node) -> None:
    answer = finish(tail(node))
    assert (answer.code, answer.last["kind"], answer.last["next"]) == (1, "engine", "doit serve:demo")


def note(node: Node, launch: str, fields: dict[str, Any]) -> Answer:
    return call("note", {"store": str(node.store), "recipe": "demo", "launch": launch, "set": fields})


def test_notes_are_kept_in_the_record_of_that_very_launch(node: Node) -> None:
    record = node.started()
    noted = note(node, record["launch"], {"ready": {"seconds": 1.0}, "served_at": 5.0, "pid": 1, "log": "/etc/passwd"})
    at = node.record()["served_at"]
    assert abs(at - time.time()) < 5, "the node's own time, whatever the caller's clock says"
    assert noted.last["record"] == node.record() == {**record, "ready": {"seconds": 1.0}, "served_at": at}
    refused = note(node, "another", {"served_at": 6.0})
    assert (refused.code, refused.last["what"]) == (1, "lane demo was replaced meanwhile")
    assert node.record()["served_at"] == at


def test_what_is_noted_while_a_lane_is_stopped_is_kept(node: Node) -> None:
    record = node.started("deaf")
    stopping = start("stop", {"store": str(node.store), "recipe": "demo", "grace": 2.0, "by": "ann"})
    until(lambda: "stopping" in node.record())
    assert note(node, record["launch"], {"served_at": 1, "protect": True}).code == 0
    assert finish(stopping).last["killed"]
    kept = node.record()
    assert kept["served_at"]
    assert kept["protect"]
    assert kept["stopped_at"]
    assert kept["stopping"]["by"] == "ann"


def test_changes_of_a_record_at_the_same_time_are_all_kept(node: Node) -> None:
    node.started()
    names = [f"/srv/{number}" for number in range(16)]

    def use(name: str) -> None:
        records.change(str(node.store), "demo", None, lambda last: {**last, "uses": [*last["uses"], name]})

    threads = [threading.Thread(target=use, args=(name,)) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(node.record()["uses"]) == sorted(names)


def test_a_late_change_does_not_undo_a_new_launch(node: Node) -> None:
    first = node.started()
    node.stop()
    second = node.started()
    assert records.change(str(node.store), "demo", first["launch"], lambda last: {**last, "pid": 1}) is None
    assert node.record() == second
    assert records.change(str(node.store), "never", None, lambda last: last) is None
    assert not (node.store / "lanes/never").exists()


@pytest.mark.parametrize("text", ["", "{", "[]", '{"format": "another"}', '{"format": "sparkbuild-lane/v1"}'])
def test_a_damaged_record_is_no_lane_and_no_crash(node: Node, text: str) -> None:
    (node.store / "lanes/demo").mkdir(parents=True)
    (node.store / "lanes/demo/lane.json").write_text(text)
    fact = node.fact()
    assert not fact.get("alive")
    assert node.stop() == NOT_STOPPED
    assert node.started()["pid"]
