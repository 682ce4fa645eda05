"""From recipes with exports to goals: names, what stands on what, and what cannot be meant."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from sparkbuild.app.goals.assemble import Goals, assemble
from sparkbuild.plugin.adapters import docs
from sparkbuild.workspace.load import load
from tests.engine import ROOT

RECIPE = """\
cluster = "pair"
image = "{image}"
model_id = "m"

[serve]
port = 8000
runtime = "{runtime}"
command = ["x", "{{{{ exports.model }}}}"]

[[staging]]
id = "weights"
kind = "hub-mirror"
src = "/mnt/nas/hub"
repos = ["org/model"]
skip = ["page15/*"]

[[staging.exports]]
kind = "composed"
id = "model"
target = "/model"
over = ["rows"]
{more}
[[staging]]
id = "rows"
kind = "files"
src = "artifact:demo/smollm2"
only_ranks = {ranks}
"""
TREE = """
[[staging.exports]]
kind = "tree"
id = "{id}"
target = "/draft"
path = "{path}"
binds = ["page15/*"]
"""


def goals_of(root: Path, more: str = "", *, runtime: str = "docker", image: str = "", ranks: str = "[]") -> Goals:
    for folder in ("images/demo-ranks", "images/llamacpp", "locks"):
        shutil.copytree(ROOT / folder, root / folder)
    (root / "config.toml").write_text('[nodes.dgx1]\n[nodes.dgx2]\n[clusters.pair]\nnodes = ["dgx1", "dgx2"]\n')
    (root / "recipes/r").mkdir(parents=True, exist_ok=True)
    text = RECIPE.format(more=more, runtime=runtime, image=image or "demo-ranks", ranks=ranks)
    (root / "recipes/r/recipe.toml").write_text(text)
    return assemble(load(root))


def test_each_node_has_its_export_and_the_lane_needs_them(tmp_path: Path) -> None:
    goals = goals_of(tmp_path)
    assert not goals.problems
    lane = goals.lanes["r"]
    exports = [need for need in lane.needs if need.uri.scheme == "export"]
    assert [need.task for need in exports] == ["stage:r:dgx1:weights:model", "stage:r:dgx2:weights:model"]
    assert [need.task for need in exports[0].needs] == ["stage:r:dgx1:weights", "stage:r:dgx1:rows"]
    assert lane.spec.exports == {"model": {"path": "exported/r/weights/model", "target": "/model", "block": "weights"}}
    assert lane.key.parts["exports"] == {"model": exports[0].key.short}


def test_what_is_laid_over_may_have_two_names(tmp_path: Path) -> None:
    """Else staging would take the link for somebody else's file, and copy it again each time."""
    goals = goals_of(tmp_path)
    assert goals.by_task["stage:r:dgx1:rows"].spec.linked
    assert goals.by_task["stage:r:dgx1:weights"].spec.linked


def problem(root: Path, more: str = "", **changes: str) -> str:
    return str(goals_of(root, more, **changes).problems["recipes/r"])


def test_binds_are_for_containers(tmp_path: Path) -> None:
    more = TREE.format(id="draft", path="")
    assert "which only a container can have" in problem(tmp_path, more, runtime="process", image="llamacpp")


def test_two_exports_with_one_id(tmp_path: Path) -> None:
    assert "two exports have the id `model`" in problem(tmp_path, TREE.format(id="model", path=""))


def test_two_exports_in_one_folder(tmp_path: Path) -> None:
    found = problem(tmp_path, TREE.format(id="draft", path="exported/r/weights/model"))
    assert "into one folder" in found
    assert "give export `draft` of recipe r another path, or none" in found


def test_an_export_in_the_folder_of_a_block(tmp_path: Path) -> None:
    assert "into one folder" in problem(tmp_path, TREE.format(id="draft", path="staged/r/rows"))


@pytest.mark.parametrize(
    "path",
    [
        "staged/r/../r/rows/",
        "{root}/.sparkbuild/node/staged/r/rows",
        "{root}/recipes/../.sparkbuild/node/staged/r/rows",
    ],
)
def test_one_folder_spelled_otherwise(tmp_path: Path, path: str) -> None:
    found = problem(tmp_path, TREE.format(id="draft", path=path.format(root=tmp_path)))
    assert "two blocks stage different data into one folder of dgx1" in found
    assert "of stage:r:dgx1:" in found


@pytest.mark.parametrize("path", ["staged/r/rows/x", "staged/r", "{root}/.sparkbuild/node/exported/r/weights/model/x"])
def test_one_folder_inside_another(tmp_path: Path, path: str) -> None:
    found = problem(tmp_path, TREE.format(id="draft", path=path.format(root=tmp_path)))
    assert "two blocks stage into folders of dgx1 that overlap" in found


OTHER = """\
cluster = "pair"
image = "demo-ranks"
model_id = "m"

[serve]
port = 8000
runtime = "docker"
command = ["x"]

[[staging]]
id = "{id}"
kind = "files"
src = "{src}"
dst = "{dst}"
"""


def second(root: Path, **fields: str) -> str:
    (root / "recipes/s").mkdir(parents=True)
    (root / "recipes/s/recipe.toml").write_text(OTHER.format(id="d", **fields))
    return str(goals_of(root).problems.get("recipes/s", ""))


def test_two_recipes_and_one_folder(tmp_path: Path) -> None:
    path = f"{tmp_path}/.sparkbuild/node/staged/r/rows"
    found = second(tmp_path / "a", src="/mnt/nas/x", dst=path.replace(str(tmp_path), str(tmp_path / "a")))
    assert "into one folder" in found
    assert "overlap" in second(tmp_path / "b", src="/mnt/nas/x", dst="staged/r/rows/inner")
    assert second(tmp_path / "c", src="artifact:demo/smollm2", dst="staged/s/../r/rows") == ""  # the same data


def test_who_named_a_folder_gives_way_to_who_has_it_by_default(tmp_path: Path) -> None:
    """Whichever recipe is looked at first, both are named, and who is to change something can."""
    (tmp_path / "recipes/a").mkdir(parents=True)
    text = OTHER.format(id="wide", src="/mnt/nas/x", dst="staged/r")
    (tmp_path / "recipes/a/recipe.toml").write_text(text)
    found = str(goals_of(tmp_path).problems["recipes/r"])
    assert "two blocks stage into folders of dgx1 that overlap" in found
    assert "where:  recipes/a/recipe.toml" in found
    assert "found:  staged/r of stage:a:dgx1:wide, and staged/r/" in found
    assert " of stage:r:dgx1:" in found
    assert "next:   give block `wide` of recipe a another dst, or none" in found


def test_a_rank_without_what_is_laid_over(tmp_path: Path) -> None:
    assert "wants block `rows`, which rank 1 has not" in problem(tmp_path, ranks="[0]")


@pytest.mark.parametrize("path", ["/srv/models/exported", ""])
def test_a_folder_of_its_own(tmp_path: Path, path: str) -> None:
    goals = goals_of(tmp_path, TREE.format(id="draft", path=path))
    assert not goals.problems
    assert goals.lanes["r"].spec.exports["draft"]["path"] == (path or "exported/r/weights/draft")


@pytest.mark.parametrize(
    ("name", "count", "text"),
    [
        ("stage:big", 7, "stage all that big wants (7 steps)"),
        ("stage:big:dgx1", 1, "stage all that big wants on dgx1 (1 step)"),
        ("stage:big:dgx1:weights", 3, "stage all that big wants as block weights on dgx1 (3 steps)"),
        ("sync:r35", 2, "sync all of r35 (2)"),
    ],
)
def test_what_a_group_is(name: str, count: int, text: str) -> None:
    assert docs.group(name, [""] * count) == text
