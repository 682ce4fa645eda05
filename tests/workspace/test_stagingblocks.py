"""[[staging]] blocks of a recipe against the cluster, the locks and each other: what is wrong is told with its line."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparkbuild.workspace.load import load
from tests.workspace.helpers import RECIPE, healthy, put

HEAD = RECIPE[: RECIPE.index("[[staging]]")]
HUB = '[[staging]]\nid = "hub"\nkind = "hub-mirror"\nsrc = "/srv/models/hub"\nrepos = ["org/one"]\n'
ROWS = '[[staging]]\nid = "rows"\nkind = "sparse-rows"\nsrc = "/srv/models/hub"\nrepos = ["org/one"]\n'
FILES = '[[staging]]\nid = "files"\nkind = "files"\n'
TREE = '[[staging.exports]]\nkind = "tree"\nid = "model"\ntarget = "/model"\n'
COMPOSED = '[[staging.exports]]\nkind = "composed"\nid = "whole"\ntarget = "/model"\nover = ["rows"]\n'


def problem(tmp_path: Path, blocks: str) -> str:
    root = healthy(tmp_path)
    put(root, "recipes/demo/recipe.toml", HEAD + blocks)
    found = load(root).problems.get("recipes/demo")
    return str(found) if found else ""


@pytest.mark.parametrize(
    "blocks",
    [
        HUB,
        HUB + TREE,
        HUB + COMPOSED + ROWS,
        ROWS,
        ROWS + 'split = "heads"\nlayout = "sparse-copy"\ncomplete_shard = true\n',
        ROWS + "split = [[0, 12]]\n",
        ROWS + "split = { 1 = [[0, 12]], 14 = [[0, 13]] }\n",
        FILES + 'src = "/srv/models/x"\nskip = ["*.pt"]\n',
        FILES + f'src = "https://example.org/x.gguf?a=1"\nsha256 = "{"5" * 64}"\n',
    ],
)
def test_in_order(tmp_path: Path, blocks: str) -> None:
    assert problem(tmp_path, blocks) == ""


@pytest.mark.parametrize(
    ("blocks", "texts"),
    [
        (HUB.replace("org/one", "no space"), ["repos"]),
        (HUB.replace('["org/one"]', "[]"), ["repos"]),
        (HUB.replace('["org/one"]', '["org/one", "org/one"]'), ["a repository stands there twice", "org/one"]),
        (
            HUB.replace('["org/one"]', '["org/one", "org/two"]') + f'revision = "{"a" * 40}"\n',
            ["one commit cannot be the revision of several repositories"],
        ),
        (HUB.replace('["org/one"]', '["org/one", "org/two"]') + TREE, ["`repo` says of which repository it is"]),
        (HUB + TREE + 'repo = "org/two"\n', ["a repository that the block does not have", "org/two"]),
        (HUB + TREE.replace('"/model"', '"model"'), ["`target` is no absolute path"]),
        (HUB + TREE + TREE, ["two exports have the id `model`"]),
        (HUB + COMPOSED, ["`rows` cannot be laid over a snapshot", "files or sparse-rows"]),
        (HUB + TREE + 'dst = "/data"\n', ["`dst`", "[[staging]]"]),
        (HUB.replace("/srv", "srv"), ["src"]),
        (ROWS + "only_ranks = [4]\n", ["there is no such rank", "has 1 nodes"]),
        (ROWS + "complete_shard = true\n", ["`complete_shard` is for the layout sparse-copy"]),
        (ROWS + "split = [[0, 5], [5, 9]]\n", ["the split does not fit the cluster", "2 ranges"]),
        (ROWS + "split = [[3, 9]]\n", ["without a gap", "[0, ...)"]),
        (ROWS + "split = { 1 = [[0, 9]], 14 = [[1, 9]] }\n", ["without a gap"]),
        (ROWS + 'split = "evenly"\n', ["split"]),
        (ROWS.replace('["org/one"]', '["org/one", "org/two"]'), ["repos"]),
        (FILES + 'src = "https://example.org/x.gguf"\n', ["a URL wants the sha256"]),
        (FILES + f'src = "https://example.org/"\nsha256 = "{"5" * 64}"\n', ["a URL that names no file"]),
        (FILES + f'src = "https://example.org/x.tar"\nsha256 = "{"5" * 64}"\n', ["cannot be staged from", "x.tar"]),
        (FILES + f'src = "/srv/models/x"\nsha256 = "{"5" * 64}"\n', ["`sha256` is for a URL"]),
        (FILES + 'src = "artifact:demo/model"\nskip = ["*"]\n', ["`skip` is for a folder"]),
        (FILES + 'src = "srv/models/x"\n', ["src"]),
        (HUB.replace("hub-mirror", "hub-miror"), ["did you mean `hub-mirror`?"]),
    ],
)
def test_out_of_order(tmp_path: Path, blocks: str, texts: list[str]) -> None:
    found = problem(tmp_path, blocks)
    assert "recipes/demo/recipe.toml:" in found
    for text in texts:
        assert text in found
