"""Signals that come at a bad moment: as processes, since it is the main thread of one that takes them."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from tests.workspace_tool import REPOSITORY

# The signal is taken by another thread while the main thread waits for a lock without a limit: for Python that is the
# same as one that came between its last look and the wait. Nothing ends that wait but the handler's exception.
WAITING = """
import queue, signal, threading, time
from sparkbuild.core.interrupt import Interrupted, cancel, handling

def take():
    time.sleep(0.3)
    signal.pthread_kill(threading.get_ident(), {number})

with handling():
    for _ in range({times}):
        threading.Thread(target=take, daemon=True).start()
        try:
            queue.Queue().get()
        except Interrupted as stop:
            last = stop
raise last
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("times", [1, 3])
def test_a_signal_just_before_a_wait_is_not_lost(number: int, times: int) -> None:
    code = WAITING.format(number=int(number), times=times)
    done = subprocess.run([sys.executable, "-c", code], cwd=REPOSITORY, timeout=30, check=False, capture_output=True)
    assert (done.returncode, done.stderr) == (128 + number, b"")


LEAVING = """
import os, signal, threading
from sparkbuild.core.interrupt import Cancel, handling

before = os.listdir("/proc/self/fd"), threading.active_count(), signal.set_wakeup_fd(-1)
for _ in range(3):
    with handling(Cancel()):
        os.kill(os.getpid(), signal.SIGURG)
    after = os.listdir("/proc/self/fd"), threading.active_count(), signal.set_wakeup_fd(-1)
    assert after == before, (before, after)
    assert signal.getsignal(signal.SIGTERM) == signal.getsignal(signal.SIGURG) == signal.SIG_DFL
"""


def test_nothing_of_it_stays() -> None:
    subprocess.run([sys.executable, "-c", LEAVING], cwd=REPOSITORY, timeout=30, check=True)


# One signal comes twice in a row, as from `timeout` or a wrapper in the terminal's group; then a real second.
TWICE = """
import os, signal, threading, time
from sparkbuild.core.interrupt import Interrupted, handling

seen = []
with handling():
    try:
        os.kill(os.getpid(), {number})
        time.sleep(5)
    except Interrupted as stop:
        seen.append(stop.again)
    os.kill(os.getpid(), {number})
    time.sleep(0.4)
    try:
        os.kill(os.getpid(), {number})
        time.sleep(5)
    except Interrupted as stop:
        seen.append(stop.again)
assert seen == [False, True], seen
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_echo_of_a_signal_is_no_second_one(number: int) -> None:
    code = TWICE.format(number=int(number))
    done = subprocess.run([sys.executable, "-c", code], cwd=REPOSITORY, timeout=30, check=False, capture_output=True)
    assert (done.returncode, done.stderr) == (0, b"")
