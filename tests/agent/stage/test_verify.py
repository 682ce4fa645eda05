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

from sparkbuild.agent.ledger import digest, stamps
from sparkbuild.agent.ledger.content import Piece
from sparkbuild.agent.ledger.ledger import Record
from sparkbuild.agent.ledger.shape import END, Shape
from sparkbuild.agent.stage import verify
from tests.agent.driver import CHUNK, MIB, cached, call, drop, flip, from_wheel, key, look, problems, request_for

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
    flip_below(staged, "b.json", 77)
    assert problems(look(staged)) == ["b.json differs from its ledger (2097152 bytes, one chunk)"]
    known = json.loads((staged / ".sparkbuild/stamps.json").read_text())["files"]
    assert "b.json" not in known, "staging would believe the stamp"


def flip_below(folder: Path, name: str, offset: int) -> None:
    """Change a byte without a trace in the stamps."""
    flip(folder / name, offset)
    path = folder / ".sparkbuild/stamps.json"
    value = json.loads(path.read_text())
    value["files"][name] = stamps.of(os.lstat(folder / name))
    path.write_text(json.dumps(value))


@pytest.mark.parametrize("offset", [0, END - 1, -END, -1])
def test_the_head_and_the_tail_of_every_file_are_read_each_time(dst: Path, make: Make, offset: int) -> None:
    """Of more files than a look reads chunks."""
    names = [f"{n:02}.bin" for n in range(20)]
    size = 3 * CHUNK - 100
    assert call("stage", request_for(dst, {name: make(name, size) for name in names})).code == 0
    fact = look(dst)
    assert (fact["problems"], fact["checked"]["whole"]) == ([], [])
    assert fact["checked"]["bytes"] < 16 * CHUNK + 40 * END
    for name in (names[0], names[9], names[19]):
        flip_below(dst, name, offset % size)
        assert [problem["file"] for problem in look(dst)["problems"]] == [name]
        flip_below(dst, name, offset % size)


def test_a_look_leaves_nothing_in_the_page_cache(dst: Path, make: Make) -> None:
    sources = {name: make(name, 6 * CHUNK) for name in ("a.bin", "b.bin")}
    assert call("stage", request_for(dst, sources)).code == 0
    for name in sources:
        drop(dst / name)
    look(dst)
    assert [cached(dst / name) for name in sources] == [0, 0]


def test_the_rows_at_the_ends_of_each_extent() -> None:
    """A sparse copy of a shard has its header, its weights and its scales."""
    extents = ((0, 5000), (CHUNK + 7, 3 * CHUNK + 9), (5 * CHUNK - 3, 5 * CHUNK + 300_000))
    shape = Shape(6 * CHUNK, extents)
    assert shape.ends() == [
        (0, 5000),
        (CHUNK + 7, CHUNK + 7 + END),
        (3 * CHUNK, 3 * CHUNK + 9),
        (5 * CHUNK - 3, 5 * CHUNK),
        (5 * CHUNK + 300_000 - END, 5 * CHUNK + 300_000),
    ]
    assert Shape(2 * END).ends() == Shape(0).ends() == []
    assert Shape(2 * END + 1).ends() == [(0, END), (END + 1, 2 * END + 1)]
    many = Shape(6 * CHUNK, tuple((n * 1000, n * 1000 + 10) for n in range(9)))
    assert many.ends() == [(0, 10), (8000, 8010)]


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

    def refuse(*_args: Any, **_more: Any) -> None:
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


def records(sizes: list[int], *, ends: bool = True) -> list[Record]:
    name, found = digest.best(), []
    for n, size in enumerate(sizes):
        known = bytes(8 * len(Shape(size).ends())) if ends else b""
        found.append(Record(str(n), size, "", bytes(8 * digest.count(size)), name, {}, (), known))
    return found


def chunks(pieces: list[Piece]) -> set[tuple[str, int]]:
    assert all(piece.first % CHUNK == 0 for piece in pieces)
    return {(piece.record.name, piece.first // CHUNK) for piece in pieces}


def test_samples_are_bounded_and_never_the_same() -> None:
    one = records([24 * CHUNK])
    picks = [frozenset(chunks(verify._picks(one)[1])) for _ in range(50)]
    assert all(1 <= len(pick) <= 4 for pick in picks)
    assert len(set(picks)) > 40
    many = records([1000 * CHUNK] * 141)
    near, far = verify._picks(many)
    read = chunks(far)
    ends = {(record.name, index) for record in many for index in (0, 999)}
    assert len(read) == 16
    assert sorted((piece.record.name, piece.first // CHUNK) for piece in near) == sorted(ends - read), "none twice"
    assert len({name for _ in range(100) for name, _ in chunks(verify._picks(many)[1])}) > 100
    small = records([100 << 10] * 10_000)
    near, far = verify._picks(small)
    assert (len(chunks(near)), far) == (512, [])
    assert len({name for _ in range(40) for name, _ in chunks(verify._picks(small)[0])}) > 8000


def test_without_digests_of_the_ends_their_chunks_are_among_the_samples() -> None:
    """Ledgers of earlier days. Of up to 2 files all are read each time: rows lo and hi - 1 of packed layers."""
    for count in (1, 2):
        few = records([1000 * CHUNK] * count, ends=False)
        wanted = {(record.name, index) for record in few for index in (0, 999)}
        for _ in range(50):
            near, far = verify._picks(few)
            assert near == []
            assert wanted < chunks(far), "and random ones"


def test_small_folders_are_sampled_now_and_then() -> None:
    read = sum(verify._sampled(1000) for _ in range(6400))
    assert 40 < read < 200  # 100 expected
    assert verify._picks(records([0, 0])) == ([], [])
    assert verify._picks(records([MIB]))[0] == [], "its one chunk is read"
    assert len(verify._picks(records([MIB]))[1]) == 1


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
