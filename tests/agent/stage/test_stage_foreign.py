"""Trees that other tools made: kept when their content proves to be right, never replaced when it does not."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sparkbuild.agent.ledger import ledger, stamps
from sparkbuild.agent.stage import adopt
from tests.agent.driver import (
    CHUNK,
    Silent,
    call,
    entry,
    flip,
    list_of,
    look_here,
    problems,
    request_for,
    sha256,
    stage_here,
)

Make = Callable[[str, int], Path]


@pytest.fixture
def source(make: Make) -> Path:
    return make("a.bin", 9 * CHUNK + 5)


def by_hand(dst: Path, source: Path, name: str = "a.bin") -> Path:
    """Put a copy there, with the source's times: these prove nothing."""
    dst.mkdir(parents=True, exist_ok=True)
    (dst / name).write_bytes(source.read_bytes())
    os.utime(dst / name, ns=(source.stat().st_atime_ns, source.stat().st_mtime_ns))
    return dst / name


def test_without_a_digest_it_is_compared_with_the_source(dst: Path, source: Path) -> None:
    before = stamps.of(by_hand(dst, source).stat())
    answer = call("stage", list_of(dst, [entry("a.bin", source)]))
    assert "keep a.bin: adopted: 10 of its 10 chunks were compared with the source" in answer.logs
    assert (answer.last["bytes"], answer.last["adopted"], answer.last["read"]) == (0, 1, 9 * CHUNK + 5)
    assert stamps.of((dst / "a.bin").stat()) == before
    record = json.loads((dst / ".sparkbuild/ledger.json").read_text())["files"][0]
    assert record["sha256"] == sha256(source)
    assert look_here(dst)["checked"]["whole"] == []


def refused(request: dict[str, Any]) -> dict[str, str]:
    """What a staging ends with that changed nothing."""
    dst = Path(request["dst"])
    before = {path: (path.lstat().st_ino, path.lstat().st_mtime_ns) for path in dst.rglob("*") if path.is_file()}
    answer = call("stage", request)
    assert answer.code == 1
    assert answer.last["kind"] == "config"
    assert {path: (path.lstat().st_ino, path.lstat().st_mtime_ns) for path in before} == before
    assert not (dst / ".sparkbuild").exists()
    return answer.last


def test_mended_when_all_of_it_is_to_be_compared(dst: Path, source: Path) -> None:
    flip(by_hand(dst, source), 4 * CHUNK)
    result = stage_here(list_of(dst, [entry("a.bin", source)], verify="full"))
    assert (result["bytes"], result["adopted"]) == (CHUNK, 0)
    assert sha256(dst / "a.bin") == sha256(source)
    assert problems(look_here(dst, full=True)) == []


def test_one_chunk_of_it_is_wrong(dst: Path, source: Path) -> None:
    flip(by_hand(dst, source), 4 * CHUNK)
    assert refused(list_of(dst, [entry("a.bin", source)]))["found"] == "a.bin"


@pytest.mark.parametrize("verify", ["quick", "full"])
def test_another_content_or_size(dst: Path, make: Make, source: Path, verify: str) -> None:
    by_hand(dst, make("other.bin", 9 * CHUNK + 5))
    by_hand(dst, make("short.bin", CHUNK), "b.bin")
    request = list_of(dst, [entry("a.bin", source), entry("b.bin", source)], verify=verify)
    found = refused(request)
    assert found["found"] == "a.bin, b.bin"
    subprocess.run(found["next"].partition("; or ")[0], shell=True, check=True)
    assert stage_here(request)["copied"] == 2
    assert sha256(dst / "a.bin") == sha256(source)
    assert sorted(path.name for path in Path(f"{dst}.before").iterdir()) == ["a.bin", "b.bin"]


def test_the_plan_says_it_too(dst: Path, make: Make) -> None:
    """By size, and of small files by content."""
    small = make("a.bin", 1000)
    by_hand(dst, make("other.bin", 1000))
    by_hand(dst, make("short.bin", 10), "b.bin")
    by_hand(dst, small, "c.bin")
    (dst / "d.bin").touch()
    request = list_of(dst, [entry(f"{name}.bin", small) for name in "abcd"])
    fact = look_here(dst, what=request["what"])
    assert fact["refused"]["part"] == "dst"
    assert fact["refused"]["found"] == refused(request)["found"] == "a.bin, b.bin"


def test_the_plan_counts_what_will_be_kept_as_nothing_to_write(dst: Path, make: Make, source: Path) -> None:
    """By size alone; what is a link, empty or not there is to be written, and so is what staging makes a file again."""
    for name in ("a.bin", "b.bin"):
        by_hand(dst, source, name)
    os.link(dst / "b.bin", f"{dst}.other")
    (dst / "c.bin").touch()
    one = make("one.bin", 1000)
    request = list_of(dst, [*(entry(f"{name}.bin", source) for name in "abd"), entry("c.bin", one)])
    fact = look_here(dst, what=request["what"])
    assert fact["found"] == {"files": 1, "bytes": 9 * CHUNK + 5}
    assert fact["to_write"] == 2 * (9 * CHUNK + 5) + 1000
    assert look_here(dst, what=request["what"], linked=True)["to_write"] == 9 * CHUNK + 5 + 1000
    result = stage_here(request)
    assert (result["bytes"], result["adopted"]) == (fact["to_write"], 1)
    assert look_here(dst, what=request["what"])["to_write"] == 0


def test_many_are_counted(dst: Path, make: Make) -> None:
    small = make("a.bin", 1000)
    for number in range(8):
        by_hand(dst, make("other.bin", 10), f"{number}.bin")
    found = refused(list_of(dst, [entry(f"{number}.bin", small) for number in range(8)]))
    assert found["found"] == "0.bin, 1.bin, 2.bin, 3.bin, 4.bin and 3 more"


def test_a_link_of_others(dst: Path, make: Make) -> None:
    small = make("a.bin", 1000)
    dst.mkdir(parents=True)
    (dst / "a.bin").symlink_to(small)
    (dst / "b").symlink_to("elsewhere")
    assert refused(list_of(dst, [entry("a.bin", small)], {"b": "a.bin"}))["found"] == "a.bin, b"


def test_a_damaged_ledger_makes_no_strangers(dst: Path, make: Make) -> None:
    small = make("a.bin", 1000)
    request = list_of(dst, [entry("a.bin", small)])
    stage_here(request)
    (dst / ".sparkbuild/ledger.json").write_text("{")
    (dst / "a.bin").write_text("damaged")
    assert stage_here(request)["copied"] == 1
    assert sha256(dst / "a.bin") == sha256(small)


def test_a_quick_look_takes_first_last_and_64_others() -> None:
    picks = adopt._some(list(range(1000)))
    assert (len(picks), picks[0], picks[-1]) == (66, 0, 999)
    assert picks == sorted(picks)
    assert picks != adopt._some(list(range(1000)))
    assert adopt._some([3, 4, 9]) == [3, 4, 9]


@pytest.mark.parametrize("name", ["sha256", "sha1"])
def test_with_a_digest_the_source_is_not_read(dst: Path, source: Path, name: str) -> None:
    data = by_hand(dst, source).read_bytes()
    git = hashlib.sha1(f"blob {len(data)}\0".encode() + data).hexdigest()
    item = entry("a.bin", source, **{name: git if name == "sha1" else hashlib.sha256(data).hexdigest()})
    answer = call("stage", list_of(dst, [item]))
    assert (answer.last["read"], answer.last["adopted"]) == (0, 1)
    assert f"adopted: its {'git sha1' if name == 'sha1' else name} is the wanted one" in answer.logs


@pytest.mark.parametrize("verify", ["quick", "full"])
def test_a_digest_that_is_not_right(dst: Path, source: Path, verify: str) -> None:
    flip(by_hand(dst, source), 5)
    item = entry("a.bin", source, sha256=sha256(source))
    request = list_of(dst, [item], verify=verify)
    if verify == "quick":
        assert refused(request)["found"] == "a.bin"
        return
    assert stage_here(request)["bytes"] == CHUNK
    assert sha256(dst / "a.bin") == sha256(source)


def test_a_sparse_file_of_others(dst: Path, source: Path) -> None:
    extents = [[100, 9000], [6 * CHUNK, 7 * CHUNK]]
    data, whole = source.read_bytes(), bytearray(9 * CHUNK + 5)
    for first, end in extents:
        whole[first:end] = data[first:end]
    dst.mkdir(parents=True)
    (dst / "a.bin").write_bytes(whole)  # dense, with zeros in the holes: the same content
    request = list_of(dst, [entry("a.bin", source, extents=extents)])
    result = stage_here(request)
    assert (result["bytes"], result["adopted"]) == (0, 1)
    other = dst.parent / "other"
    by_hand(other, source)  # the whole file: not what is wanted
    assert refused({**request, "dst": str(other)})["found"] == "a.bin"


def test_a_file_with_other_names_is_not_written_to(dst: Path, source: Path) -> None:
    copy = by_hand(dst, source)
    flip(copy, 4 * CHUNK)
    os.link(copy, dst.parent / "other")
    before = (dst.parent / "other").read_bytes()
    result = stage_here(list_of(dst, [entry("a.bin", source)], verify="full", linked=True))
    assert (result["repaired_chunks"], result["bytes"]) == (1, 9 * CHUNK + 5)
    assert result["read"] < 12 * CHUNK + 10
    assert (dst.parent / "other").read_bytes() == before
    assert sha256(copy) == sha256(source)
    assert copy.stat().st_nlink == 1


# exports: hard links that we made ourselves


def linked_tree(dst: Path, source: Path) -> dict[str, Any]:
    request = request_for(dst, {"a.bin": source})
    stage_here(request)
    os.link(dst / "a.bin", dst.parent / "export.bin")
    return request


def test_links_of_exports_are_no_problem_when_they_are_expected(dst: Path, source: Path) -> None:
    request = linked_tree(dst, source)
    assert "2 names" in problems(look_here(dst))[0]
    assert problems(look_here(dst, linked=True)) == []
    assert stage_here({**request, "linked": True})["bytes"] == 0
    assert (dst / "a.bin").stat().st_nlink == 2
    flip(dst / "a.bin", 4 * CHUNK)
    result = stage_here({**request, "linked": True})
    assert (result["repaired_chunks"], result["read"]) == (1, CHUNK)
    assert sha256(dst / "a.bin") == sha256(source)
    assert sha256(dst.parent / "export.bin") != sha256(source), "its inode was left as it was"
    assert (dst / "a.bin").stat().st_nlink == 1


def test_restamp_spares_a_re_hash_and_hides_nothing(dst: Path, source: Path) -> None:
    stage_here(request_for(dst, {"a.bin": source}))
    made = ledger.read(str(dst))
    assert made is not None
    before = stamps.of(os.lstat(dst / "a.bin"))
    os.link(dst / "a.bin", dst.parent / "export.bin")
    after = stamps.of(os.lstat(dst / "a.bin"))
    assert stamps.restamp(str(dst), made, {"a.bin": (before, after), "none": (before, after)}) == ["a.bin"]
    fact = look_here(dst, linked=True)
    assert (fact["problems"], fact["checked"]["whole"]) == ([], [])
    flip(dst / "a.bin", 4 * CHUNK)  # with its mtime set back
    now = stamps.of(os.lstat(dst / "a.bin"))
    assert stamps.restamp(str(dst), made, {"a.bin": (now, now)}) == [], "it was not right before"
    assert "chunk 5" in problems(look_here(dst, linked=True))[0]


def test_a_ledger_of_version_1_is_taken_over(dst: Path, source: Path) -> None:
    request = request_for(dst, {"a.bin": source})
    stage_here(request)
    path = dst / ".sparkbuild/ledger.json"
    value = json.loads(path.read_text())
    del value["links"], value["about"]
    path.write_text(json.dumps({**value, "version": 1, "key": "b" * 64}))
    before = stamps.of((dst / "a.bin").stat())
    source.unlink()
    request["what"]["files"][0]["size"] = 9 * CHUNK + 5
    result = stage_here(request)
    assert (result["bytes"], result["read"]) == (0, 0)
    assert stamps.of((dst / "a.bin").stat()) == before
    assert json.loads(path.read_text())["version"] == ledger.VERSION
    assert problems(look_here(dst)) == []


def test_a_version_1_ledger_with_the_same_key_is_written_anew(dst: Path, source: Path) -> None:
    request = request_for(dst, {"a.bin": source})
    stage_here(request)
    path = dst / ".sparkbuild/ledger.json"
    value = json.loads(path.read_text())
    del value["links"], value["about"]
    path.write_text(json.dumps({**value, "version": 1}))
    assert problems(look_here(dst)) == []
    assert stage_here(request)["bytes"] == 0
    assert json.loads(path.read_text())["version"] == ledger.VERSION
    assert Silent().said == []
