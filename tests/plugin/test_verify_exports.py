"""`doit verify` of a recipe with exports: what is wrong with their names is told, in rows of their own."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.agent.driver import flip
from tests.plugin.models import Models
from tests.staging.hubcache import REPO, TWO_HOP, HubCache, usual

SHARD, PAGE = "model-00001-of-00002.safetensors", "page15/rows-01.bin"
TREE, COMPOSED = "stage:big:local:weights:model", "stage:big:local:weights:put"
_RECIPE = """\
cluster = "local"
image = "x@sha256:{digest}"
model_id = "m"

[serve]
runtime = "docker"
port = 8000
command = ["x"]

[[staging]]
id = "weights"
kind = "hub-mirror"
src = "{src}"
repos = ["{repo}"]
skip = ["page15/*"]

[[staging.exports]]
kind = "tree"
id = "model"
target = "/model"
binds = ["page15/*"]

[[staging.exports]]
kind = "composed"
id = "put"
target = "/composed"
over = ["local"]

[[staging]]
id = "local"
kind = "files"
src = "{local}"
"""


class Exported(Models):
    """A mirror, the tree and the composed folder of it, and a folder that is laid over the latter; all are made."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.nas: HubCache = usual(root.parent / "nas")
        self.nas.add(PAGE, b"rows" * 1000, TWO_HOP)
        local = root.parent / "local"
        local.mkdir()
        (local / "engram-local.json").write_text("{}")
        (root / "recipes/big").mkdir(parents=True)
        text = _RECIPE.format(digest="0" * 64, src=self.nas.root, repo=REPO, local=local)
        (root / "recipes/big/recipe.toml").write_text(text)
        self.ok("stage:big")
        self.tree, self.composed = (self.store / "exported/big/weights" / name for name in ("model", "put"))
        self.mirror = self.store / "staged/big/weights" / self.nas.name

    def rows(self, *args: str, code: int = 0) -> dict[str, dict[str, Any]]:
        done = self("verify", "--json", *args)
        assert done.code == code, done
        return {row["task"]: row for row in json.loads(done.out)["staged"]}

    def damaged(self, *args: str) -> dict[str, list[str]]:
        """The problems of the rows that are not ok, by task."""
        return {task: row["problems"] for task, row in self.rows(*args, code=1).items() if row["state"] == "damaged"}


@pytest.fixture
def site(tmp_path: Path) -> Exported:
    return Exported(tmp_path / "w")


def test_all_is_well_and_the_source_is_away(site: Exported) -> None:
    shutil.rmtree(site.nas.root)
    for args in ((), ("--full",)):
        found = site.rows(*args)
        assert {task: row["state"] for task, row in found.items()} == {
            "stage:big:local:weights": "ok",
            "stage:big:local:local": "ok",
            TREE: "ok",
            COMPOSED: "ok",
        }
        assert found[TREE]["read"] == 0
        assert found[TREE]["folder"] == str(site.tree)
    done = site.ok("verify:big")
    count = len(site.nas.files)
    assert re.search(
        rf"^local  big:weights:model  ok +0 B read +\d+\.\d s  {count} files, 2 mounts$", done.out, re.MULTILINE
    ), done
    assert re.search(
        rf"^local  big:weights:put    ok +0 B read +\d+\.\d s  {count} files, 1 mount$", done.out, re.MULTILINE
    ), done


def test_one_export_is_chosen_by_its_name(site: Exported) -> None:
    assert list(site.rows("big:local:weights:model")) == [TREE]


def another_inode(site: Exported) -> None:
    path = site.tree / SHARD
    data = path.read_bytes()
    path.unlink()
    path.write_bytes(data)


@pytest.mark.parametrize(
    ("spoil", "task", "text"),
    [
        (lambda site: (site.tree / SHARD).unlink(), TREE, f"{SHARD} is missing"),
        (another_inode, TREE, f"{SHARD} is not the file "),
        (lambda site: (site.tree / PAGE).write_bytes(b"x"), TREE, f"{PAGE} is no empty file of its own"),
        (lambda site: (site.composed / SHARD).unlink(), COMPOSED, f"the link {SHARD} is missing"),
        (lambda site: (site.composed / "engram-local.json").unlink(), COMPOSED, "engram-local.json is missing"),
        (lambda site: (site.tree / ".sparkbuild/mounts.json").write_text("{"), TREE, "the manifest in "),
    ],
)
def test_damage_is_told_with_the_command_that_mends(
    site: Exported, spoil: Callable[[Exported], Any], task: str, text: str
) -> None:
    away = site.root / "away"
    spoil(site)
    site.nas.root.rename(away)
    found = site.damaged()
    assert list(found) == [task]
    assert found[task][0].startswith(text), found
    done = site("verify:big", "--full")
    assert done.code == 1
    folder = site.tree if task == TREE else site.composed
    assert f"    in {folder}:\n    {text}" in done.out
    assert f"    make it so: doit {task}\n" in done.out
    away.rename(site.nas.root)
    site.ok(task)
    site.ok("verify:big")


def test_a_pointer_to_something_else(site: Exported) -> None:
    (site.composed / SHARD).unlink()
    (site.composed / SHARD).symlink_to("/srv/models/other")
    (text,) = site.damaged()[COMPOSED]
    assert text.startswith(f"{SHARD} leads to '/srv/models/other', wanted '{site.mirror}/blobs/")


def test_bytes_that_changed_are_of_the_mirror_and_the_export_goes_by_the_same_file(site: Exported) -> None:
    flip(site.tree / SHARD, 1)
    found = site.damaged()
    assert list(found) == ["stage:big:local:weights"]
    assert found["stage:big:local:weights"][0].startswith(f"{SHARD} (blob ")
    site.ok("stage:big:local:weights")
    (text,) = site.damaged()[TREE]
    assert text.startswith(f"{SHARD} is not the file {site.mirror}/blobs/"), (
        "mended apart from what a lane may have open"
    )
    site.ok("stage:big")
    site.ok("verify", "--full")


def test_what_is_not_made_is_said(site: Exported) -> None:
    shutil.rmtree(site.tree)
    found = site.rows("big", code=1)
    assert (found[TREE]["state"], found[TREE]["next"]) == ("not made", f"doit {TREE}")
    assert found[COMPOSED]["state"] == "ok"


def test_a_scrub_is_of_what_has_content_of_its_own(site: Exported) -> None:
    assert list(site.rows("--scrub")) == ["stage:big:local:weights", "stage:big:local:local"]
