"""A source that cannot be staged from: the plan says so, once, and promises nothing; a run says it before it begins."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from sparkbuild.app.goals.chained import awaited, maker
from sparkbuild.core.goal import Goal
from sparkbuild.core.plan import OK, RUN, Plan, Step, Verdict
from sparkbuild.staging.blocks import Place, staged
from sparkbuild.workspace.shapes.stagingschema import FilesStaging, HubStaging, RowsStaging
from tests.plugin.models import Models

TASK = "stage:one:local:data"


@pytest.fixture
def models(tmp_path: Path) -> Models:
    made = Models(tmp_path / "models")
    made.recipe("one", {"a.bin": 1000})
    return made


def edit(models: Models, name: str, old: object, new: object) -> None:
    path = models.root / f"recipes/{name}/recipe.toml"
    assert str(old) in path.read_text()
    path.write_text(path.read_text().replace(str(old), str(new)))


def test_a_folder_that_is_not_there(models: Models) -> None:
    shutil.rmtree(models.source("one"))
    plan = models.ok("plan", "stage:one").out
    assert plan.count("the folder to stage from is not there") == 1
    for line in (
        f"  where:  node local, {models.source('one')}\n",
        f"  found:  {models.root / 'source'} is the last of it that is there\n",
        f"  wanted: a folder {models.source('one')} on this node\n",
        f"  next:   on that node, findmnt -T {models.root / 'source'} tells",
    ):
        assert line in plan
    assert "make it so" not in plan
    assert "reads the source" not in plan
    shown = models.plan("stage:one")[TASK]["refused"]
    assert shown["what"] == "the folder to stage from is not there"
    why = models.ok("why", TASK).out
    assert "where:  node local" in why
    assert "make it so" not in why
    lane = models.ok("plan", "serve:one").out
    assert f"cannot be made without {TASK}" in lane
    assert "make it so" not in lane


@pytest.mark.parametrize("kind", ["hub-mirror", "sparse-rows"])
def test_a_hub_cache_that_is_none(models: Models, kind: str) -> None:
    edit(models, "one", 'kind = "files"', f'kind = "{kind}"\nrepos = ["org/model"]')
    plan = models.ok("plan", "stage:one").out
    assert "the hub cache has no repository org/model" in plan
    assert "found:  no models--* in it" in plan
    assert f"wanted: {models.source('one')}/models--org--model" in plan
    assert f"next:   hf download org/model --cache-dir {models.source('one')}, or correct `src`" in plan
    assert "make it so" not in plan
    shutil.rmtree(models.source("one"))
    plan = models.ok("plan", "stage:one").out
    assert "the hub cache is not there" in plan
    assert f"{models.root / 'source'} is the last of it that is there" in plan


def test_a_run_says_it_before_it_begins(models: Models) -> None:
    models.recipe("two", {"b.bin": 1000})
    shutil.rmtree(models.source("one"))
    done = models.fails("stage")
    assert done.code == 3
    assert "the folder to stage from is not there" in done.err
    assert not models.folder("two").exists()
    done = models.fails("run", "-c", "stage")  # goes on with what can be made
    assert done.code == 1
    assert f"FAIL  {TASK}\n      the folder to stage from is not there" in done.out
    assert (models.folder("two") / "b.bin").exists()


def test_what_two_steps_fail_of_is_told_in_full_once(models: Models) -> None:
    models.recipe("two", {"b.bin": 1000})
    edit(models, "two", models.source("two"), models.source("one"))
    shutil.rmtree(models.source("one"))
    plan = models.ok("plan", "stage").out
    assert plan.count("findmnt") == 1
    assert f"cannot be made so, as {TASK}: the folder to stage from is not there: {models.source('one')}\n" in plan


def test_a_file_where_the_folder_would_be(models: Models) -> None:
    models.disk.mkdir()
    models.folder("one").write_text("in the way")
    plan = models.ok("plan", "stage:one").out
    assert "what is to be staged into cannot be a folder" in plan
    assert "make it so" not in plan


def test_a_mending_for_which_the_source_is_gone(models: Models) -> None:
    models.stage("one")
    (models.folder("one") / "a.bin").unlink()
    assert "make it so" in models.ok("plan", "stage:one").out
    shutil.rmtree(models.source("one"))
    plan = models.ok("plan", "stage:one").out
    assert "a.bin is missing" in plan
    assert "the folder to stage from is not there" in plan
    assert "make it so" not in plan


def test_a_source_that_another_block_makes(models: Models) -> None:
    """It is made first, however many steps are at work at once, and whichever was asked for."""
    models.recipe("two", {"b.bin": 1000})
    edit(models, "two", models.source("two"), models.folder("one"))
    shutil.rmtree(models.source("two"))
    plan = models.ok("plan", "stage:two").out
    assert f"its source is made by {TASK}" in plan
    assert "is not there" not in plan
    assert "make it so:  doit stage:two\n" in plan
    models.ok("stage:two")
    assert (models.folder("two") / "a.bin").read_bytes() == (models.source("one") / "a.bin").read_bytes()
    assert "nothing to do: 2 ok" in models.ok("plan", "stage").out
    (models.folder("one") / "a.bin").unlink()
    assert models.states("stage:two") == {TASK: "run", "stage:two:local:data": "maybe"}
    models.ok("stage:two")
    shutil.rmtree(models.folder("one"))
    shutil.rmtree(models.folder("two"))
    shutil.rmtree(models.source("one"))
    plan = models.ok("plan", "stage:two").out
    assert plan.count("is not there") == 1
    assert f"cannot be made without {TASK}" in plan
    assert "make it so" not in plan


@pytest.mark.parametrize("own", ["disk/one", "disk/one/part", "disk"])
def test_a_block_that_is_staged_from_itself(models: Models, own: str) -> None:
    """Also where its folder is the default one."""
    text = (models.root / "recipes/one/recipe.toml").read_text()
    default = models.store / "staged/one/data"
    path = models.root / "recipes/one/recipe.toml"
    path.write_text(
        text.replace(f'dst = "{models.folder("one")}"\n', "").replace(str(models.source("one")), str(default))
    )
    told = models.fails("plan", "stage:one").text
    assert "a block is staged from itself" in told
    assert f"found:  {TASK} from {default}" in told
    path.write_text(text.replace(str(models.source("one")), f"{models.root}/{own}"))
    assert "`dst` and `src`" in models.fails("plan", "stage:one").text


@pytest.mark.parametrize("names", [("one", "two"), ("one", "three", "two")])
def test_blocks_that_are_staged_from_each_other(models: Models, names: tuple[str, ...]) -> None:
    models.recipe("two", {"b.bin": 1000})
    models.recipe("three", {"c.bin": 1000})
    models.recipe("four", {"d.bin": 1000})
    for name, other in zip(names, (*names[1:], names[0]), strict=True):
        edit(models, name, f'src = "{models.source(name)}"', f'src = "{models.folder(other)}"')
    told = models.fails("plan", "stage").text
    assert "blocks are staged from each other in a circle" in told
    for name, other in zip(names, (*names[1:], names[0]), strict=True):
        assert f"stage:{name}:local:data from {models.folder(other)}" in told
    assert "findmnt" not in told.partition("circle")[2]
    models.ok("stage:four")


def goal(block: Any, node: str = "dgx1", recipe: str = "big") -> Goal:
    return staged(block, Place(recipe, node)).goals[0]


MIRROR = HubStaging(id="hub", src="/mnt/nas/hub", repos=("org/one",), dst="/srv/models/hub")
HUB = {"src": "/srv/models/hub", "repos": ("org/one",)}


@pytest.mark.parametrize(
    ("block", "found"),
    [
        (RowsStaging(id="rows", **HUB), True),
        (HubStaging(id="other", **HUB), True),
        (RowsStaging(id="rows", src="/srv/models/hub/models--org--one/snapshots/a/"), True),
        (FilesStaging(id="files", src="/srv/models/hub"), True),
        (RowsStaging(id="rows", src="/srv/models/hub", repos=("org/other",)), False),
        (FilesStaging(id="files", src="/srv/models/hub2"), False),
        (FilesStaging(id="files", src="/mnt/nas/hub"), False),
    ],
)
def test_who_makes_a_source(block: Any, found: bool) -> None:
    mirror = goal(MIRROR)
    assert maker(goal(block), [(mirror.spec.dst, mirror)]) is (mirror if found else None)


def test_a_folder_in_the_store_and_the_own_recipe_first() -> None:
    inside = goal(FilesStaging(id="files", src="/store/staged/big/data/x"))
    data = goal(FilesStaging(id="data", src="/srv/models/x"))
    assert maker(inside, [("/store/staged/big/data", data)]) is data
    assert maker(inside, [("/other/staged/big/data", data)]) is None
    rows, theirs, ours = goal(RowsStaging(id="rows", **HUB)), goal(MIRROR, recipe="small"), goal(MIRROR)
    assert maker(rows, [(one.spec.dst, one) for one in (theirs, ours)]) is ours
    assert maker(rows, [(theirs.spec.dst, theirs)]) is theirs


REFUSED = {"refused": {"part": "source", "what": "the folder to stage from is not there", "where": "/x"}}


def step(one: Goal, state: str = RUN, fact: Any = None) -> Step:
    return Step(one, state, (), None, Verdict(state, (), None, fact))


def test_only_what_is_still_to_be_made_is_waited_for() -> None:
    mirror = goal(MIRROR)
    rows = msgspec.structs.replace(goal(RowsStaging(id="rows", **HUB)), needs=(mirror,))

    def texts(state: str, fact: Any) -> list[str]:
        return [
            reason.text for one in awaited(Plan((step(mirror, state), step(rows, fact=fact)))) for reason in one.reasons
        ]

    assert texts(RUN, REFUSED) == ["its source is made by stage:big:dgx1:hub"]
    assert texts(OK, REFUSED) == [], "it is there, and has it not"
    assert texts(RUN, {"refused": {"part": "dst"}}) == []
    assert texts(RUN, {"refused": {}}) == []


def test_groups_are_listed_with_what_they_stand_for(models: Models) -> None:
    models.recipe("two", {"b.bin": 1000})
    lines = models.ok("list", "stage").out.splitlines()
    assert [line.split(None, 1) for line in lines[:3]] == [
        ["stage", "stage all of the workspace (2)"],
        ["stage:one", "stage all that one wants (1 step)"],
        ["stage:one:local", "stage all that one wants on local (1 step)"],
    ]
    assert "All tasks of the workspace" not in models.ok("list", "-b").out


def test_why_it_is_made_after_another_run_was_waited_for(models: Models) -> None:
    models.recipe("one", {"a.bin": 8_000_000})
    edit(models, "one", "min_free = 0", "bwlimit = 1000000")
    first = models.start("stage:one")
    try:
        _until_busy(models)
        done = models.ok("stage:one")
    finally:
        first.communicate()
    assert "waits: process" in done.out
    assert "is being staged by another process" not in done.out
    assert "because another run was at it" in done.out
    assert "nothing to do: another run had made it" in done.out


def _until_busy(models: Models) -> None:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        if "is being staged by another process" in models.ok("plan", "stage:one").out:
            return
    raise AssertionError("it was never at work")


def test_a_skip_of_a_folder_that_matches_nothing_is_named(models: Models) -> None:
    edit(models, "one", "min_free = 0", 'min_free = 0\nskip = ["*.pth"]')
    assert "nothing matches skip = '*.pth'" in models.ok("plan", "stage:one").out
