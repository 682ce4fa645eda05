"""The tether: whatever ends a process, its children end too, and nobody else does."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.workspace_tool import REPOSITORY, is_alive, until

PARENT = """
import os, subprocess, sys, threading, time
sys.path.insert(0, sys.argv[1])
from sparkbuild.core import child
{body}
print("ready", flush=True)
time.sleep(60)
"""

# A thread that ends right after it started a child: what ties a child to its thread would end it here.
BRED = """
def start(argv):
    thread = threading.Thread(target=lambda: print(child.spawn(argv).pid, flush=True))
    thread.start()
    thread.join()
start(["sleep", "60"])
start(["sh", "-c", "trap '' TERM; sleep 60 & echo $! > grandchild; wait"])
start([sys.executable, "-c", "import time; time.sleep(60)"])
"""


def parent(body: str, folder: Path) -> tuple[subprocess.Popen[str], list[int]]:
    """A process that did this and waits, and the numbers it printed."""
    argv = [sys.executable, "-c", PARENT.format(body=body), str(REPOSITORY)]
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, cwd=folder)
    assert process.stdout is not None
    numbers = []
    while (line := process.stdout.readline()) != "ready\n":
        assert line, "it ended"
        numbers.append(int(line))
    return process, numbers


def kill(process: subprocess.Popen[str], number: int = signal.SIGKILL) -> None:
    process.send_signal(number)
    process.communicate()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_children_end_with_a_killed_parent(tmp_path: Path, number: int) -> None:
    process, pids = parent(BRED, tmp_path)
    until(lambda: len(list(tmp_path.iterdir())) and (tmp_path / "grandchild").read_text())
    pids.append(int((tmp_path / "grandchild").read_text()))
    time.sleep(0.1)
    assert all(map(is_alive, pids)), "a child ended with the thread that started it"
    start = time.monotonic()
    kill(process, number)
    until(lambda: not any(map(is_alive, pids)), 10)
    assert time.monotonic() - start < 8


def test_what_was_let_go_is_left_alone(tmp_path: Path) -> None:
    body = """
kept = child.spawn(["sleep", "60"])
mine = subprocess.Popen(["sleep", "60"], start_new_session=True, stdout=subprocess.DEVNULL)
child._tether.hold(mine.pid)
child._tether.release(mine.pid)
child._tether.release(4_000_000)
print(kept.pid, mine.pid, sep="\\n")
"""
    process, (kept, mine) = parent(body, tmp_path)
    try:
        kill(process)
        until(lambda: not is_alive(kept), 5)
        time.sleep(1.3)
        assert is_alive(mine)
    finally:
        os.kill(mine, signal.SIGKILL)


def test_children_that_ended_cost_nothing_and_leave_nobody_behind(tmp_path: Path) -> None:
    body = """
for _ in range(20):
    child.reap(child.spawn(["true"]))
print(child._tether._shell)
"""
    process, (shell,) = parent(body, tmp_path)
    assert is_alive(shell)
    kill(process)
    until(lambda: not is_alive(shell), 0.5)


def test_a_killed_shell_is_replaced(tmp_path: Path) -> None:
    body = """
first = child.spawn(["sleep", "60"])
os.kill(child._tether._shell, 9)
time.sleep(0.1)
second = child.spawn(["sleep", "60"])
print(first.pid, second.pid, sep="\\n")
"""
    process, pids = parent(body, tmp_path)
    kill(process)
    until(lambda: not any(map(is_alive, pids)), 2)


def test_a_ctrl_c_at_the_terminal_is_not_for_the_shell(tmp_path: Path) -> None:
    body = 'pid = child.spawn(["sleep", "60"]).pid\nprint(pid, child._tether._shell, sep="\\n")'
    process, (pid, shell) = parent(body, tmp_path)
    try:
        assert os.getsid(shell) == shell != os.getsid(process.pid)
        assert os.getpgid(pid) == pid
    finally:
        kill(process)
    until(lambda: not is_alive(pid), 2)
