"""Locks keep two runs apart, pools bound what runs at once, and a stop reaches whoever waits."""

import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from sparkbuild.core.interrupt import Cancel, Interrupted
from sparkbuild.core.locks import TaskLock
from sparkbuild.core.pools import Pools


def test_a_second_process_waits_and_is_told_for_whom(tmp_path: Path) -> None:
    lock = TaskLock(tmp_path, "serve:demo")
    assert lock.acquire() is False
    code = """
import sys
from pathlib import Path
from sparkbuild.core.locks import TaskLock
lock = TaskLock(Path(sys.argv[1]), "serve:demo")
print(lock.acquire(lambda who: print(who, flush=True)), flush=True)
"""
    process = subprocess.Popen([sys.executable, "-c", code, tmp_path], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert "process" in process.stdout.readline()
    lock.release()
    assert process.stdout.readline().strip() == "True"
    process.wait()
    process.stdout.close()


def test_a_dead_holder_holds_nothing(tmp_path: Path) -> None:
    code = """
import sys, time
from pathlib import Path
from sparkbuild.core.locks import TaskLock
TaskLock(Path(sys.argv[1]), "x").acquire() or print("have", flush=True)
time.sleep(60)
"""
    process = subprocess.Popen([sys.executable, "-c", code, tmp_path], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline().strip() == "have"
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    lock = TaskLock(tmp_path, "x")
    lock.acquire()
    lock.release()


def test_other_names_are_other_locks(tmp_path: Path) -> None:
    with TaskLock(tmp_path, "a"):
        other = TaskLock(tmp_path, "b")
        assert other.acquire() is False
        other.release()


def test_waiting_for_a_lock_ends_when_told_to_stop(tmp_path: Path) -> None:
    stop = Cancel()
    with TaskLock(tmp_path, "a"):
        threading.Timer(0.2, stop.stop, args=(signal.SIGTERM,)).start()
        with pytest.raises(Interrupted) as raised:
            TaskLock(tmp_path, "a").acquire(cancelled=stop)
    assert raised.value.code == 143


def test_a_pool_bounds_how_many_are_inside() -> None:
    pools = Pools({"nas": 2})
    inside, most = 0, 0
    guard = threading.Lock()

    def work() -> None:
        nonlocal inside, most
        with pools.hold(["nas", "nas"]):
            with guard:
                inside += 1
                most = max(most, inside)
            time.sleep(0.02)
            with guard:
                inside -= 1

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == 2


def test_opposite_orders_do_not_deadlock() -> None:
    pools = Pools({"a": 1, "b": 1})

    def work(names: list[str]) -> None:
        for _ in range(50):
            with pools.hold(names):
                pass

    threads = [threading.Thread(target=work, args=(names,), daemon=True) for names in (["a", "b"], ["b", "a"])]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=20)
        assert not thread.is_alive()
