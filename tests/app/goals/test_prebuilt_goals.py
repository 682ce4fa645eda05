"""Recipes with an image of a registry: their goals, and what is refused when they are read."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparkbuild.app.goals.assemble import assemble
from sparkbuild.workspace.load import load
from tests.workspace.helpers import put

DIGEST = f"sha256:{'ab' * 32}"
CONFIG = """
[nodes.dgx1]
connection = "ssh"
store = "/srv/sparkbuild"
[nodes.dgx2]
connection = "ssh"
store = "/srv/sparkbuild"
[clusters.pair]
nodes = ["dgx1", "dgx2"]
[clusters.one]
nodes = ["dgx2"]
[images]
pull = "each"
"""


def recipe(root: Path, name: str, image: str, *, cluster: str = "pair", runtime: str = "docker") -> None:
    text = f'cluster = "{cluster}"\nimage = "{image}"\nmodel_id = "m"\n'
    put(root, f"recipes/{name}/recipe.toml", f'{text}[serve]\nruntime = "{runtime}"\ncommand = ["x"]\nport = 8000\n')


@pytest.fixture
def root(tmp_path: Path) -> Path:
    put(tmp_path, "config.toml", CONFIG)
    return tmp_path


def test_goals(root: Path) -> None:
    recipe(root, "both", f"ghcr.io/team/engine@{DIGEST}")
    recipe(root, "alone", f"ghcr.io/team/engine@{DIGEST}", cluster="one")
    goals = assemble(load(root))
    assert not goals.problems
    task = f"sync:engine-{DIGEST[7:15]}"
    first, second = goals.by_task[f"{task}:dgx1"], goals.by_task[f"{task}:dgx2"]
    assert first.key == second.key
    assert set(first.spec.nodes) == {"dgx1", "dgx2"}
    assert first.spec.each
    lane = goals.by_task["serve:both"]
    assert lane.needs == (first, second)
    assert lane.spec.image == f"sparkbuild/engine-{DIGEST[7:15]}:{first.key.short}"
    assert lane.spec.lock == f"ghcr.io/team/engine@{DIGEST}"
    prune = goals.by_task["prune:dgx1"]
    assert (prune.spec.use, prune.spec.wanted) == ("served", (lane.spec.image,))
    assert prune.spec.prebuilt
    put(root, "recipes/broken/recipe.toml", "image = = 1\n")
    assert not assemble(load(root)).by_task["prune:dgx1"].spec.prebuilt, "what that runs in, nobody can say"
    assert goals.by_task["prune:local"].spec.use == "unused"


def test_a_tag_beside_the_digest_changes_nothing(root: Path) -> None:
    recipe(root, "both", f"ghcr.io/team/engine@{DIGEST}")
    task = f"sync:engine-{DIGEST[7:15]}"
    before = assemble(load(root))
    recipe(root, "both", f"ghcr.io/team/engine:nightly@{DIGEST}")
    recipe(root, "alone", f"ghcr.io/team/engine:v1@{DIGEST}", cluster="one")
    after = assemble(load(root))
    for name in (f"{task}:dgx1", f"{task}:dgx2", "serve:both"):
        assert after.by_task[name].key == before.by_task[name].key
    assert set(after.by_task[f"{task}:dgx2"].spec.nodes) == {"dgx1", "dgx2"}
    assert after.by_task[f"{task}:dgx2"].spec.recipes == ("alone", "both")


def test_two_images_of_one_name_are_two_tasks(root: Path) -> None:
    recipe(root, "old", f"team/engine@{DIGEST}")
    recipe(root, "new", f"team/engine@sha256:{'c' * 64}")
    tasks = [task for task in assemble(load(root)).by_task if task.startswith("sync:")]
    assert len(tasks) == 4


def test_a_floating_tag_is_a_goal_that_says_so_when_it_is_planned(root: Path) -> None:
    recipe(root, "nightly", "team/engine:Nightly")
    goals = assemble(load(root))
    assert goals.by_task["sync:engine-nightly:dgx1"].spec.image.digest == ""


@pytest.mark.parametrize(
    ("image", "runtime", "what"),
    [
        ("team/Engine:1", "docker", "this cannot be the name of an image"),
        ("team/engine@sha256:12", "docker", "this cannot be the name of an image"),
        (f"team/engine@{DIGEST}", "process", "is of kind docker, and runtime process cannot run it"),
    ],
)
def test_refused(root: Path, image: str, runtime: str, what: str) -> None:
    recipe(root, "bad", image, runtime=runtime)
    problem = assemble(load(root)).problems["recipes/bad"]
    assert what in str(problem)
    assert "recipes/bad/recipe.toml" in str(problem)
