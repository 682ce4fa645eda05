"""The scrub: it reads the next part and no more, goes on where it stopped, and what it finds is mended by staging."""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.agent.driver import (
    CHUNK,
    MIB,
    call,
    entry,
    finish,
    flip,
    key,
    list_of,
    look,
    problems,
    request_for,
    start,
)

Make = Callable[[str, int], Path]


@pytest.fixture
def store(tmp_path: Path) -> Path:
    folder = tmp_path / "store"
    folder.mkdir()
    return folder


def staged(dst: Path, make: Make, sizes: dict[str, int]) -> dict[str, Any]:
    request = request_for(dst, {name: make(f"{dst.name}-{name}", size) for name, size in sizes.items()})
    answer = call("stage", request)
    assert answer.code == 0, answer.events
    return request


def scrub(store: Path, *folders: Path, limit: int = 0, wanted: str = key()) -> dict[str, Any]:
    request = {"store": str(store), "folders": [{"dst": str(dst), "key": wanted} for dst in folders], "limit": limit}
    answer = call("scrub", request)
    assert answer.code == 0, answer.events
    return answer.last


def cursor(dst: Path) -> dict[str, Any]:
    return dict(json.loads((dst / ".sparkbuild/scrub.json").read_text()))


def test_it_goes_on_where_it_stopped_and_begins_again(store: Path, dst: Path, make: Make) -> None:
    staged(dst, make, {"a.bin": 9 * MIB, "b.bin": 3 * MIB})
    seen = []
    for _ in range(4):
        (row,) = scrub(store, dst, limit=CHUNK)["folders"]
        seen.append((row["state"], row["read"] / MIB, row["done"] / MIB, row["round"]))
    assert seen == [("ok", 4, 4, 0), ("ok", 4, 8, 0), ("ok", 4, 12, 1), ("ok", 4, 4, 1)]
    assert cursor(dst)["file"] == 0
    assert cursor(dst)["chunk"] == 1
    assert time.time() - 60 < row["since"] <= time.time()


def test_one_call_reads_nothing_twice(store: Path, dst: Path, make: Make) -> None:
    staged(dst, make, {"a.bin": 9 * MIB})
    assert scrub(store, dst)["read"] == 9 * MIB


def test_the_limit_is_of_the_node_and_the_folder_that_waited_longest_is_first(
    store: Path, tmp_path: Path, make: Make
) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    for dst in (one, two):
        staged(dst, make, {"a.bin": 8 * MIB})
    read = []
    for _ in range(4):
        found = scrub(store, one, two, limit=8 * MIB)
        read.append([row["read"] // MIB for row in found["folders"]])
        assert found["read"] == 8 * MIB
    assert read == [[8, 0], [0, 8], [8, 0], [0, 8]]


def test_damage_is_named_and_found_by_the_next_look_and_mended(store: Path, dst: Path, make: Make) -> None:
    request = staged(dst, make, {"a.bin": 200 * MIB})  # so many chunks that a look's samples may well miss one
    known = json.loads((dst / ".sparkbuild/stamps.json").read_text())
    flip(dst / "a.bin", 3 * CHUNK + 5)
    found = (dst / "a.bin").stat()
    known["files"]["a.bin"] = [found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns]
    (dst / ".sparkbuild/stamps.json").write_text(json.dumps(known))  # as if the disk had done it: no stamp moved
    (row,) = scrub(store, dst)["folders"]
    assert row["state"] == "damaged"
    assert row["problems"] == [{"file": "a.bin", "text": "a.bin differs from its ledger in chunk 4 of 50"}]
    assert problems(look(dst)) == ["a.bin differs from its ledger in chunk 4 of 50"]
    assert call("stage", request).last["repaired_chunks"] == 1
    assert scrub(store, dst)["folders"][0]["state"] == "ok"


def test_damage_before_the_limit_is_told_though_the_file_is_not_at_its_end(store: Path, dst: Path, make: Make) -> None:
    staged(dst, make, {"a.bin": 12 * MIB})
    flip(dst / "a.bin", 5)
    (row,) = scrub(store, dst, limit=CHUNK)["folders"]
    assert (row["state"], row["done"]) == ("damaged", CHUNK)
    assert row["problems"][0]["text"] == "a.bin differs from its ledger in chunk 1 of 3"


@pytest.mark.parametrize("what", ["missing", "short", "link"])
def test_a_file_that_is_no_more_what_it_was(store: Path, dst: Path, make: Make, what: str) -> None:
    staged(dst, make, {"a.bin": 5 * MIB, "b.bin": MIB})
    path = dst / "a.bin"
    if what == "short":
        os.truncate(path, MIB)
    else:
        path.unlink()
    if what == "link":
        path.symlink_to(dst / "b.bin")
    (row,) = scrub(store, dst)["folders"]
    assert row["state"] == "damaged"
    assert [one["file"] for one in row["problems"]] == ["a.bin"]
    assert problems(row) == problems(look(dst)), "in the words of a look"
    assert row["read"] == MIB  # of the other one
    assert (row["done"], row["total"], row["over"]) == (MIB, 6 * MIB, True), "the round ended without 5 MiB"


def test_what_could_not_be_read_is_kept_in_mind_to_the_end_of_the_round(store: Path, dst: Path, make: Make) -> None:
    staged(dst, make, {"a.bin": 9 * MIB, "b.bin": 8 * MIB, "c.bin": MIB})
    scrub(store, dst, limit=CHUNK)
    os.truncate(dst / "a.bin", 5)
    seen = []
    for _ in range(4):
        (row,) = scrub(store, dst, limit=CHUNK)["folders"]
        seen.append((row["state"], row["done"] // MIB, row["over"]))
    assert seen == [("damaged", 8, False), ("damaged", 12, False), ("damaged", 13, True), ("damaged", 4, False)]
    assert [one["file"] for one in row["problems"]] == ["a.bin"], "it is told once"
    assert (row["round"], row["total"]) == (1, 18 * MIB)
    assert time.time() - 60 < row["ended"] <= time.time()


@pytest.mark.parametrize("what", ["missing", "short", "folder"])
def test_what_shows_without_reading_is_told_before_its_turn(store: Path, tmp_path: Path, make: Make, what: str) -> None:
    """Of all files, also of a folder that the limit leaves nothing for."""
    one, two = tmp_path / "one", tmp_path / "two"
    for dst in (one, two):
        staged(dst, make, {"a.bin": 9 * MIB, "b.bin": MIB, "c.bin": MIB})
    for dst in (one, two):
        (dst / "c.bin").unlink()
        if what == "short":
            (dst / "c.bin").write_bytes(b"short")
        if what == "folder":
            (dst / "c.bin").mkdir()
    rows = scrub(store, one, two, limit=CHUNK)["folders"]
    assert [(row["state"], row["read"]) for row in rows] == [("damaged", CHUNK), ("damaged", 0)]
    assert [problems(row) for row in rows] == [problems(look(one)), problems(look(two))]
    assert [one["file"] for row in rows for one in row["problems"]] == ["c.bin", "c.bin"]


def test_a_link_that_is_gone_is_told(store: Path, dst: Path, make: Make) -> None:
    request = list_of(dst, [entry("a.bin", make("a.bin", 5 * MIB))], {"to-a": "a.bin"})
    assert call("stage", request).code == 0
    assert scrub(store, dst, limit=CHUNK)["folders"][0]["state"] == "ok"
    (dst / "to-a").unlink()
    (row,) = scrub(store, dst, limit=CHUNK)["folders"]
    assert (row["state"], problems(row)) == ("damaged", ["the link to-a is missing"])
    assert problems(row) == problems(look(dst))


def test_a_cursor_without_what_was_unread_is_one(store: Path, dst: Path, make: Make) -> None:
    """As older versions wrote it."""
    staged(dst, make, {"a.bin": 9 * MIB})
    scrub(store, dst, limit=CHUNK)
    value = cursor(dst)
    del value["unread"]
    (dst / ".sparkbuild/scrub.json").write_text(json.dumps(value))
    assert scrub(store, dst, limit=CHUNK)["folders"][0]["done"] == 2 * CHUNK


def test_what_is_not_staged_is_said(store: Path, dst: Path, tmp_path: Path, make: Make) -> None:
    staged(dst, make, {"a.bin": MIB})
    assert scrub(store, tmp_path / "none")["folders"][0]["state"] == "absent"
    assert scrub(store, dst, wanted=key("b"))["folders"][0]["state"] == "other"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[" * 100_000,
        '{"format": "sparkbuild-scrub/v1"}',
        '{"format": "sparkbuild-scrub/v1", "seal": SEAL, "file": 7, "chunk": 0, "since": 1, "ended": 0, "round": 2}',
        '{"format": "sparkbuild-scrub/v1", "seal": SEAL, "file": 0, "chunk": -1, "since": 1, "ended": 0, "round": 2}',
        '{"format": "sparkbuild-scrub/v1", "seal": SEAL, "file": 0, "chunk": 99, "since": 1, "ended": 0, "round": 2}',
        '{"format": "sparkbuild-scrub/v1", "seal": SEAL, "file": 0, "chunk": 0, "since": 9e99, "ended": 0, "round": 0}',
        '{"format": "sparkbuild-scrub/v1", "seal": SEAL, "file": true, "chunk": "", "since": 1,"ended": 0, "round": 0}',
        '{"format": "sparkbuild-scrub/v1", "seal": "x", "file": 0, "chunk": 1, "since": 1, "ended": 1, "round": 2}',
    ],
)
def test_a_cursor_that_is_none_begins_anew(store: Path, dst: Path, make: Make, text: str) -> None:
    staged(dst, make, {"a.bin": 9 * MIB})
    scrub(store, dst, limit=CHUNK)
    seal = cursor(dst)["seal"]
    (dst / ".sparkbuild/scrub.json").write_text(text.replace("SEAL", json.dumps(seal)))
    (row,) = scrub(store, dst, limit=CHUNK)["folders"]
    assert (row["state"], row["done"]) == ("ok", CHUNK)


def test_a_kill_loses_little(store: Path, dst: Path, make: Make) -> None:
    staged(dst, make, {"a.bin": 300 * MIB})
    shim = (
        "import os\nfrom sparkbuild.agent.stage import scrub\nreal = scrub._Scrub._save\ncount = 0\n"
        "def die(*args):\n    global count\n    real(*args)\n    count += 1\n    os._exit(9) if count == 1 else None\n"
        "scrub._Scrub._save = die\n"
    )
    request = {"store": str(store), "folders": [{"dst": str(dst), "key": key()}], "limit": 0}
    assert finish(start("scrub", request, shim=shim)).code == 9
    assert cursor(dst)["chunk"] == 63
    assert scrub(store, dst)["read"] == (75 - 63) * CHUNK


def test_two_scrubs_do_not_read_the_same_at_once(store: Path, dst: Path, make: Make) -> None:
    staged(dst, make, {"a.bin": MIB})
    with (store / "scrub.lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        answer = call("scrub", {"store": str(store), "folders": [{"dst": str(dst), "key": key()}]})
    assert answer.code == 1
    assert answer.last["what"] == "the scrub of staged data is being worked on by another process on this node"


def test_it_has_idle_priority(store: Path, dst: Path, make: Make) -> None:
    staged(dst, make, {"a.bin": MIB})
    shim = (
        "import os, ctypes, sys\nfrom sparkbuild.agent.stage import scrub\nreal = scrub._Scrub.go_on\n"
        "def look(*args):\n"
        "    number = {'x86_64': 252, 'aarch64': 31}[os.uname().machine]\n"
        "    found = ctypes.CDLL(None).syscall(number, 1, 0)\n"
        "    assert found >> 13 == 3 and os.nice(0) == 19, found\n    real(*args)\n"
        "scrub._Scrub.go_on = look\n"
    )
    request = {"store": str(store), "folders": [{"dst": str(dst), "key": key()}], "limit": 0}
    answer = call("scrub", request, shim=shim)
    assert answer.code == 0, answer.events


def test_it_leaves_the_data_and_what_is_kept_of_it_alone(store: Path, dst: Path, make: Make) -> None:
    staged(dst, make, {"a.bin": 5 * MIB})
    before = {path: path.stat().st_ctime_ns for path in dst.rglob("*") if path.is_file()}
    scrub(store, dst, limit=CHUNK)
    after = {path: path.stat().st_ctime_ns for path in dst.rglob("*") if path.is_file()}
    assert {path.name for path in set(after) - set(before)} == {"scrub.json"}
    assert {path: after[path] for path in before} == before
