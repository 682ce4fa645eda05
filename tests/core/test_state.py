"""The state file keeps what was committed, serves several at once, and survives being destroyed."""

import multiprocessing
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from pathlib import Path

from sparkbuild.core.state import Made, StateStore


def made(number: int) -> Made:
    return Made(key=f"{number:064x}", parts={"n": number}, at=1.5, seconds=0.5, bytes=number, run="r")


def test_round_trip(tmp_path: Path) -> None:
    store = StateStore(tmp_path / "state.db")
    store.save_row("a:b", '{"x": 1}')
    store.record("image://dgx1/x", made(3))
    store.close()
    again = StateStore(tmp_path / "state.db")
    assert again.rows() == {"a:b": '{"x": 1}'}
    assert again.all_made() == {"image://dgx1/x": made(3)}
    again.drop_rows("a:b")
    assert again.row("a:b") is None
    again.close()


def test_nothing_is_created_by_looking(tmp_path: Path) -> None:
    store = StateStore(tmp_path / "deep" / "state.db")
    assert store.rows() == {}
    assert store.all_made() == {}
    assert not (tmp_path / "deep").exists()


def test_sigkill_keeps_what_was_saved(tmp_path: Path) -> None:
    code = """
import sys, time
from pathlib import Path
from sparkbuild.core.state import StateStore
store = StateStore(Path(sys.argv[1]))
for n in range(10**6):
    store.save_row(f"task:{n}", "{}")
    print(n, flush=True)
"""
    process = subprocess.Popen([sys.executable, "-c", code, tmp_path / "state.db"], stdout=subprocess.PIPE)
    assert process.stdout is not None
    for _ in range(50):
        last = int(process.stdout.readline())
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    process.stdout.close()
    store = StateStore(tmp_path / "state.db")
    assert {f"task:{n}" for n in range(last + 1)} <= set(store.rows())
    store.close()


def _write(path: Path, name: str) -> None:
    store = StateStore(path)
    for number in range(100):
        store.save_row(f"{name}:{number}", "{}")
    store.close()


def test_two_processes_lose_nothing(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    writers = [context.Process(target=_write, args=(tmp_path / "state.db", name)) for name in "abc"]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
        assert writer.exitcode == 0
    store = StateStore(tmp_path / "state.db")
    assert len(store.rows()) == 300
    store.close()


def test_a_broken_file_is_set_aside(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    path.write_bytes(b"this is no database" * 1000)
    store = StateStore(path)
    store.save_row("a", "{}")
    assert store.rows() == {"a": "{}"}
    store.close()
    assert len(list(tmp_path.glob("state.db.broken-*"))) == 1


def test_the_file_alone_can_be_copied(tmp_path: Path) -> None:
    store = StateStore(tmp_path / "state.db")
    store.record("image://dgx1/x", made(1))
    store.close()
    copied = tmp_path / "copy.db"
    copied.write_bytes((tmp_path / "state.db").read_bytes())
    assert sqlite3.connect(copied).execute("select count(*) from made").fetchone() == (1,)


def test_a_writer_waits_for_another(tmp_path: Path) -> None:
    store = StateStore(tmp_path / "state.db")
    store.save_row("a", "{}")
    other = sqlite3.connect(tmp_path / "state.db", isolation_level=None, check_same_thread=False)
    other.execute("begin immediate")
    threading.Timer(0.3, lambda: other.execute("commit")).start()
    start = time.monotonic()
    store.save_row("b", "{}")
    assert time.monotonic() - start > 0.2
    store.close()
    other.close()


def _write_one(path: Path, name: str) -> None:
    store = StateStore(path)
    store.rows()
    store.save_row(name, "{}")
    store.close()


def test_many_may_create_the_file_at_the_same_moment(tmp_path: Path) -> None:
    context = multiprocessing.get_context("forkserver")
    for attempt in range(20):
        path = tmp_path / str(attempt) / "state.db"
        writers = [context.Process(target=_write_one, args=(path, name)) for name in "abc"]
        for writer in writers:
            writer.start()
        for writer in writers:
            writer.join()
            assert writer.exitcode == 0
        store = StateStore(path)
        assert set(store.rows()) == set("abc")
        store.close()
