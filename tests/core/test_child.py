"""Children: their output is kept, their failure is told, and nothing of their group stays behind."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from sparkbuild.core import child
from sparkbuild.core.errors import ChildError
from sparkbuild.core.interrupt import Cancel, Interrupted


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return False
    return state not in "ZX"


def test_output_goes_to_the_log_and_to_the_listener(tmp_path: Path) -> None:
    lines: list[str] = []
    code = child.run([sys.executable, "-c", "print('one'); print('two')"], log=tmp_path / "a.log", on_line=lines.append)
    assert code == 0
    assert lines == ["one", "two"]
    assert (tmp_path / "a.log").read_text() == "one\ntwo\n"


def test_a_failure_shows_its_last_lines(tmp_path: Path) -> None:
    with pytest.raises(ChildError) as raised:
        child.run([sys.executable, "-c", "print('the reason'); raise SystemExit(3)"], log=tmp_path / "a.log")
    assert "code 3" in raised.value.what
    assert "the reason" in raised.value.found


def test_a_program_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ChildError, match="cannot start"):
        child.run(["/no/such/program"], log=tmp_path / "a.log")


def test_grandchildren_do_not_stay(tmp_path: Path) -> None:
    code = "import subprocess, sys; p = subprocess.Popen(['sleep', '60']); print(p.pid, flush=True)"
    lines: list[str] = []
    child.run([sys.executable, "-c", code], log=tmp_path / "a.log", on_line=lines.append)
    deadline = time.monotonic() + 5
    while alive(int(lines[0])) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not alive(int(lines[0]))


def test_a_stop_ends_the_group_even_when_it_ignores_sigterm(tmp_path: Path) -> None:
    code = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(60)"
    stop = Cancel()
    with (tmp_path / "out").open("wb") as sink:
        process = child.spawn([sys.executable, "-c", code], stdout=sink)
    while not (tmp_path / "out").read_bytes():
        time.sleep(0.02)
    threading.Timer(0.1, stop.stop, args=(signal.SIGINT,)).start()
    start = time.monotonic()
    end = child.end.__defaults__
    child.end.__defaults__ = (0.5,)
    try:
        with pytest.raises(Interrupted) as raised:
            child.reap(process, stop)
    finally:
        child.end.__defaults__ = end
    assert raised.value.code == 130
    assert time.monotonic() - start < 8
    assert not alive(process.pid)
    with pytest.raises(ProcessLookupError):
        os.killpg(process.pid, 0)


def test_last_lines_of_a_long_log(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_text("".join(f"line {n}\n" for n in range(100_000)))
    assert child.last_lines(log, 2) == ["line 99998", "line 99999"]
    assert child.last_lines(tmp_path / "none") == []


def test_a_signal_in_the_middle_of_a_start_loses_no_child(tmp_path: Path) -> None:
    """The exception of a signal must not come between the start of a process and its being known."""
    code = f"""
import os, signal, subprocess, sys, time
from sparkbuild.core import child, interrupt
real = subprocess.Popen
class Slow(real):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        print(self.pid, flush=True)
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(0.2)  # where the interpreter would raise
subprocess.Popen = Slow
with interrupt.handling():
    child.run(["sleep", "60"], log=__import__("pathlib").Path({str(tmp_path / "log")!r}))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 143, done
    assert not alive(int(done.stdout.split()[0]))


def test_once_stopped_only_cleaning_up_is_started() -> None:
    code = """
import signal, subprocess, sys
from sparkbuild.core import child
from sparkbuild.core.interrupt import Interrupted, cancel
cancel.stop(signal.SIGINT)
try:
    child.spawn(["sleep", "60"])
except Interrupted as stop:
    print(stop.code)
process = child.spawn(["true"], final=True)
process.wait()
child.end(process)
print("cleaned")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=False)
    assert done.stdout == "130\ncleaned\n", done
