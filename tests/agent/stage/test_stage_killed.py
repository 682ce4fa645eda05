"""Killed at every step: never a wrong file under a final name, never a ledger before its files; a rerun ends it."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.agent.driver import (
    CHUNK,
    COMPLETE,
    call,
    entry,
    finish,
    flip,
    list_of,
    look,
    look_here,
    request_for,
    sha256,
    stage_here,
    start,
    tree,
)

Make = Callable[[str, int], Path]

# Kill the agent before (or in the middle of) its nth call that changes something on the disk.
KILL = """
import os, signal, threading
count, guard, inside = 0, threading.Lock(), threading.local()
def counted(name):
    call = getattr(os, name)
    def wrapper(*args, **more):
        global count
        with guard:
            count += 1
            if count == {nth}:
                if name == "pwritev":  # a torn write
                    call(args[0], [args[1][0][: len(args[1][0]) // 2]], args[2])
                os.kill(os.getpid(), signal.SIGKILL)
        return call(*args, **more)
    return wrapper
for name in "mkdir rmdir rename unlink symlink ftruncate pwrite pwritev fdatasync fsync".split():
    setattr(os, name, counted(name))
plain = os.open
def opening(path, flags, *args, **more):
    global count
    if flags & os.O_CREAT:
        with guard:
            count += 1
            if count == {nth}:
                os.kill(os.getpid(), signal.SIGKILL)
    return plain(path, flags, *args, **more)
os.open = opening
"""


def right_or_absent(dst: Path, sources: dict[str, Path]) -> None:
    """Whatever is under a final name is the whole right thing."""
    for name, source in sources.items():
        if (dst / name).exists():
            assert sha256(dst / name) == sha256(source), name


def killed_at_every_step(prepare: Callable[[], dict[str, Any]], check: Callable[[], None]) -> int:
    """Run, kill before step 1, 2, ... until a run survives; after each kill `check`. Returns the number of kills."""
    for nth in range(1, 200):
        request = prepare()
        process = start("stage", request, shim=KILL.format(nth=nth))
        answer = finish(process)
        if answer.code == 0:
            return nth - 1
        assert answer.code == -signal.SIGKILL, answer
        check()
    raise AssertionError("it never survived")


def test_a_first_staging(tmp_path: Path, make: Make) -> None:
    sources = {"a.bin": make("a.bin", 2 * CHUNK + 1), "sub/b.bin": make("b.bin", 10)}
    runs = iter(range(1000))
    dst = tmp_path

    def prepare() -> dict[str, Any]:
        nonlocal dst
        dst = tmp_path / f"run{next(runs)}"
        return request_for(dst, sources)

    def check() -> None:
        right_or_absent(dst, sources)
        there = all((dst / name).exists() for name in sources)
        fact = look_here(dst)
        assert not fact["present"] or (there and not fact["problems"])
        stage_here(request_for(dst, sources))
        right_or_absent(dst, sources)
        assert tree(dst) == [*COMPLETE, "a.bin", "sub/b.bin"]
        assert look_here(dst)["problems"] == []

    assert killed_at_every_step(prepare, check) > 20


def test_a_mending_with_a_change_of_files(tmp_path: Path, make: Make) -> None:
    old = {"a.bin": make("a.bin", 3 * CHUNK), "old.bin": make("old.bin", 10)}
    new = {"a.bin": old["a.bin"], "new.bin": make("new.bin", 10)}
    runs = iter(range(1000))
    dst = tmp_path

    def prepare() -> dict[str, Any]:
        nonlocal dst
        dst = tmp_path / f"run{next(runs)}"
        stage_here(request_for(dst, old))
        flip(dst / "a.bin", CHUNK)
        return request_for(dst, new, char="b")

    def check() -> None:
        fact = look_here(dst, key="b" * 64)
        if fact["present"] and fact["key"] == "b" * 64:
            right_or_absent(dst, new)
            assert fact["problems"] == []
        result = stage_here(request_for(dst, new, char="b"))
        assert result["bytes"] <= CHUNK + 10, "what was there was fetched again"
        right_or_absent(dst, new)
        assert tree(dst) == [*COMPLETE, "a.bin", "new.bin"]

    assert killed_at_every_step(prepare, check) > 15


def test_sparse_files_links_and_several_streams(tmp_path: Path, make: Make) -> None:
    """From one wish to another: a sparse file damaged in data and hole, links that go, change and come."""
    sources = {name: make(name, 3 * CHUNK) for name in ("table.bin", "b.bin", "c.bin")}
    extents = [[10, 5000], [2 * CHUNK + 1, 2 * CHUNK + 9]]
    table = entry("blobs/table.bin", sources["table.bin"], extents=extents)
    expected = bytearray(3 * CHUNK)
    for first, end in extents:
        expected[first:end] = sources["table.bin"].read_bytes()[first:end]
    old_links = {"snapshots/a/t": "../../blobs/table.bin", "top": "blobs/table.bin"}
    links = {"snapshots/b/t": "../../blobs/table.bin", "top": "blobs/b.bin"}
    runs = iter(range(1000))
    dst = tmp_path

    def wish() -> dict[str, Any]:
        files = [table, *(entry(f"blobs/{name}", sources[name]) for name in ("b.bin", "c.bin"))]
        return list_of(dst, files, links, streams=3)

    def prepare() -> dict[str, Any]:
        nonlocal dst
        dst = tmp_path / f"run{next(runs)}"
        stage_here(list_of(dst, [table], old_links))
        flip(dst / "blobs/table.bin", 100)
        flip(dst / "blobs/table.bin", CHUNK + 100)
        return wish()

    def whole() -> bool:
        right_or_absent(dst / "blobs", {name: sources[name] for name in ("b.bin", "c.bin")})
        there = [(dst / name).is_symlink() and os.readlink(dst / name) == text for name, text in links.items()]
        return all(there) and (dst / "blobs/table.bin").read_bytes() == bytes(expected)

    def check() -> None:
        fact = look_here(dst)
        if fact["present"] and not fact["problems"] and (dst / "blobs/b.bin").exists():
            assert whole()
        for name, wanted in links.items():
            text = os.readlink(dst / name) if (dst / name).is_symlink() else ""
            assert text in ("", wanted, old_links.get(name)), name
        stage_here(wish())
        assert whole()
        assert sorted(os.listdir(dst / "snapshots")) == ["b"]
        assert look_here(dst, full=True)["problems"] == []
        assert sorted(os.listdir(dst / ".sparkbuild")) == ["ledger.json", "lock", "stamps.json"]

    assert killed_at_every_step(prepare, check) > 40


SLOW = "import os, time; r = os.preadv\ndef slow(*a): time.sleep(0.1); return r(*a)\nos.preadv = slow"


def wait_for_chunks(dst: Path, chunks: int) -> None:
    """Until the copy has that many chunks in its part."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        lists = list(dst.glob(".sparkbuild/*.chunks"))
        if lists and len(lists[0].read_bytes().partition(b"\n")[2]) >= 8 * chunks:
            return
        time.sleep(0.005)
    raise AssertionError("the copy does not get on")


@pytest.mark.parametrize("how", ["SIGKILL", "SIGTERM", "stdin closes"])
def test_a_copy_that_ends_in_the_middle_goes_on(dst: Path, make: Make, how: str) -> None:
    source = make("a.bin", 12 * CHUNK)
    process = start("stage", request_for(dst, {"a.bin": source}), shim=SLOW)
    wait_for_chunks(dst, 4)
    if how == "stdin closes":
        assert process.stdin is not None
        process.stdin.close()
    else:
        process.send_signal(getattr(signal, how))
    assert process.wait(10) == {"SIGKILL": -9, "SIGTERM": -15, "stdin closes": 143}[how]
    for stream in (process.stdin, process.stdout, process.stderr):
        assert stream is not None
        stream.close()
    assert not (dst / "a.bin").exists()
    assert look(dst)["present"] is False
    result = call("stage", request_for(dst, {"a.bin": source})).last
    assert 0 < result["bytes"] <= 8 * CHUNK
    assert sha256(dst / "a.bin") == sha256(source)


def test_a_part_that_was_damaged_meanwhile_is_not_believed(dst: Path, make: Make) -> None:
    source = make("a.bin", 12 * CHUNK)
    process = start("stage", request_for(dst, {"a.bin": source}), shim=SLOW)
    wait_for_chunks(dst, 4)
    process.kill()
    finish(process)
    flip(next(dst.glob(".sparkbuild/*.part")), CHUNK + 1)
    assert call("stage", request_for(dst, {"a.bin": source})).code == 0
    assert sha256(dst / "a.bin") == sha256(source)


@pytest.mark.parametrize("named", [True, False])
def test_parts_of_two_versions_of_a_source_do_not_meet(dst: Path, make: Make, named: bool) -> None:
    source = make("a.bin", 12 * CHUNK)
    request = request_for(dst, {"a.bin": source})
    if not named:
        del request["what"]["files"][0]["source"]["id"]
    process = start("stage", request, shim=SLOW)
    wait_for_chunks(dst, 4)
    process.kill()
    finish(process)
    source.write_bytes(os.urandom(12 * CHUNK))
    if named:
        request["what"]["files"][0]["source"]["id"] = "the new one"
    assert call("stage", request).last["bytes"] == 12 * CHUNK
    assert sha256(dst / "a.bin") == sha256(source)
