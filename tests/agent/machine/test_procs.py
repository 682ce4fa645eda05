"""Processes and ports as /proc shows them: real processes, real sockets."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sparkbuild.agent.machine import procs
from tests.workspace_tool import until

Start = Callable[..., subprocess.Popen[str]]

SLEEP = "import time; time.sleep(60)"
LISTEN = """
import socket, sys, time
listener = socket.socket(socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET)
listener.bind((sys.argv[1], 0))
listener.listen()
print(listener.getsockname()[1], flush=True)
time.sleep(60)
"""


@pytest.fixture
def start() -> Iterator[Start]:
    """Start a Python program in a session of its own; all of the session ends with the test."""
    started: list[subprocess.Popen[str]] = []

    def new(code: str, *args: str) -> subprocess.Popen[str]:
        argv = [sys.executable, "-c", code, *args]
        process = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, start_new_session=True)
        started.append(process)
        return process

    yield new
    for process in started:
        for pid in procs.session_of(process.pid):
            os.kill(pid, signal.SIGKILL)
        process.communicate()


def said(process: subprocess.Popen[str]) -> int:
    """The number it printed."""
    assert process.stdout is not None
    return int(process.stdout.readline())


def listening(port: int) -> set[str]:
    return procs.Glance().inodes(port)


def state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]


def test_a_process_is_known_by_pid_start_and_boot(start: Start) -> None:
    pid = start(SLEEP).pid
    ticks, boot = procs.start_ticks(pid), procs.boot_id()
    assert ticks is not None
    assert boot == procs.boot_id() != ""
    assert procs.is_same(pid, ticks, boot)
    assert not procs.is_same(pid, ticks + 1, boot), "the pid was given to another process"
    assert not procs.is_same(pid, ticks, "another-boot")
    assert not procs.is_same(pid, ticks, "")


@pytest.mark.parametrize("pid", [0, -1, 2**22 + 1])
def test_no_such_process(pid: int) -> None:
    assert procs.start_ticks(pid) is None
    assert not procs.is_same(pid, -1, procs.boot_id())
    assert procs.command(pid) == procs.user(pid) == ""


def test_start_ticks_are_the_clocks_since_boot(start: Start) -> None:
    before = float(Path("/proc/uptime").read_text().split()[0])
    ticks = procs.start_ticks(start(SLEEP).pid)
    assert ticks is not None
    assert abs(ticks / os.sysconf("SC_CLK_TCK") - before) < 5


@pytest.mark.parametrize("name", [") R 1 (", "a b) Z", "(((", "\udcff\udcfe"])
def test_a_name_made_to_confuse(tmp_path: Path, name: str) -> None:
    """The kernel puts the program's name in parentheses into the line, as it is."""
    program = tmp_path / name
    program.symlink_to("/bin/sleep")
    with subprocess.Popen([program, "60"]) as process:
        try:
            until(lambda: procs.command(process.pid).endswith("60"))
            seen = procs.start_ticks(process.pid)
            own = procs.start_ticks(os.getpid())
            assert seen is not None
            assert own is not None
            assert seen >= own
        finally:
            process.kill()


def test_a_zombie_is_dead(start: Start) -> None:
    process = start("print(1)")
    until(lambda: state(process.pid) == "Z")
    assert procs.start_ticks(process.pid) is None


def test_a_process_whose_main_thread_ended_first_is_alive(start: Start) -> None:
    code = f"""
import ctypes, threading
threading.Thread(target=lambda: exec({SLEEP!r})).start()
print(1, flush=True)
ctypes.CDLL(None).pthread_exit(None)
"""
    process = start(code)
    said(process)
    until(lambda: state(process.pid) == "Z")
    assert procs.start_ticks(process.pid) is not None


@pytest.mark.parametrize("address", ["127.0.0.1", "0.0.0.0", "::1", "::"])
def test_who_listens(start: Start, address: str) -> None:
    if ":" in address and not Path("/proc/net/if_inet6").exists():
        pytest.skip("no IPv6 here")
    process = start(LISTEN, address)
    port = said(process)
    inodes = listening(port)
    assert procs.owns_socket({os.getpid(), process.pid}, inodes) == process.pid
    assert procs.owns_socket({os.getpid()}, inodes) is None
    holder = procs.holder(port)
    assert holder is not None
    assert holder["pid"] == process.pid
    assert holder["command"].startswith(sys.executable)
    assert len(holder["command"]) <= 204
    assert holder["user"] == procs.user(os.getpid()) != ""
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert not listening(port)
    assert procs.holder(port) is None


def test_a_connection_or_a_bound_port_is_no_listener() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.socket() as bound:
        port = listener.getsockname()[1]
        bound.bind(("127.0.0.1", 0))
        with socket.create_connection(("127.0.0.1", port)) as client, listener.accept()[0]:
            assert not listening(client.getsockname()[1])
        assert not listening(bound.getsockname()[1])
        listener.settimeout(0.2)
        assert procs.holder(port) is not None
        with pytest.raises(TimeoutError):
            listener.accept()  # looking opened no connection


def test_a_socket_that_several_processes_hold(start: Start) -> None:
    """A server that forks workers: the port is held until the last of them is gone."""
    process = start(
        LISTEN.replace("time.sleep", "import os; w = os.fork(); w and print(w, flush=True); time.sleep"), "127.0.0.1"
    )
    port, worker = said(process), said(process)
    os.kill(process.pid, signal.SIGKILL)
    until(lambda: state(process.pid) == "Z")
    holder = procs.holder(port)
    assert holder is not None
    assert holder["pid"] == worker


def test_a_session_holds_all_descendants_but_those_that_left(start: Start) -> None:
    code = f"""
import subprocess, sys
for new in (False, True):
    print(subprocess.Popen([sys.executable, "-c", {SLEEP!r}], start_new_session=new).pid, flush=True)
{SLEEP}
"""
    process = start(code)
    inside, outside = said(process), said(process)
    try:
        assert procs.session_of(process.pid) == {process.pid, inside}
        assert procs.session_of(outside) == {outside}
        assert procs.session_of(inside) == set(), "no session is led by it"
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        assert procs.session_of(process.pid) == {inside}, "the session outlives its leader"
    finally:
        os.kill(outside, signal.SIGKILL)
        os.kill(inside, signal.SIGKILL)


def test_a_glance_is_one_moment(start: Start) -> None:
    glance = procs.Glance()
    assert not glance.inodes(0)
    process = start(LISTEN, "127.0.0.1")
    port = said(process)
    assert not glance.inodes(port)
    assert listening(port)
    assert process.pid in glance.session_of(process.pid), "sessions are read when first asked for"


def test_processes_are_found_by_their_mark(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever they did to their parent, group and session."""
    mark = f"SPARKBUILD_TEST=lanes/demo/{os.getpid()}.log"
    monkeypatch.setenv(*mark.split("="))
    code = """
import os, time
if not os.fork():
    os.setsid()
    if os.fork():
        os._exit(0)
    print(os.getpid(), flush=True)
time.sleep(60)
"""
    process = start(code)
    daemon = said(process)
    try:
        assert daemon not in procs.session_of(process.pid)
        assert {process.pid, daemon} <= procs.marked(mark)
        assert procs.marked(mark[:-1]) == procs.marked(mark + "x") == set()
    finally:
        os.kill(daemon, signal.SIGKILL)


def test_no_more_of_a_command_line_is_told_than_names_it(start: Start) -> None:
    process = start(SLEEP, "--token", "hunter2")
    until(lambda: procs.command(process.pid).startswith(sys.executable))
    told = procs.command(process.pid)
    assert told.startswith(f"{sys.executable} -c ")
    assert told.endswith(" ...")
    assert "hunter2" not in told
    assert len(procs.command(start("pass;" * 200 + SLEEP).pid)) <= 204
