"""Lookup tables staged by the agent as a node runs it: made, checked without their source, mended, resumed."""

from __future__ import annotations

import json
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


def change_a_row(made: Checkpoint, layer: int, row: int) -> None:
    """A row of the shard in place, its size and mtime as before, one that is no sample."""
    path = made.folder / made.files[layer]
    about = path.stat()
    at = path.read_bytes().index(made.tables[layer].weight[256 * row : 256 * row + 256])
    flip(path, at + 7)
    os.utime(path, ns=(about.st_atime_ns, about.st_mtime_ns))


KINDS = [("packed", {}), ("page15", {}), ("sparse-copy", {}), ("sparse-copy", {"complete_shard": True})]


@pytest.mark.parametrize(("kind", "more"), KINDS, ids=str)
def test_a_changed_row_of_a_plain_folder_is_noticed_when_asked(
    tmp_path: Path, dst: Path, kind: str, more: dict[str, Any]
) -> None:
    made = make(tmp_path / "m", vocab=50)
    wanted = request(made, dst, kind=kind, **more)
    first = staged(wanted)
    lo, _ = first["about"]["layers"]["1"]
    before = {path.name: path.read_bytes() for path in dst.iterdir() if path.is_file()}
    assert staged({**wanted, "full": True})["read"] == 0, "nothing of it changed"
    change_a_row(made, 1, lo + 2)
    assert staged(wanted)["bytes"] == 0, "not asked for"
    assert problems(look(dst, full=True)) == []
    found = staged({**wanted, "full": True})
    assert found["read"] >= found["bytes"] > 0
    after = {path.name: path.read_bytes() for path in dst.iterdir() if path.is_file()}
    other = [name for name in after if after[name] != before[name]]
    assert len(other) == 1
    assert sum(a != b for a, b in zip(after[other[0]], before[other[0]], strict=True)) == 1
    assert staged({**wanted, "full": True})["read"] == 0


def test_a_blob_that_was_touched_is_not_read_again(tmp_path: Path, dst: Path) -> None:
    made = make(tmp_path / "m", vocab=50, as_hub_cache=True)
    wanted = request(made, dst)
    staged(wanted)
    for path in made.cache.glob("**/blobs/*"):
        os.utime(path)
    assert staged({**wanted, "full": True})["read"] == 0


@pytest.mark.parametrize(("kind", "more"), KINDS, ids=str)
def test_no_chunk_is_mended_from_another_source(tmp_path: Path, dst: Path, kind: str, more: dict[str, Any]) -> None:
    """And the damaged file is not given up for it."""
    made = make(tmp_path / "m", vocab=50)
    wanted = {**request(made, dst, kind=kind, **more), "task": "stage:big:dgx1:engram"}
    found = staged(wanted)
    lo, _ = found["about"]["layers"]["1"]
    name = made.files[1] if kind == "sparse-copy" else found["about"]["tables"]["1"]["file"]
    flip(dst / name, 9)
    before = {path.name: path.read_bytes() for path in dst.iterdir() if path.is_file()}
    change_a_row(made, 1, lo + 2)
    answer = call("stage", wanted)
    said = answer.last
    assert (said["event"], said["kind"]) == ("error", "integrity")
    assert said["what"] == f"the source of {name} is another by now than the one it was staged from"
    assert said["where"] == str(made.folder / made.files[1])
    assert said["found"] != said["wanted"]
    assert all(" bytes, changed at " in said[part] and ", ctime 20" in said[part] for part in ("found", "wanted"))
    assert said["next"].startswith("doit -a stage:big:dgx1:engram stages the new one as a whole")
    assert {path.name: path.read_bytes() for path in dst.iterdir() if path.is_file()} == before
    assert len(problems(look(dst))) == 1
    staged({**wanted, "full": True})
    assert problems(look(dst, full=True)) == []


def as_of_old(dst: Path) -> None:
    """Make a ledger one of a sparkbuild that knew nothing of the times of a shard."""
    path = dst / ".sparkbuild/ledger.json"
    value = json.loads(path.read_text())
    for file in value["files"]:
        for one in file["source"].get("tables", [file["source"]]):
            for key_ in ("size", "mtime_ns", "ctime_ns"):
                one.pop(key_, None)
    path.write_text(json.dumps(value))


def test_a_folder_of_old_is_mended_and_read_once_when_asked(tmp_path: Path, dst: Path) -> None:
    made = make(tmp_path / "m", vocab=4000)
    wanted = request(made, dst)
    total = staged(wanted)["total"]
    as_of_old(dst)
    flip(dst / "engram-l14-r1of2.bin", 2 * CHUNK + 5)
    found = staged(wanted)
    assert (found["repaired_chunks"], found["copied"]) == (1, 0)
    assert staged({**wanted, "full": True})["bytes"] == total
    assert staged({**wanted, "full": True})["bytes"] == 0


def spoil_blob(made: Checkpoint, layer: int, row: int) -> Path:
    """A wrong byte in a blob of the cache, whose name stays; the blob."""
    path = (made.folder / made.files[layer]).resolve()
    flip(path, path.read_bytes().index(made.tables[layer].weight[256 * row : 256 * row + 7]) + 7)
    return path


def test_all_of_a_blob_is_compared_with_its_name(tmp_path: Path, dst: Path) -> None:
    made = make(tmp_path / "m", vocab=50, as_hub_cache=True)
    wanted = request(made, dst, kind="sparse-copy", complete_shard=True, tp=1, rank=0)
    blob = spoil_blob(made, 1, 5)
    answer = call("stage", wanted)
    assert (answer.last["event"], answer.last["kind"]) == ("error", "integrity")
    assert answer.last["wanted"] == f"sha256 {blob.name}"
    assert f"sha256sum {made.folder / made.files[1]}" in answer.last["next"]
    assert not (dst / made.files[1]).exists()
    spoil_blob(made, 1, 5)  # the byte is right again
    staged(wanted)
    assert (dst / made.files[1]).read_bytes() == blob.read_bytes()


def test_rows_that_are_suspected_are_read_anew_once_they_are_gone(tmp_path: Path, dst: Path) -> None:
    """A wrong byte of a blob passes where only rows are read; with its name the same, nothing reads it again."""
    made = make(tmp_path / "m", vocab=50, as_hub_cache=True)
    wanted = request(made, dst, rank=0)
    table = made.tables[1]
    spoil_blob(made, 1, 5)
    lo, hi = staged(wanted)["about"]["layers"]["1"]

    def row() -> bytes:
        opened = Packed(dst / "engram-l1-r0of2.bin", 1, lo, hi, table.rows)
        found = opened.row(5)
        opened.close()
        return found

    assert row() != table.row(5)
    spoil_blob(made, 1, 5)
    assert staged({**wanted, "full": True})["read"] == 0
    (dst / "engram-l1-r0of2.bin").unlink()
    assert staged(wanted)["copied"] == 1
    assert row() == table.row(5)


def test_a_chunk_that_the_source_gives_otherwise_now(tmp_path: Path, dst: Path) -> None:
    """Nothing of it gets into the staged file, and what is right in that is kept until the source is right again."""
    made = make(tmp_path / "m", vocab=50, as_hub_cache=True)
    wanted = request(made, dst, rank=0)
    staged(wanted)
    name = "engram-l1-r0of2.bin"
    flip(dst / name, 9)
    spoil_blob(made, 1, 5)
    said = call("stage", wanted).last
    assert said["what"] == f"{name} cannot be mended: its source is not what it was staged from"
    assert "another content in chunk 1 of " in said["found"]
    assert call("stage", wanted).last["what"] == said["what"]
    spoil_blob(made, 1, 5)  # the same byte: it is right again
    assert staged(wanted)["read"] <= CHUNK
    assert problems(look(dst, full=True)) == []


def test_another_table_is_mended_though_one_changed(tmp_path: Path, dst: Path) -> None:
    made = make(tmp_path / "m", vocab=50)
    wanted = request(made, dst)
    lo, _ = staged(wanted)["about"]["layers"]["1"]
    change_a_row(made, 1, lo + 2)
    flip(dst / "engram-l14-r1of2.bin", 5000)
    assert staged(wanted)["repaired_chunks"] == 1
    assert problems(look(dst, full=True)) == []
    (dst / "engram-l1-r1of2.bin").unlink()
    assert "is another by now" in call("stage", wanted).last["what"]
    assert staged({**wanted, "full": True})["copied"] == 1
