"""From workspace files to goals: names, keys, and what must not be in a key."""

from pathlib import Path

import pytest

from sparkbuild.app.goals.assemble import Goals, assemble
from sparkbuild.core.goal import Goal
from sparkbuild.workspace.load import load

SHA = "a" * 64

RECIPE = """\
cluster = "{cluster}"
image = "tiny"
model_id = "m"

[serve]
port = 8000
command = ["{{{{ image.python }}}}", "--model", "{{{{ staged.data }}}}/x"]

[[staging]]
id = "data"
kind = "files"
src = "artifact:pins/{artifact}"
dst = "{dst}"
"""


def write(root: Path, *, cluster: str = "one", dst: str = "", artifact: str = "data") -> Path:
    (root / "images" / "tiny").mkdir(parents=True)
    (root / "locks").mkdir()
    (root / "config.toml").write_text(
        '[nodes.dgx1]\n\n[nodes.dgx2]\n\n[clusters.one]\nnodes = ["dgx1"]\n\n[clusters.other]\nnodes = ["dgx2"]\n'
        '\n[clusters.both]\nnodes = ["dgx1", "dgx2"]\n'
    )
    empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    (root / "images" / "tiny" / "requirements.lock").write_text("")
    (root / "images" / "tiny" / "image.toml").write_text('kind = "venv"\nlock = "pins"\n')
    (root / "locks" / "pins.source.lock").write_text(
        f"format=local-inference-source-lock/v1\ninput.images/tiny/requirements.lock.sha256={empty}\n"
        f"data.artifact.url=https://example.org/data.zip\ndata.artifact.sha256={SHA}\n"
        f"more.artifact.url=https://example.org/more.zip\nmore.artifact.sha256={'b' * 64}\n"
    )
    recipe(root, "r", cluster=cluster, dst=dst, artifact=artifact)
    return root


def recipe(root: Path, name: str, *, cluster: str = "one", dst: str = "", artifact: str = "data") -> None:
    folder = root / "recipes" / name
    folder.mkdir(parents=True)
    (folder / "recipe.toml").write_text(RECIPE.format(cluster=cluster, dst=dst, artifact=artifact))


def goals_of(root: Path) -> Goals:
    return assemble(load(root))


def test_the_goals_of_one_recipe(tmp_path: Path) -> None:
    goals = goals_of(write(tmp_path))
    assert {task: goal.target.partition("@")[0] for task, goal in goals.by_task.items()} == {
        "image:tiny": "image://dgx1/tiny",
        "artifact:pins:data": "artifact://dgx1/pins/data",
        "stage:r:dgx1:data": "staged://dgx1/r/data",
        "serve:r": "lane://one/r",
        **{f"prune:{node}": f"pruned://{node}/images" for node in ("local", "dgx1", "dgx2")},
    }
    assert all(goals.by_task[f"prune:{node}"].transient for node in ("local", "dgx1", "dgx2")), "no docker image here"
    lane = goals.by_task["serve:r"]
    assert [need.task for need in lane.needs] == ["image:tiny", "stage:r:dgx1:data"]
    assert lane.nodes == ("dgx1",)


def test_what_two_nodes_need_is_named_by_node(tmp_path: Path) -> None:
    write(tmp_path)
    recipe(tmp_path, "s", cluster="other")
    tasks = set(goals_of(tmp_path).by_task)
    assert {"image:tiny:dgx1", "image:tiny:dgx2", "artifact:pins:data:dgx1", "artifact:pins:data:dgx2"} <= tasks


def test_keys_are_the_same_in_another_folder(tmp_path: Path) -> None:
    one, other = goals_of(write(tmp_path / "a")), goals_of(write(tmp_path / "a much longer name" / "b"))
    assert [goal.target for goal in one.by_task.values()] == [goal.target for goal in other.by_task.values()]
    assert str(tmp_path) not in str([goal.key.parts for goal in one.by_task.values()])


def change(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


@pytest.mark.parametrize(
    ("old", "new", "stale"),
    [
        ("port = 8000", "port = 8001", {"serve:r"}),
        ("--model", "--models", {"serve:r"}),
        ("pins/data", "pins/more", {"stage:r:dgx1:data", "serve:r"}),
        ("[serve]", "# a remark\n[serve]", set()),
        ('model_id = "m"', 'model_id = "m"\ndescription = "words"', set()),
        ("[serve]", "[serve]\nready_timeout = 5.0\nstop_grace = 1.0", set()),
        ('model_id = "m"', 'model_id = "m"\nprotect = true', set()),
        ("[serve]", '[serve]\nsecrets = ["TOKEN"]', {"serve:r"}),
    ],
)
def test_what_changes_a_key(tmp_path: Path, old: str, new: str, stale: set[str]) -> None:
    before = goals_of(write(tmp_path)).by_task
    change(tmp_path / "recipes" / "r" / "recipe.toml", old, new)
    after = goals_of(tmp_path).by_task

    def key(goals: dict[str, Goal], task: str) -> str:
        return goals[task].key.digest

    assert {task for task in after if task in before and key(before, task) != key(after, task)} == stale


def test_a_recipe_for_several_nodes_needs_its_image_and_data_on_each(tmp_path: Path) -> None:
    write(tmp_path)
    recipe(tmp_path, "wide", cluster="both")
    goals = goals_of(tmp_path)
    assert not goals.problems
    wide = goals.by_task["serve:wide"]
    assert len(wide.nodes) == 2
    assert {(need.uri.scheme, need.node) for need in wide.needs} == {
        (scheme, node) for scheme in ("image", "staged") for node in wide.nodes
    }
    assert len({need.key.digest for need in wide.needs}) == 2, "the same everywhere"


def test_a_runtime_that_cannot_run_the_image(tmp_path: Path) -> None:
    write(tmp_path)
    change(tmp_path / "recipes" / "r" / "recipe.toml", "[serve]", '[serve]\nruntime = "docker"')
    goals = goals_of(tmp_path)
    assert "kind venv, and runtime docker" in str(goals.problems["recipes/r"])


def test_two_blocks_may_not_fill_one_folder_with_different_data(tmp_path: Path) -> None:
    write(tmp_path, dst="/srv/models/x")
    recipe(tmp_path, "same", dst="/srv/models/x/")
    recipe(tmp_path, "t", dst="/srv/models/y/../x", artifact="more")
    goals = goals_of(tmp_path)
    assert set(goals.problems) == {"recipes/t"}
    assert "stage:r:dgx1:data" in str(goals.problems["recipes/t"])
    assert "serve:same" in goals.by_task
