"""Symbolic links of a staged folder: made after the files, checked by text, and never written through."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.agent.driver import call, entry, list_of, look, look_here, problems, stage_here

Make = Callable[[str, int], Path]
LINKS = {"snapshots/abc/a.bin": "../../blobs/a", "snapshots/abc/sub/b.bin": "../../../blobs/b", "top": "blobs/a"}


@pytest.fixture
def files(make: Make) -> list[dict[str, Any]]:
    return [entry("blobs/a", make("a", 1000)), entry("blobs/b", make("b", 10))]


def test_made_and_kept(dst: Path, files: list[dict[str, Any]]) -> None:
    request = list_of(dst, files, LINKS)
    assert call("stage", request).last["links"] == 3
    assert {name: os.readlink(dst / name) for name in LINKS} == LINKS
    assert (dst / "snapshots/abc/sub/b.bin").read_bytes() == (dst / "blobs/b").read_bytes()
    assert look(dst)["problems"] == []
    again = call("stage", request).last
    assert (again["links"], again["bytes"]) == (0, 0)


@pytest.mark.parametrize("how", ["missing", "other text", "a file", "its folder"])
def test_a_link_that_is_not_right(dst: Path, files: list[dict[str, Any]], how: str) -> None:
    request = list_of(dst, files, LINKS)
    stage_here(request)
    path = dst / "top"
    path.unlink()
    if how == "other text":
        path.symlink_to("blobs/b")
    elif how == "a file":
        path.write_bytes((dst / "blobs/a").read_bytes())
    elif how == "its folder":
        path.mkdir()
    for _ in range(3):
        fact = look_here(dst)
        assert [problem["file"] for problem in fact["problems"]] == ["top"]
        assert fact["to_write"] == 0
    if how == "its folder":
        assert "a folder is" in call("stage", request).last["what"]
        return
    assert stage_here(request)["links"] == 1
    assert os.readlink(path) == "blobs/a"
    assert (dst / "blobs/b").stat().st_size == 10, "it was not written through"
    assert problems(look_here(dst)) == []


def test_what_is_no_longer_wanted_goes_with_its_empty_folders(dst: Path, files: list[dict[str, Any]]) -> None:
    stage_here(list_of(dst, files, LINKS))
    (dst / "mine").symlink_to("blobs/a")
    (dst / "top").unlink()
    (dst / "top").symlink_to("blobs/b")  # no longer what we made: somebody else's
    result = stage_here(list_of(dst, files, {"snapshots/def/a.bin": "../../blobs/a"}))
    assert result["removed"] == 2
    assert sorted(os.listdir(dst / "snapshots")) == ["def"]
    assert os.readlink(dst / "mine") == "blobs/a"
    assert os.readlink(dst / "top") == "blobs/b"


def test_a_link_becomes_a_file_and_a_file_a_link(dst: Path, make: Make, files: list[dict[str, Any]]) -> None:
    stage_here(list_of(dst, files, {"top": "blobs/a"}))
    other = [*files, entry("top", make("top", 20))]
    stage_here(list_of(dst, other))
    assert not (dst / "top").is_symlink()
    assert (dst / "blobs/a").stat().st_size == 1000
    stage_here(list_of(dst, files, {"top": "blobs/a"}))
    assert os.readlink(dst / "top") == "blobs/a"
    assert problems(look_here(dst)) == []
    stage_here(list_of(dst, [*files, entry("top/x", make("x", 5))]))
    assert (dst / "top/x").stat().st_size == 5


def test_a_file_below_a_link_is_refused(dst: Path, files: list[dict[str, Any]]) -> None:
    outside = dst.parent / "outside"
    outside.mkdir(parents=True)
    dst.mkdir()
    (dst / "blobs").symlink_to(outside)
    assert "a folder is wanted" in call("stage", list_of(dst, files)).last["what"]
    assert "a folder is wanted" in call("stage", list_of(dst, [], {"blobs/x": "y"})).last["what"]
    assert os.listdir(outside) == []


@pytest.mark.parametrize(
    ("name", "text"),
    [("a", "/etc/passwd"), ("a", "../x"), ("s/a", "../../x"), ("a", ""), ("a", "x\ny"), ("../a", "x"), ("a", "..")],
)
def test_links_that_leave_the_folder(dst: Path, name: str, text: str) -> None:
    error = call("stage", list_of(dst, [], {name: text})).last
    assert (error["event"], error["kind"]) == ("error", "config")
    assert not dst.exists()


def test_names_that_collide(dst: Path, files: list[dict[str, Any]]) -> None:
    assert "twice" in call("stage", list_of(dst, files, {"blobs/a": "b"})).last["what"]
    assert "folder is wanted too" in call("stage", list_of(dst, files, {"blobs": "x"})).last["what"]
