"""The recipe dsv41-mia planned by doit itself for a checkpoint of the real size: real headers and no data."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.engine import ROOT
from tests.staging.checkpoint import make_real
from tests.workspace_tool import Tool, bare

REPO, COMMIT = "deepseek-ai/DeepSeek-V4.1-Flash", "fb2764a5cf321eaa5070ca8f9e892818f477c16d"
# Of each rank: the end of its rows, and the bytes of its file. The ranks' rows follow each other.
L1 = [(96001542, 25344411184), (192003084, 25344411184), (288004626, 25344411184), (384006168, 25344411184)]
L14 = [(96004170, 25345104976), (192008341, 25345105240), (288012511, 25345104976), (384016682, 25345105240)]
HEADS = {1: [96000564, 192001740, 288003654, 384006168], 14: [96003054, 192007016, 288011564, 384016682]}


pytestmark = pytest.mark.long  # big files


@pytest.fixture
def doit(tmp_path: Path) -> Tool:
    """A workspace with the recipe, four nodes that are this machine, and the checkpoint in a hub cache."""
    root, cache = tmp_path / "ws", tmp_path / "hub"
    tool = bare(root)
    for folder in ("recipes/dsv41-mia", "images/mia-tp4", "locks"):
        shutil.copytree(ROOT / folder, root / folder)
    recipe = root / "recipes/dsv41-mia/recipe.toml"
    recipe.write_text(recipe.read_text().replace('src = "/srv/models/hub"', f'src = "{cache}"'))
    nodes = [f'[nodes.dgx{one}]\nconnection = "local"\nstore = "{root}/store{one}"\n' for one in range(1, 5)]
    nodes.append('[clusters.quad]\nnodes = ["dgx1", "dgx2", "dgx3", "dgx4"]\n')
    (root / "config.toml").write_text("\n".join(nodes))

    plain = tmp_path / "plain"
    plain.mkdir()
    make_real(plain)
    repo = cache / f"models--{REPO.replace('/', '--')}"
    snapshot = repo / "snapshots" / COMMIT
    snapshot.mkdir(parents=True)
    (repo / "blobs").mkdir()
    for number, path in enumerate(sorted(plain.iterdir())):
        blob = f"{number:064x}" if path.suffix == ".safetensors" else f"{number:040x}"  # nothing reads all of it
        path.rename(repo / "blobs" / blob)
        (snapshot / path.name).symlink_to(f"../../blobs/{blob}")
    return tool


def test_real_ranges_and_sizes(doit: Tool) -> None:
    done = doit.ok("plan", "stage:dsv41-mia")
    plan = doit.plan("stage:dsv41-mia")
    for rank in range(4):
        goal = plan[f"stage:dsv41-mia:dgx{rank + 1}:engram"]
        texts = [reason["text"] for reason in goal["reasons"]]
        for layer, shard, table in ((1, 47, L1), (14, 48, L14)):
            low, (high, size) = table[rank - 1][0] if rank else 0, table[rank]
            line = (
                f"layer {layer}: rows [{low}, {high}) of {table[3][0]} in model-000{shard}-of-00048.safetensors"
                f" -> engram-l{layer}-r{rank}of4.bin, {size:,} bytes"
            )
            assert line in texts
            assert line in done.out
        assert goal["bytes"] == L1[rank][1] + L14[rank][1]
    assert "202.8 GB to move" in done.out
    assert not list(doit.root.glob("store*/staged")), "a plan writes nothing"


def test_a_sparse_copy_counts_what_it_writes(doit: Tool) -> None:
    """Two files of 101.5 GB each, of which a rank writes 50.7 GB: holes cost no room and are no bytes to move."""
    path = doit.root / "recipes/dsv41-mia/recipe.toml"
    path.write_text(
        path.read_text().replace('layout = "packed"\nsplit = "even"', 'layout = "sparse-copy"\nsplit = "heads"')
    )
    plan = doit.plan("stage:dsv41-mia")
    for rank in range(4):
        rows = sum(cuts[rank] - (cuts[rank - 1] if rank else 0) for cuts in HEADS.values())
        small = plan[f"stage:dsv41-mia:dgx{rank + 1}:engram"]["bytes"] - 264 * rows
        assert 664 + 672 < small < 10_000, "headers, config, index and manifest"
