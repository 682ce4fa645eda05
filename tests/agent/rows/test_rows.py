"""Plans of packed rows: which tables, ranges and sizes are found in a checkpoint, and what is refused."""

from __future__ import annotations

import hashlib
import json
import os
import time
import tracemalloc
from pathlib import Path
from typing import Any

import msgspec
import pytest
import tomli

from sparkbuild.agent.rows import rowsplit, tables
from sparkbuild.agent.rows.packed import file_set
from sparkbuild.agent.rows.source import header_of
from sparkbuild.agent.source.fileset import FileSet
from sparkbuild.agent.wire.protocol import AgentError
from sparkbuild.workspace.recipes import rows as stagingrows
from sparkbuild.workspace.shapes.stagingschema import Split
from tests.staging.checkpoint import INDEX, Checkpoint, make, make_real, shard


def what(folder: Path | str, **more: Any) -> dict[str, Any]:
    wanted = {"kind": "packed", "model": str(folder), "layers": [], "split": "even", "tp": 4, "rank": 1, "revision": ""}
    return {**wanted, **more}


def plan(folder: Path | str, **more: Any) -> FileSet:
    return file_set(what(folder, **more), "/")


def refused(folder: Path, kind: str = "config", **more: Any) -> dict[str, str]:
    with pytest.raises(AgentError) as caught:
        plan(folder, **more)
    fields = caught.value.fields
    assert fields["kind"] == kind, fields
    if "tp" in more and "rank" in more:
        return fields
    for name in ("where", "found", "wanted", "next"):
        assert fields[name], f"{name} of {fields}"
    assert fields["where"].startswith(str(folder)), fields
    return fields


def change_config(made: Checkpoint, **more: Any) -> None:
    path = made.folder / "config.json"
    path.write_text(json.dumps({**made.config, **more}))


def table(name: str, rows: int, dtypes: tuple[str, str] = ("F8_E4M3", "F8_E8M0"), widths: tuple[int, int] = (256, 8)):
    """The tensors of a small table."""
    return [
        (f"{name}.{part}", dtype, [rows, width], bytes(rows * width * (2 if dtype == "BF16" else 1)))
        for part, dtype, width in zip(("weight", "scale"), dtypes, widths, strict=True)
    ]


def test_names_sizes_and_ranges(tmp_path: Path) -> None:
    made = make(tmp_path / "m")
    found = plan(made.folder, revision="abc")
    assert [(one.name, one.size) for one in found.files] == [
        ("engram-l1-r1of4.bin", 4096 + 264 * (12937 - 6468)),
        ("engram-l14-r1of4.bin", 4096 + 264 * (15029 - 7514)),
    ]
    assert found.about["layers"] == {"1": [6468, 12937], "14": [7514, 15029]}
    about = found.about["tables"]["1"]
    assert about["ranges"] == [(0, 6468), (6468, 12937), (12937, 19405), (19405, 25874)]
    assert about["bytes"] == [4096 + 264 * (hi - lo) for lo, hi in about["ranges"]]
    assert (about["shard"], about["rows"]) == ("model-00003-of-00004.safetensors", 25874)
    path = made.folder / about["shard"]
    data = path.read_bytes()
    assert data[slice(*about["weight"])] == made.tables[1].weight[256 * 6468 : 256 * 12937]
    assert data[slice(*about["scale"])] == made.tables[1].scale[8 * 6468 : 8 * 12937]
    assert found.about["config_sha256"] == hashlib.sha256((made.folder / "config.json").read_bytes()).hexdigest()
    assert found.about["index_sha256"] == hashlib.sha256((made.folder / INDEX).read_bytes()).hexdigest()
    json.dumps(found.about)  # it goes into the ledger


def test_names_of_page15(tmp_path: Path) -> None:
    made = make(tmp_path / "m")
    found = plan(made.folder, kind="page15", tp=2, split="heads")
    assert [(one.name, one.size) for one in found.files] == [
        ("engram-layer-01-rank1-page15.bin", 4096 + 4096 * -(-(25874 - 12458) // 15)),
        ("engram-layer-14-rank1-page15.bin", 4096 + 4096 * -(-(30058 - 14532) // 15)),
    ]


@pytest.mark.parametrize(
    "options",
    [
        {"nested": True},
        {"prefix": "model."},
        {"prefix": "language_model.model."},
        {"one_file": True},
        {"others_first": True},
        {"pad": 11},
        {"index": False},
        {"as_hub_cache": True},
        {"as_hub_cache": True, "nested": True, "others_first": True, "one_file": True, "prefix": "model.", "pad": 5},
    ],
    ids=str,
)
def test_checkpoints_of_all_shapes(tmp_path: Path, options: dict[str, Any]) -> None:
    made = make(tmp_path / "m", vocab=50, **options)
    found = plan(made.folder, split="heads", tp=3, rank=2)
    for layer, one in made.tables.items():
        about = found.about["tables"][str(layer)]
        lo, hi = found.about["layers"][str(layer)]
        assert (lo, hi) == (sum(one.heads[:16]), one.rows)
        data = (made.folder / made.files[layer]).read_bytes()
        assert data[slice(*about["weight"])] == one.weight[256 * lo : 256 * hi]
        assert data[slice(*about["scale"])] == one.scale[8 * lo : 8 * hi]


def test_a_blob_says_what_it_is(tmp_path: Path) -> None:
    made = make(tmp_path / "m", vocab=50, as_hub_cache=True)
    found = plan(made.folder, revision="a")
    blob = hashlib.sha256((made.folder / made.files[1]).read_bytes()).hexdigest()
    assert found.files[0].identity["blob"] == found.about["tables"]["1"]["blob"] == blob
    assert found.files[0].source["link"] == f"../../blobs/{blob}"
    # Another revision with the same tables is no reason to read 25 GB again.
    change_config(made, torch_dtype="bfloat16")
    assert plan(made.folder, revision="b").files[0].identity == found.files[0].identity
    assert "/" not in json.dumps(found.files[0].identity)


def test_without_blobs_rows_speak_for_themselves(tmp_path: Path) -> None:
    one = make(tmp_path / "one", vocab=50)
    same, other = make(tmp_path / "same", vocab=50), make(tmp_path / "other", vocab=50, seed=1)
    found = plan(one.folder).files
    for copy, file in zip(plan(same.folder).files, found, strict=True):
        assert {key for key in file.identity if copy.identity[key] != file.identity[key]} <= {
            "inode",
            "mtime_ns",
            "ctime_ns",
        }
        assert copy.identity["ctime_ns"] == (same.folder / file.source["path"].rpartition("/")[2]).stat().st_ctime_ns
    assert [file.size for file in plan(other.folder).files] == [file.size for file in found]
    assert all(a.identity != b.identity for a, b in zip(plan(other.folder).files, found, strict=True))
    assert all(a.identity != b.identity for a, b in zip(plan(one.folder, revision="x").files, found, strict=True))


def test_every_rank_and_split_is_another_content(tmp_path: Path) -> None:
    made = make(tmp_path / "m", vocab=50, as_hub_cache=True)
    seen = [
        json.dumps(file.identity, sort_keys=True)
        for kind in ("packed", "page15")
        for split in ("even", "heads")
        for rank in range(4)
        for file in plan(made.folder, kind=kind, split=split, rank=rank).files
    ]
    assert len(set(seen)) == len(seen) == 32


def test_given_ranges(tmp_path: Path) -> None:
    made = make(tmp_path / "m", vocab=50)
    rows = made.tables[1].rows
    found = plan(made.folder, layers=[1], split=[[0, 7], [7, rows]], tp=2)
    assert found.about["layers"] == {"1": [7, rows]}
    both = {"1": [[0, 7], [7, rows]], "14": [[0, 1], [1, made.tables[14].rows]]}
    assert plan(made.folder, split=both, tp=2).about["layers"]["14"] == [1, made.tables[14].rows]
    assert refused(made.folder, split=[[0, 7], [7, rows]], tp=2)["what"] == "split leaves rows out"
    assert refused(made.folder, layers=[1], split=[[0, 8], [7, rows]], tp=2)["what"].startswith("ranks 0 and 1 overlap")


@pytest.mark.parametrize(
    ("split", "what"),
    [
        ([[0, 7], [8, 2586]], "split leaves rows out"),
        ([[0, 9], [8, 2586]], "ranks 0 and 1 overlap in split"),
        ([[0, 7], [7, 2587]], "a range of split is not in the table"),
        ([[0, 2586]], "split has not one range per rank"),
        ([[0, 7], [7]], "a split that is none"),
        ({"14": [[0, 7], [7, 9]]}, "split has no ranges for layer 1"),
    ],
)
def test_what_is_told_of_a_split_can_be_pasted(tmp_path: Path, split: Any, what: str) -> None:
    """Into a recipe: the parser takes it, and so does the planner."""
    made = make(tmp_path / "m", vocab=50)
    assert made.tables[1].rows == 2586
    fields = refused(made.folder, split=split, tp=2)
    assert fields["what"] == what
    assert fields["where"] == str(made.folder / made.files[1])
    assert 'split = "even"' in fields["next"]
    pasted = fields["next"][fields["next"].index("split = {") :]
    read = msgspec.convert(tomli.loads(pasted)["split"], Split)
    again = plan(made.folder, split=msgspec.to_builtins(read), tp=2)
    assert again.about["layers"] == plan(made.folder, split="even", tp=2).about["layers"]


def test_the_example_of_recipes_is_written_as_ours() -> None:
    assert rowsplit.written({1: [(0, 100), (100, 250)]}) == stagingrows.EXAMPLE


def pasted_split(said: dict[str, str]) -> dict[str, Any]:
    """What a message says to write, as a recipe gives it to the planner."""
    text = said["next"][said["next"].index("layers = [") :].replace(" and split", "\nsplit")
    read = tomli.loads(text)
    return {"layers": read["layers"], "split": msgspec.to_builtins(msgspec.convert(read["split"], Split))}


@pytest.mark.parametrize("key", ["engram_vocab_size", "engram_n_heads", "engram_max_ngram_size", "engram_layer_ids"])
@pytest.mark.parametrize("value", [None, "x"])
def test_ranges_instead_of_a_config_can_be_pasted(tmp_path: Path, key: str, value: Any) -> None:
    made = make(tmp_path / "m", vocab=50)
    change_config(made, **{key: value})
    said = refused(made.folder, split="heads", tp=3, rank=0)
    assert (said["what"], said["where"]) == (f"config.json has no usable {key}", str(made.folder / "config.json"))
    pasted = pasted_split(said)
    assert pasted["layers"] == [1, 14]
    (made.folder / "config.json").unlink()
    found = plan(made.folder, tp=3, rank=0, **pasted)
    assert found.about["layers"] == plan(made.folder, tp=3, rank=0, layers=[1, 14]).about["layers"]


def test_a_number_that_is_too_big_is_told_its_bound(tmp_path: Path) -> None:
    made = make(tmp_path / "m", vocab=50)
    change_config(made, engram_vocab_size=10**15)
    said = refused(made.folder)
    assert (said["found"], said["wanted"]) == ("1000000000000000", f"a whole number from 1 to {2**40 - 1}")
    change_config(made, engram_layer_ids=[1, -2])
    assert refused(made.folder)["wanted"] == f"a list of whole numbers from 0 to {2**40 - 1}"


@pytest.mark.parametrize("config", [True, False])
def test_ranges_for_a_layer_that_is_not_there(tmp_path: Path, config: bool) -> None:
    made = make(tmp_path / "m", vocab=50)
    if not config:
        (made.folder / "config.json").unlink()
    halves = {str(layer): [[0, 5], [5, table.rows]] for layer, table in made.tables.items()}
    more = {"layers": [1, 14], "tp": 2, "rank": 0}
    said = refused(made.folder, split={**halves, "15": [[0, 5], [5, 9]]}, **{**more, "rank": 1})
    assert said["what"] == "layer 15 has no lookup table in this model"
    assert said["found"] == "ranges for layer 1, 14, 15 in `split`; the model has tables of layer 1, 14"
    assert "split = { 1 = [[0, 1293], [1293, 2586]], 14 = " in said["next"]
    assert list(plan(made.folder, split=halves, **{**more, "layers": [14]}).about["layers"]) == ["14"], "it has layer 1"


def test_an_index_that_lacks_a_layer_of_the_config(tmp_path: Path) -> None:
    """To leave the layer out would stage a model without it."""
    made = make(tmp_path / "m", vocab=50)
    index = made.folder / INDEX
    whole = json.loads(index.read_text())["weight_map"]
    for gone in (".1.engram.embed.", ".1.engram.embed.scale"):
        index.write_text(json.dumps({"weight_map": {name: file for name, file in whole.items() if gone not in name}}))
        for layers in ([], [1], [1, 14]):
            said = refused(made.folder, layers=layers)
            assert said["what"] == f"{INDEX} lacks the lookup table of layer 1"
            assert said["where"] == str(index)
            assert "fetch it again" in said["next"]
            assert "layers" not in said["next"]
    assert said["found"] == "layers.1.engram.embed.weight"


@pytest.mark.parametrize("value", [3, None, ["a"], {"file": "a"}])
def test_an_index_that_names_no_file(tmp_path: Path, value: Any) -> None:
    made = make(tmp_path / "m", vocab=50)
    index = made.folder / INDEX
    whole = json.loads(index.read_text())["weight_map"]
    index.write_text(json.dumps({"weight_map": {**whole, "layers.14.engram.embed.scale": value}}))
    said = refused(made.folder)
    assert said["what"] == f"{INDEX} names no file for a lookup table"
    shown = "an object" if isinstance(value, dict) else json.dumps(value)
    assert said["found"] == f"layers.14.engram.embed.scale: {shown}"


def test_a_model_that_is_a_file(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(b"x")
    for src, found in ((path, "a file"), (path / "deeper", f"{path} is a file")):
        said = refused(src)
        assert (said["where"], said["found"], said["wanted"]) == (str(src), found, "a folder")
        assert str(tmp_path) in said["next"]
        assert "findmnt" not in said["next"]


def test_ranks_without_heads(tmp_path: Path) -> None:
    made = make(tmp_path / "m", vocab=50)
    found = plan(made.folder, split="heads", tp=7, rank=6)
    assert [file.size for file in found.files] == [4096, 4096]
    assert plan(made.folder, split="heads", tp=5, rank=4).about["layers"]["1"][1] == made.tables[1].rows


@pytest.mark.parametrize(("tp", "rank"), [(4, 4), (0, 0), (4, -1), (None, None)])
def test_there_is_no_such_rank(tmp_path: Path, tp: Any, rank: Any) -> None:
    assert "no such rank" in refused(tmp_path, tp=tp, rank=rank)["what"]


def test_a_config_of_another_checkpoint_names_both_numbers(tmp_path: Path) -> None:
    made = make(tmp_path / "m", vocab=50)
    rows = made.tables[1].rows
    change_config(made, engram_num_embeddings=[rows + 1, 5])
    fields = refused(made.folder)
    assert (fields["found"], fields["wanted"]) == (
        f"{rows} rows",
        f"{rows + 1} rows, engram_num_embeddings of {made.folder}/config.json",
    )
    assert fields["where"] == str(made.folder / made.files[1])
    change_config(made, engram_vocab_size=60)
    fields = refused(made.folder)
    assert fields["found"].startswith(f"{rows} rows")
    assert "sum of 24 primes" in fields["wanted"]


def test_layers(tmp_path: Path) -> None:
    made = make(tmp_path / "m", vocab=50)
    assert list(plan(made.folder, layers=[14]).about["layers"]) == ["14"]
    fields = refused(made.folder, layers=[1, 15])
    assert fields["what"] == "layer 15 has no lookup table in this model"
    assert fields["where"] == str(made.folder / "config.json")
    assert fields["found"] == "engram_layer_ids = [1, 14]; layers = [1, 15] in the staging block"
    assert fields["next"].startswith("write layers = [1], or leave `layers` out")
    assert refused(made.folder, layers=[2])["next"].startswith("write layers = [1, 14]")
    assert "layers that are none" in refused(made.folder, layers=[1, 1])["what"]
    assert "layers that are none" in refused(made.folder, layers=["1"])["what"]
    (made.folder / "config.json").unlink()
    assert "nothing says which layers" in refused(made.folder)["what"]
    assert refused(made.folder)["next"] == "write layers = [1, 14]"
    assert refused(made.folder, layers=[1, 2])["next"].startswith("write layers = [1, 14]"), "those of the shards"
    assert "engram_layer_ids" in refused(made.folder, layers=[1], split="heads")["what"]
    assert plan(made.folder, layers=[1]).about["config_sha256"] == ""


def test_no_model_at_all(tmp_path: Path) -> None:
    assert refused(tmp_path / "nowhere")["where"] == str(tmp_path / "nowhere")
    (tmp_path / "config.json").write_text("{")
    assert "no JSON" in refused(tmp_path)["what"]
    (tmp_path / "config.json").write_text("[]")
    assert "no JSON object" in refused(tmp_path)["what"]
    (tmp_path / "config.json").write_text('{"engram_layer_ids": [1]}')
    assert refused(tmp_path)["found"] == "nothing of that name"


def test_an_index_that_is_broken(tmp_path: Path) -> None:
    made = make(tmp_path / "m", vocab=50)
    index = made.folder / INDEX
    whole = index.read_text()
    index.write_text("{")
    said = refused(made.folder)
    assert (said["what"], said["where"]) == (f"{INDEX} is no JSON", str(index))
    assert "line 1 column 2" in said["found"]
    assert "fetch it again" in said["next"]
    index.write_text(whole[: whole.index("layers.14.")])
    assert refused(made.folder, kind="integrity")["what"] == "the index of a model was cut off"
    index.write_text(whole.rstrip()[:-1])
    assert refused(made.folder, kind="integrity")["what"] == "the index of a model was cut off"
    for text, found in (("[]", "nothing in it"), ('{"metadata": {}}', "the keys 'metadata'")):
        index.write_text(text)
        assert (refused(made.folder)["what"], refused(made.folder)["found"]) == (f"{INDEX} has no weight_map", found)


def test_a_config_with_an_empty_list_of_layers(tmp_path: Path) -> None:
    made = make(tmp_path / "m", vocab=50)
    change_config(made, engram_layer_ids=[])
    said = refused(made.folder)
    assert (said["found"], said["next"]) == ("engram_layer_ids = [], an empty list", "write layers = [1, 14]")


def test_weights_and_scales_in_two_files(tmp_path: Path) -> None:
    weight, scale = table("layers.1.engram.embed", 10)
    shard(tmp_path / "a.safetensors", [weight])
    shard(tmp_path / "b.safetensors", [scale])
    fields = refused(tmp_path, layers=[1])
    assert "not in one file" in fields["what"]
    assert "a.safetensors" in fields["found"]
    assert "b.safetensors" in fields["found"]


def test_two_tables_for_one_layer(tmp_path: Path) -> None:
    shard(tmp_path / "a.safetensors", table("layers.1.engram.embed", 10) + table("mtp.layers.1.engram.embed", 10))
    assert "not exactly one" in refused(tmp_path, layers=[1])["what"]
    shard(tmp_path / "a.safetensors", table("layers.11.engram.embed", 10) + table("xlayers.1.engram.embed", 10))
    assert refused(tmp_path, layers=[1])["found"] == "nothing of that name, but of layer 11"


@pytest.mark.parametrize(
    ("tensors", "found"),
    [
        (table("layers.1.engram.embed", 10, ("BF16", "F8_E8M0")), "BF16 [10, 256]"),
        (table("layers.1.engram.embed", 10, ("F8_E4M3", "U8")), "U8 [10, 8]"),
        (table("layers.1.engram.embed", 10, widths=(128, 8)), "F8_E4M3 [10, 128]"),
        (table("layers.1.engram.embed", 10, widths=(256, 16)), "F8_E8M0 [10, 16]"),
    ],
)
def test_tensors_that_are_no_table(tmp_path: Path, tensors: Any, found: str) -> None:
    shard(tmp_path / "a.safetensors", tensors)
    assert refused(tmp_path, layers=[1])["found"] == found


def test_a_torn_table(tmp_path: Path) -> None:
    (weight, _), (_, scale) = table("layers.1.engram.embed", 10), table("layers.1.engram.embed", 9)
    shard(tmp_path / "a.safetensors", [weight, scale])
    assert refused(tmp_path, layers=[1])["found"] == "10 rows of weights, 9 of scales"


def test_truncated_shards(tmp_path: Path) -> None:
    made = make(tmp_path / "m", vocab=50)
    path = made.folder / made.files[1]
    size = path.stat().st_size
    for length in (size - 1, size + 1, 100, 4, 0):
        os.truncate(path, length)
        fields = refused(made.folder, "integrity")
        assert fields["where"] == str(path)


def test_an_index_that_lies(tmp_path: Path) -> None:
    made = make(tmp_path / "m", vocab=50)
    path = made.folder / INDEX
    index = json.loads(path.read_text())
    wrong = index["weight_map"] | dict.fromkeys(
        [name for name in index["weight_map"] if ".1.engram.embed." in name], "model-00001-of-00004.safetensors"
    )
    path.write_text(json.dumps({"weight_map": wrong}))
    assert "a tensor that it has not" in refused(made.folder, "integrity")["what"]
    path.write_text(path.read_text().replace('"model-00001-of-00004', '"../model-00001-of-00004'))
    assert "outside of the model" in refused(made.folder)["what"]
    path.write_text('{"weight_map": {"layers.1.engram.embed.weight": "a", "layers.1.engram.embed.weight": "b"}}')
    assert "in two files" in refused(made.folder, "integrity")["what"]
    path.write_text('{"weight_map": {}}')
    assert refused(made.folder)["found"] == "nothing of that name"


def long_index(made: Checkpoint, before: int, after: int, shift: int = 1) -> str:
    """The index of a checkpoint with so many more tensors before and after its own; its sha256."""
    own = json.loads((made.folder / INDEX).read_text())["weight_map"]
    names = [f"layers.{n % 61}.mlp.experts.{n}.down_proj.weight" for n in range(before + after)]
    others = dict.fromkeys(names, "model-00001-of-00004.safetensors")
    front = dict.fromkeys(names[:before], "model-00001-of-00004.safetensors")
    text = json.dumps({"weight_map": {"x" * shift: "y", **front, **own, **others}}, indent=2)
    (made.folder / INDEX).write_text(text)
    return hashlib.sha256(text.encode()).hexdigest()


def test_an_index_that_is_cut_anywhere_by_reading_in_blocks(tmp_path: Path) -> None:
    made = make(tmp_path / "m", vocab=50)
    own = (made.folder / INDEX).read_text()
    long_index(made, 10000, 100)
    first = (made.folder / INDEX).read_bytes().index(b'"layers.1.engram')
    for inside in range(0, 1200, 61):
        (made.folder / INDEX).write_text(own)
        sha256 = long_index(made, 10000, 100, (1 << 20) - first - inside + 1)
        assert (made.folder / INDEX).read_bytes().index(b'"layers.1.engram') == (1 << 20) - inside
        assert plan(made.folder).about["index_sha256"] == sha256


def test_an_index_of_the_real_length_takes_little_memory(tmp_path: Path) -> None:
    made = make(tmp_path / "m", vocab=50)
    long_index(made, 48000, 48000)
    assert (made.folder / INDEX).stat().st_size > 8 << 20
    plan(made.folder)
    tracemalloc.start()
    plan(made.folder)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 6 << 20


def test_a_dangling_link_is_named(tmp_path: Path) -> None:
    made = make(tmp_path / "m", vocab=50, as_hub_cache=True)
    path = made.folder / made.files[1]
    path.resolve().unlink()
    with pytest.raises(AgentError) as caught:
        plan(made.folder)
    assert caught.value.fields["where"] == str(path)


@pytest.fixture
def real(tmp_path: Path) -> Path:
    make_real(tmp_path)
    return tmp_path


def test_the_real_checkpoint(real: Path) -> None:
    began = time.monotonic()
    even, heads = plan(real, split="even"), plan(real, split="heads")
    assert time.monotonic() - began < 20  # nothing but headers and a few rows is read
    assert even.about["layers"] == {"1": [96001542, 192003084], "14": [96004170, 192008341]}
    assert heads.about["layers"] == {"1": [96000564, 192001740], "14": [96003054, 192007016]}
    assert even.about["tables"]["1"]["bytes"] == [25344411184] * 4
    assert even.about["tables"]["14"]["bytes"] == [25345104976, 25345105240] * 2
    assert heads.about["tables"]["1"]["bytes"] == [25344152992, 25344314560, 25344509392, 25344667792]
    assert heads.about["tables"]["14"]["bytes"] == [25344810352, 25345050064, 25345204768, 25345355248]
    spans = {
        ("even", "1"): ([24576395416, 49152790168], [99073592008, 99841604344]),
        ("heads", "1"): ([24576145048, 49152446104], [99073584184, 99841593592]),
        ("even", "14"): ([24577068192, 49154135968], [99076304624, 99844337992]),
        ("heads", "14"): ([24576782496, 49153796768], [99076295696, 99844327392]),
    }
    for (split, layer), (weight, scale) in spans.items():
        about = {"even": even, "heads": heads}[split].about["tables"][layer]
        assert (about["weight"], about["scale"]) == (weight, scale), (split, layer)


def test_the_real_checkpoint_as_page15(real: Path) -> None:
    assert plan(real, kind="page15", tp=2, rank=0, split="heads").files[0].size == 52429279232


def test_a_header_on_the_disk() -> None:
    """Layer 1, rank 1 of 4, even split, of the real table."""
    found = header_of("packed", 1, 96001542, 192003084, 384006168)
    worked = "44535631454e3431 0100000000000000 06deb80500000000 0cbc710b00000000 1878e31600000000 0801000000000000"
    assert found == bytes.fromhex(worked) + bytes(4096 - 48)
    found = header_of("page15", 14, 1, 2, 3)
    assert found[:8] == b"DS41EPG2"
    assert [int.from_bytes(found[at : at + 8], "little") for at in range(0, 72, 8)][1:] == [
        14,
        1,
        2,
        3,
        264,
        15,
        4096,
        0,
    ]


def test_two_files_with_one_tensor_and_no_index(tmp_path: Path) -> None:
    """Which one is meant nobody can say: the last by its name is as good a guess as any."""
    made = make(tmp_path / "m", vocab=50)
    (made.folder / INDEX).unlink()
    shard = made.folder / made.files[1]
    (made.folder / "zz-copy.safetensors").write_bytes(shard.read_bytes())
    said = refused(made.folder, kind="integrity")
    assert "two files of the model have the same tensor" in said["what"]
    assert f"in {made.files[1]} and zz-copy.safetensors" in said["found"]


def test_an_index_with_names_that_are_not_ascii(tmp_path: Path) -> None:
    """json.dumps writes them with escapes."""
    made = make(tmp_path / "m", vocab=50)
    index = made.folder / INDEX
    value = json.loads(index.read_text())
    value["weight_map"] |= {"modèle.wkv": made.files[1]}
    index.write_text(json.dumps(value))
    assert "\\u00e8" in index.read_text()
    assert len(plan(made.folder).files) == 2
    found, _ = tables._weight_map(str(index))
    assert set(found.values()) == {made.files[1], made.files[14]}
    named = {f"modèle.{name}": file for name, file in found.items()}
    index.write_text(json.dumps({"weight_map": named}))
    assert tables._weight_map(str(index))[0] == named
