"""Lookup tables staged by the agent as a node runs it: made, checked without their source, mended, resumed."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.agent.driver import CHUNK, call, flip, key, look, problems
from tests.staging.checkpoint import Checkpoint, make
from tests.staging.readers import Packed, Page15, SparseCopy

WITHOUT_CTYPES = "sys.modules['ctypes'] = None"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    """Tables of several chunks."""
    return make(tmp_path_factory.mktemp("checkpoint") / "m", vocab=4000, as_hub_cache=True)


def request(made: Checkpoint, dst: Path, **more: Any) -> dict[str, Any]:
    what = {"kind": "packed", "model": str(made.folder), "layers": [], "split": "heads", "tp": 2, "rank": 1}
    return {"dst": str(dst), "key": key(), "parts": {"kind": "sparse-rows"}, "what": {**what, **more}}


def staged(wanted: dict[str, Any], **more: Any) -> dict[str, Any]:
    answer = call("stage", wanted, **more)
    assert answer.code == 0, answer.events
    return answer.last


@pytest.mark.parametrize("shim", ["", WITHOUT_CTYPES], ids=["as it is", "without ctypes"])
@pytest.mark.parametrize(("kind", "reader"), [("packed", Packed), ("page15", Page15)])
def test_made_and_mended(made: Checkpoint, dst: Path, kind: str, reader: Any, shim: str) -> None:
    wanted = request(made, dst, kind=kind)
    found = staged(wanted, shim=shim)
    assert found["bytes"] == found["total"] > 4 * CHUNK
    names = {1: "engram-l1-r1of2.bin", 14: "engram-l14-r1of2.bin"}
    if kind == "page15":
        names = {1: "engram-layer-01-rank1-page15.bin", 14: "engram-layer-14-rank1-page15.bin"}
    for layer, name in names.items():
        table, (lo, hi) = made.tables[layer], found["about"]["layers"][str(layer)]
        opened = reader(dst / name, layer, lo, hi, table.rows)
        assert all(row == table.row(lo + n) for n, row in enumerate(opened.rows()))
        opened.close()
    assert staged(wanted, shim=shim)["bytes"] == 0
    flip(dst / names[14], 4096 + 5)
    flip(dst / names[14], 2 * CHUNK + 5)
    assert len(problems(look(dst))) == 1
    found = staged(wanted, shim=shim)
    assert (found["repaired_chunks"], found["copied"]) == (2, 0)
    assert problems(look(dst, full=True)) == []


def test_checked_without_the_source(tmp_path: Path, dst: Path) -> None:
    made = make(tmp_path / "m", vocab=50)
    staged(request(made, dst))
    os.rename(made.folder, tmp_path / "gone")
    assert problems(look(dst)) == []
    assert problems(look(dst, full=True)) == []


def test_shards_of_equal_size_are_told_apart(tmp_path: Path, dst: Path) -> None:
    """Six generations of a table had one size and one name: only content says which is there."""
    one, other = make(tmp_path / "one", vocab=50), make(tmp_path / "other", vocab=50, seed=1)
    staged(request(one, dst))
    found = staged({**request(other, dst), "key": key("b")})
    assert found["bytes"] == found["total"]
    lo, hi = found["about"]["layers"]["1"]
    opened = Packed(dst / "engram-l1-r1of2.bin", 1, lo, hi, other.tables[1].rows)
    assert opened.row(lo) == other.tables[1].row(lo)
    opened.close()


def test_a_sparse_copy(made: Checkpoint, dst: Path) -> None:
    wanted = request(made, dst, kind="sparse-copy", complete_shard=True)
    found = staged(wanted)
    copy = SparseCopy(dst, {layer: table.rows for layer, table in made.tables.items()})
    for layer, table in made.tables.items():
        lo, hi = copy.ranges[layer]
        assert copy.rows(layer, lo, hi) == [table.row(row) for row in range(lo, hi)]
        assert copy.row(layer, lo - 20) == bytes(264)
    path = dst / made.files[14]
    assert path.stat().st_size == (made.folder / made.files[14]).stat().st_size
    assert path.stat().st_blocks * 512 < found["about"]["shards"][path.name]["data"] + (64 << 10)
    assert staged(wanted)["bytes"] == 0
    flip(path, found["about"]["tables"]["14"]["weight"][0] + 1)
    assert len(problems(look(dst))) == 1
    assert staged(wanted)["repaired_chunks"] == 1
    assert problems(look(dst, full=True)) == []


def test_a_checkpoint_that_is_cut_leaves_nothing(tmp_path: Path, dst: Path) -> None:
    made = make(tmp_path / "m", vocab=50)
    path = made.folder / made.files[14]
    os.truncate(path, path.stat().st_size - 1)
    answer = call("stage", request(made, dst))
    assert answer.last["event"] == "error"
    assert answer.last["kind"] == "integrity"
    assert answer.last["where"] == str(path)
    assert not dst.exists() or not list(dst.glob("*.bin"))
