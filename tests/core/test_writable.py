"""A workspace that cannot be written to: one error that says why, and what is done without."""

from __future__ import annotations

import errno
import os
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from sparkbuild.core.errors import StateError
from sparkbuild.core.locks import TaskLock
from sparkbuild.core.runlog import RunLog
from sparkbuild.core.state import Made, StateStore
from sparkbuild.core.writable import spared, writing

root_only = pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount")
MADE = Made("k", {"a": 1}, 1.0, 2.0, 3, "r")


@pytest.fixture(params=["full", "read-only"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """A file system of its own that had a state file, and takes nothing any more."""
    place = tmp_path / "disk"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", place], check=True)
    try:
        store = StateStore(place / "state.db")
        store.record("image://local/x", MADE)
        store.close()
        if request.param == "full":
            subprocess.run(["dd", "if=/dev/zero", f"of={place}/filler", "bs=4k"], check=False, capture_output=True)
            assert os.statvfs(place).f_bavail == 0
        else:
            subprocess.run(["mount", "-o", "remount,ro", place], check=True)
        yield place
    finally:
        subprocess.run(["umount", "-l", place], check=True)


@root_only
def test_reading_is_a_hint_and_writing_an_error(disk: Path) -> None:
    store = StateStore(disk / "state.db")
    assert store.all_made() in ({}, {"image://local/x": MADE})
    assert store.rows() == {}
    for work in (
        lambda: store.record("image://local/y", MADE),
        lambda: [store.save_row(f"t{number}", "x" * 100_000) for number in range(20)],
        lambda: [RunLog(disk / "runs").write("made", text="x" * 100_000) for _ in range(20)],
        lambda: TaskLock(disk / "locks", "serve:demo").acquire(),
    ):
        with suppress(StateError):  # what was made before may have room left in it
            work()
    with pytest.raises(StateError, match="the workspace cannot be written to") as raised:
        RunLog(disk / "runs").write("made", text="x" * 100_000)
    assert str(disk) in raised.value.where
    assert "doit stop:<recipe>" in raised.value.next
    store.close()


def test_errors_of_the_system_and_of_sqlite() -> None:
    with pytest.raises(StateError, match="cannot be written") as raised, writing("/x/y"):
        raise OSError(errno.ENOSPC, "No space left on device", "/x/y/z")
    assert raised.value.where == "/x/y/z"
    assert raised.value.found.startswith("No space left on device; ")
    with pytest.raises(StateError, match="cannot be written") as raised, writing("/x/y"):
        raise sqlite3.OperationalError("database or disk is full")
    assert raised.value.found.startswith("database or disk is full; ")
    with pytest.raises(KeyError), writing("/x"):
        raise KeyError("a bug is no full disk")


def test_what_can_be_done_without_is_done_without() -> None:
    told: list[str] = []
    with spared(told.append, needed=False), writing("/x"):
        raise OSError(errno.EROFS, "Read-only file system", "/x/lock")
    assert told == ["the workspace cannot be written to (Read-only file system): /x/lock; it is done without"]
    with pytest.raises(StateError), spared(told.append, needed=True), writing("/x"):
        raise OSError(errno.EROFS, "Read-only file system", "/x/lock")
