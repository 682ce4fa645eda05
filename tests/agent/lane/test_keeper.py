"""What writes the log of a process lane: bounded, for the user alone, to the last word, and with how it ended."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sparkbuild.agent.lane import ending, keeper
from sparkbuild.agent.machine import procs
from tests.agent.driver import Answer, call, finish, start
from tests.agent.lane.test_launch_stop import Node
from tests.engine import free_port
from tests.workspace_tool import until


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    here = Node(tmp_path, free_port())
    yield here
    here.clean()


def launched(node: Node, code: str) -> dict[str, Any]:
    answer = node.launch(argv=[sys.executable, "-u", "-c", code], port=0)
    assert answer.code == 0, answer.events
    found: dict[str, Any] = answer.last["record"]
    return found


def gone(record: dict[str, Any]) -> None:
    mark = f"SPARKBUILD_LANE={record['log']}"
    until(lambda: not procs.marked(mark))


def watched(node: Node) -> dict[str, Any]:
    answer: Answer = call("watch", {"store": str(node.store), "recipe": "demo", "until": "dead"})
    return answer.last


@pytest.mark.parametrize(
    ("code", "how"),
    [
        ("print('bye'); raise SystemExit(3)", "exit code 3"),
        ("raise SystemExit(0)", "exit code 0"),
        ("import os; print('x', flush=True); os.kill(os.getpid(), 11)", "killed by SIGSEGV"),
        ("import os; os.kill(os.getpid(), 9)", "killed by SIGKILL"),
        ("import os; os.close(1); os.close(2); raise SystemExit(4)", "exit code 4"),
    ],
)
def test_how_it_ended_is_told(node: Node, code: str, how: str) -> None:
    record = launched(node, code)
    gone(record)
    assert watched(node)["state"].startswith(how)
    assert node.fact()["state"].startswith(how)


def test_a_program_that_is_not_there(node: Node) -> None:
    node.launch(argv=["/no/such/program"], port=0)
    gone(node.record())
    assert "cannot start /no/such/program: No such file or directory" in node.log(node.record())
    assert watched(node)["state"] == "exit code 127"


LAST_WORDS = """
import signal, sys, time
signal.signal(15, lambda *_: (print("last words"), sys.exit(0)))
print("started")
time.sleep(60)
"""


def test_one_that_was_stopped_has_its_last_words(node: Node) -> None:
    record = launched(node, LAST_WORDS)
    until(lambda: "started" in node.log(record))
    assert node.stop()["killed"] is False
    assert "last words" in node.log(record)


def test_the_command_is_that_of_the_engine_alone(node: Node) -> None:
    """Who looks for it among the processes takes no keeper for an engine."""
    record = launched(node, "import time; time.sleep(4711)")
    mark = f"SPARKBUILD_LANE={record['log']}"
    commands = {pid: Path(f"/proc/{pid}/cmdline").read_bytes() for pid in procs.marked(mark)}
    assert [pid for pid, command in commands.items() if b"4711" in command] == [record["pid"]]
    assert len(commands) == 2
    node.stop()


def test_a_log_is_of_the_user_alone(node: Node) -> None:
    record = launched(node, "import time; time.sleep(60)")
    assert stat.S_IMODE((node.store / record["log"]).stat().st_mode) == 0o600


def test_children_that_hold_the_pipe_do_not_hide_the_end(node: Node) -> None:
    code = (
        "import subprocess, sys; subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)']); sys.exit(5)"
    )
    record = launched(node, code)
    until((node.store / f"{record['log']}.end").exists)
    assert json.loads((node.store / f"{record['log']}.end").read_text()) == {"code": 5}
    node.stop()


LOUD = "for number in range(60000): print(number)\n"


def keep(path: Path, limit: int, code: str) -> int:
    """The keeper by itself, with another bound; the code of the engine."""
    go_read, go_write = os.pipe()
    told_read, told_write = os.pipe()
    shim = f"import sys; sys.path.insert(0, {str(Path(keeper.__file__).parents[3])!r})\n"
    shim += f"from sparkbuild.agent.lane import keeper; keeper.LIMIT = {limit}; keeper.main(sys.argv[1:])"
    argv = [sys.executable, "-c", shim, str(path), str(go_read), str(told_write)]
    process = subprocess.Popen(argv, pass_fds=(go_read, told_write), stdin=subprocess.PIPE)
    assert process.stdin is not None
    process.stdin.write(json.dumps([sys.executable, "-u", "-c", code]).encode())
    process.stdin.close()
    os.write(go_write, b"1")
    assert process.wait(timeout=60) == 0
    for descriptor in (go_read, go_write, told_read, told_write):
        os.close(descriptor)
    return int(json.loads(Path(f"{path}.end").read_text())["code"])


def test_a_log_has_a_bound(tmp_path: Path) -> None:
    path = tmp_path / "log"
    assert keep(path, 100_000, LOUD) == 0
    assert path.stat().st_size <= 100_000
    assert Path(f"{path}.1").stat().st_size <= 100_000
    assert sorted(one.name for one in tmp_path.iterdir()) == ["log", "log.1", "log.end"]
    both = (Path(f"{path}.1").read_text() + path.read_text()).splitlines()
    assert both[-1] == "59999"
    assert list(map(int, both[1:])) == list(range(60_000 - len(both) + 1, 60_000)), "nothing is lost between the two"


def test_a_log_that_cannot_be_written_does_not_end_the_engine(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.symlink_to("/dev/full")
    with pytest.raises((AssertionError, FileNotFoundError)):  # a link is not followed: nothing is started
        keep(path, 100, LOUD)


def test_following_goes_on_in_the_next_file(node: Node) -> None:
    record = launched(node, "import time; print('one'); time.sleep(60)")
    log = node.store / record["log"]
    until(lambda: "one" in log.read_text())
    request = {"store": str(node.store), "recipe": "demo", "lines": 10, "follow": True}
    process = start("tail", request)
    fds = Path(f"/proc/{process.pid}/fd")
    until(lambda: str(log) in {os.readlink(one) for one in fds.iterdir() if one.is_symlink()})
    time.sleep(0.5)
    os.rename(log, f"{log}.1")
    log.write_text("two\n")
    time.sleep(0.5)
    os.kill(record["pid"], signal.SIGKILL)
    answer = finish(process)
    texts = [event["text"] for event in answer.events if event["event"] == "log"]
    assert texts[:2] == ["one", "two"]


@pytest.mark.parametrize(
    ("state", "says"),
    [
        ({"ExitCode": 3}, "Exited (3) a second ago"),
        ({"ExitCode": 139}, "by SIGSEGV"),
        ({"ExitCode": 137}, "by SIGKILL, which the kernel sends when a node has no memory left"),
        ({"ExitCode": 137, "OOMKilled": True}, "out of memory: the kernel killed it at the limit of its container"),
        ({"ExitCode": 128, "Error": "exec: \x1b[31m"}, "exec:"),
    ],
)
def test_how_a_container_ended(state: dict[str, Any], says: str) -> None:
    told = ending.told(state, f"Exited ({state['ExitCode']}) a second ago")
    assert says in told
    assert told.isprintable()


def test_a_node_without_memory_is_told_of_what_was_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "log.end").write_text('{"code": -9}')
    monkeypatch.setattr(ending, "oom_kills", lambda: 7)
    record: Any = {"log": "log", "oom_kills": 5}
    text = "killed by SIGKILL, the kernel killed 2 processes of this node for want of memory since it was launched"
    assert ending.of_process(record, str(tmp_path)) == text
    (tmp_path / "log.end").write_text('{"code": 1}')
    assert ending.of_process(record, str(tmp_path)) == "exit code 1"
    assert ending.of_process({**record, "log": "gone", "oom_kills": 7}, str(tmp_path)) == ""
