"""Looking at staged data: what is found, what it costs, and that the source is never asked."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sparkbuild.agent import digest, stamps, verify
from sparkbuild.agent.ledger import Record
from tests.agent.driver import CHUNK, MIB, call, flip, from_wheel, key, look, problems, request_for

Make = Callable[[str, int], Path]


@pytest.fixture
def staged(dst: Path, make: Make) -> Path:
    """A folder with a file of four chunks and a small one; its source is gone."""
    sources = {"a.bin": make("a.bin", 3 * CHUNK + 100), "b.json": make("b.json", 2 * MIB)}
    assert call("stage", request_for(dst, sources)).code == 0
    for source in sources.values():
        source.unlink()
    return dst


def test_unchanged(staged: Path) -> None:
    fact = look(staged)
    assert (fact["present"], fact["problems"], fact["bytes"]) == (True, [], 3 * CHUNK + 100 + 2 * MIB)
    assert fact["checked"]["whole"] == []
    assert 0 < fact["checked"]["bytes"] <= fact["bytes"]


@pytest.mark.parametrize("offset", [0, CHUNK, 3 * CHUNK + 99])
def test_a_flipped_byte_with_its_times_restored(staged: Path, offset: int) -> None:
    flip(staged / "a.bin", offset)
    fact = look(staged)
    chunk = offset // CHUNK
    assert problems(fact) == [f"a.bin differs from its ledger in chunk {chunk + 1} of 4"]
    assert fact["problems"][0]["file"] == "a.bin"
    assert fact["problems"][0]["bytes"] == (100 if chunk == 3 else CHUNK)
    assert problems(look(staged)) == problems(fact), "looking must not make it right"


def test_a_byte_that_changed_below_the_file_system(staged: Path) -> None:
    """A bad disk moves no time stamp: only reading finds it, and these chunks are all among the samples."""
    flip(staged / "b.json", 77)
    path = staged / ".sparkbuild/stamps.json"
    value = json.loads(path.read_text())
    value["files"]["b.json"] = stamps.of(os.lstat(staged / "b.json"))
    path.write_text(json.dumps(value))
    assert problems(look(staged)) == ["b.json differs from its ledger (2097152 bytes, one chunk)"]
    assert "b.json" not in json.loads(path.read_text())["files"], "staging would believe the stamp"


def test_a_touched_file_is_read_once_more(staged: Path) -> None:
    os.utime(staged / "a.bin")
    assert look(staged)["checked"]["whole"] == ["a.bin"]
    fact = look(staged)
    assert (fact["checked"]["whole"], fact["problems"]) == ([], [])


def test_a_copied_tree_is_right_after_one_reading(staged: Path, tmp_path: Path) -> None:
    subprocess.run(["cp", "-a", staged, tmp_path / "copy"], check=True)
    shutil.rmtree(staged)
    fact = look(tmp_path / "copy")
    assert (fact["checked"]["whole"], fact["problems"]) == (["a.bin", "b.json"], [])
    assert look(tmp_path / "copy")["checked"]["whole"] == []


@pytest.mark.parametrize("damage", [None, b"", b"{}", b"[1]", b"\xff", b'{"files":', b"[" * 100_000])
def test_lost_or_broken_stamps_cost_one_reading(staged: Path, damage: bytes | None) -> None:
    path = staged / ".sparkbuild/stamps.json"
    path.unlink()
    if damage is not None:
        path.write_bytes(damage)
    fact = look(staged)
    assert (fact["checked"]["whole"], fact["problems"]) == (["a.bin", "b.json"], [])
    assert look(staged)["checked"]["whole"] == []


def test_stamps_of_another_ledger_prove_nothing(staged: Path) -> None:
    path = staged / ".sparkbuild/ledger.json"
    value = json.loads(path.read_text())
    value["files"][0]["chunks"] = "A" * len(value["files"][0]["chunks"].rstrip("=")) + "=" * value["files"][0][
        "chunks"
    ].count("=")
    path.write_text(json.dumps(value))
    assert look(staged)["checked"]["whole"] == ["a.bin", "b.json"]
    assert "a.bin" in look(staged)["problems"][0]["text"]


def test_what_is_not_a_file(staged: Path) -> None:
    (staged / "a.bin").unlink()
    (staged / "a.bin").symlink_to("b.json")
    (staged / "b.json").unlink()
    (staged / "b.json").mkdir()
    assert problems(look(staged)) == [
        "a.bin is a symbolic link, wanted a regular file",
        "b.json is a folder, wanted a regular file",
    ]


def test_full_reads_everything(staged: Path) -> None:
    fact = look(staged, full=True)
    assert fact["checked"]["bytes"] == fact["bytes"]
    answer = call("verify", {"dst": str(staged), "key": key()})
    assert answer.last["checked"]["whole"] == ["a.bin", "b.json"]
    assert any(event["event"] == "progress" and event["phase"] == "verify" for event in answer.events)


@pytest.mark.parametrize("full", [False, True])
def test_what_is_said_to_be_read_was_there(staged: Path, full: bool) -> None:
    os.truncate(staged / "a.bin", 5)
    (staged / "b.json").unlink()
    fact = look(staged, full=full)
    assert fact["checked"]["bytes"] == 5
    assert problems(fact) == [f"a.bin has 5 bytes, its ledger says {3 * CHUNK + 100}", "b.json is missing"]
    assert fact["to_write"] == fact["bytes"]


def test_chunks_that_differ_are_named(dst: Path, make: Make) -> None:
    size = 24 * CHUNK
    assert call("stage", request_for(dst, {"a.bin": make("a.bin", size)})).code == 0
    for index in (0, 1, 2, 5, 7, 8):
        flip(dst / "a.bin", index * CHUNK)
    assert problems(look(dst)) == ["a.bin differs from its ledger in 6 of 24 chunks: 1-3, 6, 8-9"]
    (dst / "a.bin").write_bytes(os.urandom(size))
    assert problems(look(dst)) == ["a.bin differs from its ledger in 24 of 24 chunks: 1-24"]
    (dst / "a.bin").write_bytes(os.urandom(size))
    for index in range(0, 24, 2):
        with (dst / "a.bin").open("r+b") as file, (dst.parents[1] / "source/a.bin").open("rb") as source:
            source.seek(index * CHUNK)
            file.seek(index * CHUNK)
            file.write(source.read(CHUNK))
    found = "2, 4, 6, 8, 10, 12, 14, 16, ..."
    assert problems(look(dst)) == [f"a.bin differs from its ledger in 12 of 24 chunks: {found}"]


def test_another_key_is_told_without_reading(staged: Path) -> None:
    flip(staged / "a.bin", 0)
    fact = look(staged, key("b"))
    assert (fact["key"], fact["parts"]) == (key("a"), {"kind": "files"})
    assert fact["checked"]["bytes"] == 0


def test_what_staging_would_write(dst: Path, wheel: Path) -> None:
    few = from_wheel(dst, wheel, ["*.json"])
    source = {"what": {**few["what"], "members": ["model/*"]}}
    assert look(dst, **source)["to_write"] == 11 * MIB + 14
    assert call("stage", few).code == 0
    assert look(dst, key("b"), **source)["to_write"] == 11 * MIB
    wheel.unlink()
    assert look(dst, key("b"), **source)["to_write"] is None
    assert look(dst, **source)["to_write"] == 0


def test_a_read_only_folder_can_be_looked_at(staged: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (staged / ".sparkbuild/stamps.json").unlink()

    def refuse(*_args: Any) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "rename", refuse)
    fact = verify.observe({"dst": str(staged), "key": key()})
    assert fact["problems"] == []
    assert sorted(os.listdir(staged / ".sparkbuild")) == ["ledger.json", "lock"]


def test_a_digest_that_this_python_has_not(staged: Path) -> None:
    path = staged / ".sparkbuild/ledger.json"
    value = json.loads(path.read_text())
    value["digest"] = "crc128_of_the_future"
    path.write_text(json.dumps(value))
    assert look(staged)["problems"] == []
    flip(staged / "b.json", 3)
    fact = look(staged)
    assert problems(fact) == ["b.json has another sha256 than its ledger says (2097152 bytes)"]


def records(sizes: list[int]) -> list[Record]:
    name = digest.best()
    return [Record(str(n), size, "", bytes(8 * digest.count(size)), name, {}) for n, size in enumerate(sizes)]


def test_samples_are_bounded_and_never_the_same() -> None:
    one = records([24 * CHUNK])
    picks = [frozenset(index for _, index in verify._picks(one)) for _ in range(50)]
    assert all({0, 23} <= pick and len(pick) <= 6 for pick in picks)
    assert len(set(picks)) > 40
    many = records([1000 * CHUNK] * 141)
    assert len(verify._picks(many)) == 16
    assert len({record.name for _ in range(100) for record, _ in verify._picks(many)}) > 100


def test_heads_and_tails_come_first() -> None:
    """Of up to 4 files all are read each time: rows lo and hi - 1 of packed layers. Of more, others each time."""
    for count in (1, 2, 4):
        few = records([1000 * CHUNK] * count)
        wanted = {(record.name, index) for record in few for index in (0, 999)}
        for _ in range(50):
            seen = {(record.name, index) for record, index in verify._picks(few)}
            assert wanted <= seen
            assert len(seen) > len(wanted), "and random ones"
    many = records([1000 * CHUNK] * 141)
    ends = [{(record.name, index) for record, index in verify._picks(many) if index in {0, 999}} for _ in range(400)]
    assert all(len(seen) >= 8 for seen in ends)
    assert len(set.union(*ends)) > 270, "of 282"


def test_small_folders_are_sampled_now_and_then() -> None:
    read = sum(verify._sampled(1000) for _ in range(6400))
    assert 40 < read < 200  # 100 expected
    assert verify._picks(records([0, 0])) == []
    assert all(verify._picks(records([MIB])) for _ in range(100))


def test_a_thousand_folders_in_one_call(tmp_path: Path, make: Make) -> None:
    source = make("a.json", 500)
    first = tmp_path / "0"
    assert call("stage", request_for(first, {"a.json": source})).code == 0
    queries = []
    for index in range(1000):
        folder = tmp_path / str(index)
        if index:
            shutil.copytree(first, folder)
        queries.append({"scheme": "staged", "store": "/", "dst": str(folder), "key": key()})
    for read in (999, 0):
        facts = call("facts", {"store": "/", "queries": queries}).last["facts"]
        assert all(fact["present"] and not fact["problems"] for fact in facts)
        assert sum(len(fact["checked"]["whole"]) for fact in facts) == read
