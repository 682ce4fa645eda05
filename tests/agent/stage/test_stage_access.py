"""A staged file that others may change at will, or that is a hard link of its source, is not as it should be."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

import pytest

from sparkbuild.agent.ledger import access
from tests.agent.driver import call, key, look_here, problems, request_for, stage_here

SOMEBODY = 54321  # a user that no machine has
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files to another user")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "source/a.bin"
    path.parent.mkdir()
    path.write_bytes(b"weights" * 1000)
    return path


@pytest.fixture
def dst(tmp_path: Path) -> Path:
    return tmp_path / "dst"


@pytest.mark.parametrize(
    ("mode", "word"), [(0o666, "everybody"), (0o602, "everybody"), (0, "nobody"), (0o044, "nobody")]
)
def test_a_mode_that_is_not_ours(dst: Path, source: Path, mode: int, word: str) -> None:
    request = request_for(dst, {"a.bin": source})
    stage_here(request)
    (dst / "a.bin").chmod(mode)
    found = look_here(dst)
    assert word in problems(found)[0]
    assert found["to_write"] == 0
    result = stage_here(request)
    assert (result["bytes"], problems(look_here(dst))) == (0, [])
    assert stat.S_IMODE((dst / "a.bin").stat().st_mode) == 0o644


@needs_root
@pytest.mark.parametrize("mode", [0o644, 0])
def test_an_owner_that_is_not_ours(dst: Path, source: Path, mode: int) -> None:
    request = request_for(dst, {"a.bin": source})
    stage_here(request)
    os.chown(dst / "a.bin", SOMEBODY, SOMEBODY)
    (dst / "a.bin").chmod(mode)
    assert problems(look_here(dst)) == [f"a.bin belongs to uid {SOMEBODY}, who may change it"]
    said = call("stage", request)
    assert said.code == 0
    assert "took back" in str(said.events)
    assert problems(look_here(dst)) == []
    assert ((dst / "a.bin").stat().st_uid, stat.S_IMODE((dst / "a.bin").stat().st_mode)) == (0, 0o644)


@needs_root
def test_what_cannot_be_taken_back_is_copied_anew(dst: Path, source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    request = request_for(dst, {"a.bin": source})
    stage_here(request)
    os.chown(dst / "a.bin", SOMEBODY, SOMEBODY)
    monkeypatch.setattr(access.Access, "can_mend", lambda *_: False)  # as for a user that is not root
    assert look_here(dst)["to_write"] == source.stat().st_size
    assert stage_here(request)["copied"] == 1
    assert problems(look_here(dst)) == []


@needs_root
def test_the_owner_of_the_folder_may_own_its_files(dst: Path, source: Path) -> None:
    request = request_for(dst, {"a.bin": source})
    stage_here(request)
    for path in (dst, dst / "a.bin"):
        os.chown(path, SOMEBODY, SOMEBODY)
    assert problems(look_here(dst)) == []


def test_a_file_system_without_modes(dst: Path, source: Path) -> None:
    stage_here(request_for(dst, {"a.bin": source}))
    for path in (dst / "a.bin", dst / ".sparkbuild/ledger.json"):
        path.chmod(0o777)
    assert problems(look_here(dst)) == []


def test_files_of_others_keep_the_mode_that_they_had(dst: Path, source: Path) -> None:
    dst.mkdir()
    (dst / "a.bin").write_bytes(source.read_bytes())
    (dst / "a.bin").chmod(0o666)
    request = {**request_for(dst, {"a.bin": source}), "store": str(dst.parent / "store")}
    stage_here(request)
    assert problems(look_here(dst, store=request["store"])) == []
    assert stat.S_IMODE((dst / "a.bin").stat().st_mode) == 0o666


def folder_request(source: Path, dst: Path) -> dict[str, Any]:
    what = {"kind": "folder", "path": str(source.parent), "members": [], "skip": []}
    return {"what": what, "dst": str(dst), "store": "/", "key": key(), "parts": {}, "linked": True}


def test_a_hard_link_of_its_source(dst: Path, source: Path) -> None:
    request = folder_request(source, dst)
    stage_here(request)
    os.link(dst / "a.bin", dst.parent / "export.bin")
    assert problems(look_here(dst, linked=True)) == []
    (dst / "a.bin").unlink()
    os.link(source, dst / "a.bin")
    for _ in range(2):
        found = look_here(dst, linked=True)
        assert problems(found) == ["a.bin is a hard link of its source: a write to one changes both"]
    assert found["to_write"] == source.stat().st_size
    before = source.read_bytes()
    assert stage_here(request)["copied"] == 1
    assert problems(look_here(dst, linked=True)) == []
    assert (dst / "a.bin").stat().st_ino != source.stat().st_ino
    assert source.read_bytes() == before
