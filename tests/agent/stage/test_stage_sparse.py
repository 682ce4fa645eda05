"""Sparse files: only their extents are copied, take room and are checked, and what strays into a hole is found."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sparkbuild.agent.disk import pages
from sparkbuild.agent.ledger import content
from sparkbuild.agent.ledger.digest import CHUNK
from sparkbuild.agent.ledger.shape import Shape
from tests.agent.driver import (
    COMPLETE,
    allocated,
    call,
    entry,
    flip,
    list_of,
    look,
    look_here,
    problems,
    stage_here,
    tree,
)

Make = Callable[[str, int], Path]
SIZE = 6 * CHUNK + 100
# unaligned on both ends, across a chunk's end, two in one chunk, and the last byte; chunks 3 and 4 are all hole
EXTENTS = [[8, 5000], [9000, 9001], [CHUNK - 10, CHUNK + 7], [2 * CHUNK, 3 * CHUNK], [6 * CHUNK + 99, 6 * CHUNK + 100]]
DATA = sum(end - first for first, end in EXTENTS)


def expected(source: Path) -> bytes:
    data, whole = source.read_bytes(), bytearray(SIZE)
    for first, end in EXTENTS:
        whole[first:end] = data[first:end]
    return bytes(whole)


@pytest.fixture
def source(make: Make) -> Path:
    return make("table.bin", SIZE)


@pytest.fixture
def request_(dst: Path, source: Path) -> dict[str, Any]:
    return list_of(dst, [entry("table.bin", source, extents=EXTENTS)])


def test_bytes_read_are_told_as_bytes_of_data(dst: Path, request_: dict[str, Any]) -> None:
    """Of a file that is nearly all hole, more would be read than it has."""
    call("stage", request_)
    assert look(dst, full=True)["checked"]["bytes"] == DATA
    assert 0 < look(dst)["checked"]["bytes"] <= DATA


def test_only_the_extents_are_read_and_take_room(dst: Path, source: Path, request_: dict[str, Any]) -> None:
    assert look(dst, what=request_["what"])["to_write"] == DATA
    result = call("stage", request_).last
    assert (result["bytes"], result["read"], result["total"]) == (DATA, DATA, DATA)
    staged = dst / "table.bin"
    assert staged.read_bytes() == expected(source)
    assert staged.stat().st_size == SIZE
    assert allocated(staged) <= Shape(SIZE, tuple((a, b) for a, b in EXTENTS)).room + 4096
    whole = hashlib.sha256(b"".join(expected(source)[first:end] for first, end in EXTENTS)).hexdigest()
    record = json.loads((dst / ".sparkbuild/ledger.json").read_text())["files"][0]
    assert (record["sha256"], record["extents"]) == (whole, EXTENTS)
    assert problems(look(dst, full=True)) == []
    assert call("stage", request_).last["read"] == 0
    assert tree(dst) == [*COMPLETE, "table.bin"]


@pytest.mark.parametrize(
    ("offset", "chunk"), [(100, 1), (7000, 1), (CHUNK + 8, 2), (3 * CHUNK + 5000, 4), (5 * CHUNK - 1, 5)]
)
def test_a_byte_in_data_or_hole_is_found_and_mended(
    dst: Path, source: Path, request_: dict[str, Any], offset: int, chunk: int
) -> None:
    stage_here(request_)
    flip(dst / "table.bin", offset)
    assert problems(look_here(dst)) == [f"table.bin differs from its ledger in chunk {chunk} of 7"]
    result = stage_here(request_)
    assert result["bytes"] < CHUNK
    assert (dst / "table.bin").read_bytes() == expected(source)
    assert allocated(dst / "table.bin") <= CHUNK + 10 * 4096
    assert problems(look_here(dst, full=True)) == []


def test_zeros_that_were_allocated_in_a_hole_are_no_problem(dst: Path, request_: dict[str, Any]) -> None:
    stage_here(request_)
    with (dst / "table.bin").open("r+b") as file:
        file.seek(4 * CHUNK)
        file.write(bytes(8192))
    assert problems(look_here(dst)) == []


def test_a_file_system_that_tells_of_no_holes(
    dst: Path, request_: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    stage_here(request_)
    flip(dst / "table.bin", 4 * CHUNK)

    def everything(_fd: int, first: int, end: int) -> list[tuple[int, int]]:
        return [(first, end)]

    monkeypatch.setattr(content, "data_in", everything)
    assert problems(look_here(dst)) == ["table.bin differs from its ledger in chunk 5 of 7"]


def test_other_extents_are_another_content(dst: Path, source: Path, request_: dict[str, Any]) -> None:
    stage_here(request_)
    request_["what"]["files"][0]["extents"] = [[0, 10]]
    assert stage_here(request_)["bytes"] == 10
    assert (dst / "table.bin").read_bytes() == source.read_bytes()[:10] + bytes(SIZE - 10)


@pytest.mark.parametrize("extents", [[[5, 5]], [[0, SIZE + 1]], [[10, 20], [15, 30]], [[-1, 4]], [[10, 20], [0, 5]]])
def test_extents_that_make_no_sense(dst: Path, request_: dict[str, Any], extents: list[list[int]]) -> None:
    request_["what"]["files"][0]["extents"] = extents
    assert call("stage", request_).last["kind"] == "config"
    assert not dst.exists()


def test_the_shape_of_a_file() -> None:
    shape = Shape(SIZE, tuple((first, end) for first, end in EXTENTS))
    assert list(shape.with_data()) == [0, 1, 2, 6]
    assert [shape.weight(index) for index in range(7)] == [4992 + 1 + 10, 7, CHUNK, 0, 0, 0, 1]
    assert shape.blocks(0) == [(0, 12288), (CHUNK - 4096, CHUNK)]
    assert shape.blocks(6) == [(6 * CHUNK, SIZE)]
    assert list(Shape(2 * CHUNK + 1).with_data()) == [0, 1, 2]
    assert Shape(0).room == 0


def test_holes_are_made_where_the_file_system_cannot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"x" * (3 << 20))
    monkeypatch.setattr(pages, "_libc", lambda: (None, None, None))
    fd = os.open(path, os.O_RDWR)
    pages.make_hole(fd, 1000, 2 << 20)
    os.close(fd)
    data = path.read_bytes()
    assert data == b"x" * 1000 + bytes((2 << 20) - 1000) + b"x" * (1 << 20)


def test_a_quick_look_at_141_files_of_4_gb(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = tmp_path / "source"
    size = 4 * 10**9
    with source.open("wb") as file:
        for index in range(8):
            file.seek(index * size // 8)
            file.write(os.urandom(9000))
        file.truncate(size)
    extents = [[index * size // 8, index * size // 8 + 9000] for index in range(8)]
    dst = tmp_path / "staged"
    files = [entry(f"model-{index:05d}.safetensors", source, extents=extents) for index in range(141)]
    start = time.perf_counter()
    result = stage_here(list_of(dst, files))
    made = time.perf_counter() - start
    assert result["bytes"] == 141 * 8 * 9000
    best = 10.0
    for _ in range(3):
        start = time.perf_counter()
        fact = look_here(dst)
        best = min(best, time.perf_counter() - start)
        assert (fact["problems"], fact["checked"]["whole"]) == ([], [])
    with capsys.disabled():
        print(f"\n141 sparse files of 4 GB: staged in {made:.2f} s, quick look {best * 1e3:.0f} ms")
    assert best < 3
