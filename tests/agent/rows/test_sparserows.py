"""Sparse copies: a shard's header and a rank's rows where they were, holes elsewhere, and a manifest."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
import safetensors

from sparkbuild.agent.rows.sparse import file_set
from sparkbuild.agent.source.fileset import FileSet
from sparkbuild.agent.source.opened import Archives
from sparkbuild.agent.source.sparsecopy import MANIFEST
from sparkbuild.agent.wire.protocol import AgentError
from tests.staging.checkpoint import INDEX, Checkpoint, make
from tests.staging.readers import RefusedError, SparseCopy, tile


def plan(made: Checkpoint, **more: Any) -> FileSet:
    what = {"kind": "sparse-copy", "model": str(made.folder), "layers": [], "split": "even", "tp": 4, "rank": 1}
    return file_set({**what, **more}, "/")


def write(found: FileSet, dst: Path) -> Path:
    """What the engine makes of it, in few words."""
    dst.mkdir()
    archives = Archives()
    for wanted in found.files:
        source = archives.source(wanted.source)
        assert source.size == wanted.size
        with (dst / wanted.name).open("wb") as file:
            file.truncate(wanted.size)
            for start, end in wanted.extents or ((0, wanted.size),):
                view = memoryview(bytearray(end - start))
                assert source.read(view, start) == end - start
                file.seek(start)
                file.write(view)
        if wanted.sha256:
            assert hashlib.sha256((dst / wanted.name).read_bytes()).hexdigest() == wanted.sha256
        source.check()
        source.close()
    return dst


def rows_of(made: Checkpoint) -> dict[int, int]:
    return {layer: table.rows for layer, table in made.tables.items()}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    return make(tmp_path_factory.mktemp("checkpoint") / "m", as_hub_cache=True)


@pytest.mark.parametrize("split", ["even", "heads"])
@pytest.mark.parametrize("tp", [2, 3, 4, 8])
def test_every_row_of_every_rank(made: Checkpoint, tmp_path: Path, tp: int, split: str) -> None:
    seen: dict[int, list[tuple[int, int]]] = {1: [], 14: []}
    for rank in range(tp):
        copy = SparseCopy(write(plan(made, split=split, tp=tp, rank=rank), tmp_path / str(rank)), rows_of(made))
        for layer, (lo, hi) in copy.ranges.items():
            seen[layer].append((lo, hi))
            table = made.tables[layer]
            assert copy.rows(layer, lo, hi) == [table.row(row) for row in range(lo, hi)]
            others = [row for row in (0, lo - 20, hi + 20, table.rows - 1) if 0 <= row < table.rows]
            assert all(copy.row(layer, row) == bytes(264) for row in others if not lo <= row < hi)
    assert all(tile(ranges, made.tables[layer].rows) for layer, ranges in seen.items())


def test_names_sizes_and_what_is_data(made: Checkpoint, tmp_path: Path) -> None:
    found = plan(made, revision="main")
    assert [wanted.name for wanted in found.files] == [
        "model-00003-of-00004.safetensors",
        "model-00004-of-00004.safetensors",
        INDEX,
        "config.json",
        MANIFEST,
    ]
    dst = write(found, tmp_path / "dst")
    for wanted, layer in zip(found.files, (1, 14), strict=False):
        path = made.folder / wanted.name
        assert wanted.size == path.stat().st_size
        assert wanted.extents == tuple(sorted(wanted.extents))
        data = sum(end - start for start, end in wanted.extents)
        lo, hi = found.about["layers"][str(layer)]
        length = 8 + int.from_bytes(path.read_bytes()[:8], "little")
        assert data == length + 264 * (hi - lo) == found.about["shards"][wanted.name]["data"]
        assert (dst / wanted.name).stat().st_blocks * 512 < data + (64 << 10)
    assert (dst / INDEX).read_bytes() == (made.folder / INDEX).read_bytes()
    assert (dst / "config.json").read_bytes() == (made.folder / "config.json").read_bytes()
    manifest = json.loads((dst / MANIFEST).read_text())
    assert manifest.pop("note")
    assert manifest == {
        "source": str(made.folder),
        "layers": {"1": [6468, 12937], "14": [7514, 15029]},
        "rank": 1,
        "tp_size": 4,
        "revision": "main",
        "quant": "fp8",
    }
    json.dumps(found.about)


def test_the_same_twice_is_the_same(made: Checkpoint) -> None:
    assert plan(made) == plan(made)


@pytest.mark.parametrize(
    "options", [{}, {"one_file": True}, {"others_first": True, "pad": 3, "prefix": "model."}], ids=str
)
def test_complete_shards_lack_nothing_but_rows(tmp_path: Path, options: dict[str, Any]) -> None:
    made = make(tmp_path / "m", vocab=50, **options)
    dst = write(plan(made, complete_shard=True), tmp_path / "dst")
    SparseCopy(dst, rows_of(made))
    for name in set(made.files.values()):
        copy = dict(safetensors.deserialize((dst / name).read_bytes()))
        source = dict(safetensors.deserialize((made.folder / name).read_bytes()))
        assert copy.keys() == source.keys()
        for tensor in copy:
            same = bytes(copy[tensor]["data"]) == bytes(source[tensor]["data"])
            assert same is (".engram.embed." not in tensor), tensor


def test_without_it_other_tensors_are_zeros(tmp_path: Path) -> None:
    made = make(tmp_path / "m", vocab=50)
    dst = write(plan(made), tmp_path / "dst")
    copy = dict(safetensors.deserialize((dst / made.files[1]).read_bytes()))
    assert not any(copy["layers.2.attn.wkv.weight"]["data"])
    found = plan(made).files[0], plan(made, complete_shard=True).files[0]
    assert found[0].identity != found[1].identity


def test_one_layer_of_a_file_with_two(tmp_path: Path) -> None:
    """The table that was not asked for is a tensor like any other."""
    made = make(tmp_path / "m", vocab=50, one_file=True)
    found = plan(made, layers=[1])
    assert found.about["layers"].keys() == {"1"}
    dst = write(found, tmp_path / "dst")
    assert SparseCopy(dst, rows_of(made)).ranges.keys() == {1}
    dst = write(plan(made, layers=[1], complete_shard=True), tmp_path / "complete")
    copy = dict(safetensors.deserialize((dst / made.files[1]).read_bytes()))
    assert bytes(copy["layers.14.engram.embed.weight"]["data"]) == made.tables[14].weight


def test_rows_up_to_both_ends_of_a_table(tmp_path: Path) -> None:
    """Ranges that touch are one: the header and row 0, the last weights and the first scales."""
    made = make(tmp_path / "m", vocab=50)
    found = plan(made, tp=1, rank=0)
    assert found.files[0].extents[0][0] == 0
    assert len(found.files[0].extents) == 1
    copy = SparseCopy(write(found, tmp_path / "dst"), rows_of(made))
    assert copy.rows(14, 0, made.tables[14].rows)[-1] == made.tables[14].row(made.tables[14].rows - 1)


def test_ranks_without_rows(tmp_path: Path) -> None:
    made = make(tmp_path / "m", vocab=50)
    found = plan(made, split="heads", tp=7, rank=6)
    assert len(found.files[0].extents) == 1  # the header
    assert SparseCopy(write(found, tmp_path / "dst"), rows_of(made)).ranges[1] == (made.tables[1].rows,) * 2


def test_another_quantization_is_told(tmp_path: Path) -> None:
    made = make(tmp_path / "m", vocab=50, nested=True)
    (made.folder / "config.json").write_text(json.dumps({**made.config, "engram_quant": "mxfp8"}))
    dst = write(plan(made), tmp_path / "dst")
    assert json.loads((dst / MANIFEST).read_text())["quant"] == "mxfp8"


def test_a_checkpoint_without_an_index(tmp_path: Path) -> None:
    made = make(tmp_path / "m", vocab=50, index=False)
    assert INDEX not in [wanted.name for wanted in plan(made).files]


def test_an_index_that_changes_in_between_is_not_copied(tmp_path: Path) -> None:
    made = make(tmp_path / "m", vocab=50)
    found = plan(made)
    (made.folder / INDEX).write_bytes((made.folder / INDEX).read_bytes().replace(b"wkv", b"wkw"))
    with pytest.raises(AssertionError):
        write(found, tmp_path / "dst")  # the engine compares as this test does


def test_ranges_are_checked_as_for_packed_rows(tmp_path: Path) -> None:
    made = make(tmp_path / "m", vocab=50)
    with pytest.raises(AgentError) as caught:
        plan(made, layers=[1], split=[[0, 10], [9, made.tables[1].rows]], tp=2)
    assert caught.value.fields["what"] == "ranks 0 and 1 overlap in split"


def test_the_reader_refuses_a_copy_that_is_too_short(tmp_path: Path) -> None:
    made = make(tmp_path / "m", vocab=50)
    dst = write(plan(made, rank=3), tmp_path / "dst")
    found = plan(made, rank=3)
    end = found.about["tables"]["14"]["scale"][1]
    with (dst / made.files[14]).open("r+b") as file:
        file.truncate(end - 1)
    with pytest.raises(RefusedError):
        SparseCopy(dst, rows_of(made))
