"""What a plan says of staged data and exports is what the run then does: bytes, room, ways, refusals, reasons."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from tests.agent.driver import MIB
from tests.plugin.models import Models
from tests.plugin.test_verify_exports import SHARD, TREE, Exported

WEIGHTS = "stage:big:local:weights"


@pytest.fixture
def site(tmp_path: Path) -> Exported:
    return Exported(tmp_path / "w")


@pytest.fixture
def models(tmp_path: Path) -> Models:
    return Models(tmp_path / "models")


def edit(models: Models, name: str, old: object, new: object) -> None:
    path = models.root / f"recipes/{name}/recipe.toml"
    assert str(old) in path.read_text()
    path.write_text(path.read_text().replace(str(old), str(new)))


def written(models: Models, task: str) -> int:
    """The bytes that the last run which made a task wrote."""
    made = [event for event in models.runs() if event["event"] == "made" and event["task"] == task]
    return int(made[-1]["bytes"])


def log(models: Models, task: str) -> str:
    logs = sorted((models.root / ".sparkbuild/runs").rglob(f"{task.replace(':', '?')}*.log"), key=os.path.getmtime)
    return logs[-1].read_text()


def test_mending_a_file_that_exports_have_too_writes_all_of_it(site: Exported) -> None:
    blob = site.mirror / "blobs" / os.readlink(site.nas.snapshot / SHARD).rpartition("/")[2]
    size = blob.stat().st_size
    with blob.open("r+b") as file:
        file.write(b"spark")
    step = site.plan("stage:big")[WEIGHTS]
    assert step["bytes"] == size
    free = os.statvfs(site.root).f_bavail * os.statvfs(site.root).f_frsize
    edit(site, "big", 'kind = "hub-mirror"', f'kind = "hub-mirror"\nmin_free = {free * 2}')
    assert "will be refused" in site.ok("plan", "stage:big").out
    done = site.fails("stage:big")
    assert "not enough room to stage" in done.text
    assert "lower min_free in recipes/big/recipe.toml to at most" in done.text
    edit(site, "big", f"min_free = {free * 2}\n", "")
    site.ok("stage:big")
    assert written(site, WEIGHTS) == size


def test_after_an_interruption_the_rest_is_told(models: Models) -> None:
    models.recipe("one", {"a.bin": 24 * MIB, "b.bin": MIB})
    edit(models, "one", "min_free = 0", "bwlimit = 12000000")
    running = models.start("stage:one")
    ours = models.folder("one") / ".sparkbuild"
    deadline = time.monotonic() + 60
    while not any(_digests(path) >= 2 for path in ours.glob("a.bin.*.chunks")):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    running.send_signal(signal.SIGINT)
    running.communicate()
    step = models.plan("stage:one")["stage:one:local:data"]
    assert 0 < step["bytes"] < 25 * MIB - 8 * MIB
    there = (25 * MIB - step["bytes"]) / 1e6
    assert step["reasons"][0]["text"] == f"interrupted: {there:.1f} MB of 26.2 MB are there"
    edit(models, "one", "bwlimit = 12000000", "bwlimit = 0")
    models.ok("stage:one")
    assert written(models, "stage:one:local:data") == step["bytes"]


def _digests(path: Path) -> int:
    head, _, rest = path.read_bytes().partition(b"\n")
    return len(rest) // 8 if head else 0


def two_folders(models: Models) -> None:
    models.recipe("one", {"a.bin": 6 * MIB})
    models.recipe("two", {})
    edit(models, "two", models.source("two"), models.source("one"))


@pytest.mark.parametrize("first", [True, False])
def test_a_second_folder_of_one_node_is_a_copy_of_the_first(models: Models, *, first: bool) -> None:
    two_folders(models)
    if first:
        models.stage("one")
    told = models.ok("plan", "stage:one", "stage:two").out
    assert "copies it from another folder of local" in told
    assert "fabric" not in told
    assert "between nodes" not in told
    source = "0 B" if first else "6.3 MB"
    assert f"{source} of it from the source, 6.3 MB from another folder of the same node" in told
    models.ok("stage:one", "stage:two")
    texts = [log(models, f"stage:{name}:local:data") for name in ("two", "one")]
    if not first and "takes from" in texts[1]:  # both were begun at once, and this one was behind
        texts.reverse()
    assert " 0 read from the source, 6291456 received from another folder of this node" in texts[0]
    assert "local takes from another folder of its own" in texts[0]
    assert "takes from" not in texts[1]


def found_by_others(models: Models, task: str, amount: str) -> None:
    """What a copy by hand has is no work: plan and run agree, and the source is looked at for it alone."""
    step = models.plan(task)[task]
    told = models.ok("plan", task).out
    assert step["bytes"] == 0
    assert f" {amount} are there already and will be compared with the source\n" in told
    assert "to move" not in told
    assert f"make it so:  doit {task}\n" in told
    models.ok(task)
    assert written(models, task) == 0
    assert "already" not in models.ok("plan", "-v", task).out


def test_a_copy_that_was_made_by_hand_is_not_moved_again(models: Models) -> None:
    models.recipe("one", {"a.bin": 6 * MIB, "b.bin": 2000})
    models.disk.mkdir()
    subprocess.run(["cp", "-rL", models.source("one"), models.folder("one")], check=True)
    found_by_others(models, "stage:one:local:data", "6.3 MB in 2 files")


def test_a_mirror_that_was_copied_by_hand_is_not_moved_again(site: Exported) -> None:
    shutil.rmtree(site.store)
    site.mirror.parent.mkdir(parents=True)
    subprocess.run(["cp", "-r", site.nas.folder, site.mirror], check=True)
    files = len([path for path in (site.mirror / "blobs").iterdir() if not path.is_symlink()])
    told = site.plan("stage:big")[WEIGHTS]
    (reason,) = [one["text"] for one in told["reasons"] if one["part"] == "found"]
    assert int(reason.partition(" in ")[2].split()[0]) >= files > 2
    site.ok(WEIGHTS)
    assert written(site, WEIGHTS) == told["bytes"] == 0


def test_a_copy_beside_a_folder_that_has_the_same_is_compared_and_not_copied(models: Models) -> None:
    two_folders(models)
    models.stage("one")
    subprocess.run(["cp", "-rL", models.source("one"), models.folder("two")], check=True)
    (models.source("one") / "b.bin").write_bytes(os.urandom(40))
    step = models.plan("stage:two")["stage:two:local:data"]
    assert step["bytes"] == 40
    told = models.ok("plan", "stage:two").out
    assert "6.3 MB in 1 file is there already and will be compared with the source\n" in told
    assert "40 B to move" in told
    models.ok("stage:two")
    assert written(models, "stage:two:local:data") == 40


def test_files_of_others_that_have_another_name_are_moved(models: Models) -> None:
    models.recipe("one", {"a.bin": 5000, "b.bin": 7000, "c.bin": 3000})
    models.folder("one").mkdir(parents=True)
    for name in ("a.bin", "b.bin", "c.bin"):
        shutil.copy(models.source("one") / name, models.folder("one"))
    os.rename(models.folder("one") / "b.bin", models.folder("one") / "d.bin")
    assert models.plan("stage:one")["stage:one:local:data"]["bytes"] == 7000
    assert "8.0 kB in 2 files are there already" in models.ok("plan", "stage:one").out
    models.ok("stage:one")
    assert written(models, "stage:one:local:data") == 7000


def test_a_folder_of_two_recipes_moves_once(models: Models) -> None:
    two_folders(models)
    edit(models, "two", models.folder("two"), models.folder("one"))
    told = models.ok("plan", "stage:one", "stage:two").out
    assert "comes with stage:one:local:data: it is the same folder" in told
    assert "2 run; 6.3 MB to move" in told
    done = models.ok("stage:one", "stage:two")
    assert "1 made, 1 up to date" in done.out


def test_another_folder_was_never_staged_to(models: Models) -> None:
    models.recipe("one", {"a.bin": 1000})
    models.stage("one")
    edit(models, "one", models.folder("one"), models.folder("new"))
    told = models.ok("plan", "stage:one").out
    assert f"not staged there yet; it was staged to {models.folder('one')} before" in told
    models.ok("stage:one")
    shutil.rmtree(models.folder("new"))
    assert (
        f"was staged before, {models.folder('new')} has no ledger now: it was removed"
        in models.ok("plan", "stage:one").out
    )


@pytest.mark.parametrize("staged", [True, False])
def test_a_folder_where_a_file_belongs(models: Models, *, staged: bool) -> None:
    models.recipe("one", {"a.bin": 1000})
    if staged:
        models.stage("one")
        (models.folder("one") / "a.bin").unlink()
    (models.folder("one") / "a.bin/mine").mkdir(parents=True)
    told = models.ok("plan", "stage:one").out
    place = models.folder("one") / "a.bin"
    for text in ("cannot be made so", "a file is wanted where a folder is", str(place), "found:  a folder", "move it"):
        assert text in told
    assert "make it so" not in told
    assert (place / "mine").is_dir()


def test_a_folder_that_goes_by_itself_is_none_in_the_way(models: Models) -> None:
    models.recipe("one", {})
    (models.source("one") / "a").mkdir()
    (models.source("one") / "a/b").write_text("b")
    models.stage("one")
    shutil.rmtree(models.source("one") / "a")
    (models.source("one") / "a").write_text("a")
    edit(models, "one", 'kind = "files"', 'kind = "files"\nskip = ["x"]')  # another key: it is staged anew
    assert "cannot be made" not in models.ok("plan", "stage:one").out
    models.ok("stage:one")
    assert (models.folder("one") / "a").read_text() == "a"


def _file(place: Path) -> None:
    place.write_text("x")


def _strange(place: Path) -> None:
    place.mkdir()
    (place / "notes.txt").write_text("mine")


def _moved(site: Exported, path: object) -> None:
    edit(site, "big", 'id = "model"', f'id = "model"\npath = "{path}"')


TROUBLES: dict[str, tuple[Any, list[str]]] = {
    "a file": (_file, ["what an export is to be made in cannot be a folder", "correct `path` of this export"]),
    "files of others": (_strange, ["the folder of an export holds what is not of it", "found:  notes.txt"]),
}


@pytest.mark.parametrize("staged", [True, False])
@pytest.mark.parametrize("name", TROUBLES)
def test_where_an_export_cannot_be(site: Exported, name: str, *, staged: bool) -> None:
    make, texts = TROUBLES[name]
    place = site.root / "elsewhere"
    make(place)
    _moved(site, place)
    if not staged:
        shutil.rmtree(site.mirror)
    refused_with(site, *texts)
    assert staged == site.mirror.exists(), "nothing was staged before it was said"


@pytest.mark.parametrize("staged", [True, False])
def test_an_export_on_another_disk(site: Exported, *, staged: bool) -> None:
    place = Path("/dev/shm") / f"sparkbuild-{os.getpid()}"
    if os.stat("/dev/shm").st_dev == os.stat(site.root).st_dev:
        pytest.skip("one file system")
    _moved(site, place)
    if not staged:
        shutil.rmtree(site.mirror)
    refused_with(site, "a hard link cannot be made", "both on one file system")


def test_an_export_around_the_mirror(site: Exported) -> None:
    _moved(site, site.mirror / "inner")
    done = site.fails("plan", "stage:big")
    assert "two blocks stage into folders of local that overlap" in done.err
    assert "give export `model` of recipe big another path" in done.err


@pytest.mark.parametrize("staged", [True, False])
def test_a_subtree_of_nothing(site: Exported, *, staged: bool) -> None:
    edit(site, "big", 'id = "model"', 'id = "model"\nsubtree = "drafts"')
    if not staged:
        shutil.rmtree(site.mirror)
    refused_with(site, "nothing of the snapshot is in this subtree", "correct `subtree`")


def refused_with(site: Exported, *texts: str) -> None:
    told = site.ok("plan", "stage:big").out
    for text in ("cannot be made so", *texts):
        assert text in told
    assert "make it so" not in told
    assert site.plan("stage:big")[TREE]["refused"]
    done = site.fails("stage:big")
    assert texts[0] in done.err


def test_an_export_that_was_moved(site: Exported) -> None:
    _moved(site, site.root / "elsewhere")
    assert f"not made there yet; it was made in {site.tree} before" in site.ok("plan", TREE).out


def test_what_was_removed_by_hand_is_not_listed_for_ever(models: Models) -> None:
    models.recipe("one", {"a.bin": 1000})
    models.recipe("two", {"a.bin": 1000})
    models.stage("one", "two")
    models.drop("two")
    assert "whose recipe is gone" in models.ok("verify").out
    shutil.rmtree(models.folder("two"))
    assert "whose recipe is gone" not in models.ok("verify").out


def test_an_export_that_no_recipe_names_any_more(site: Exported) -> None:
    assert "no recipe wants it" not in site.ok("verify").out
    path = site.root / "recipes/big/recipe.toml"
    text = path.read_text()
    path.write_text(re.sub(r'\[\[staging.exports\]\]\nkind = "tree".*?\n\n', "", text, flags=re.DOTALL))
    told = site.ok("verify").out
    line = f"{site.tree}: export big:weights:model; no recipe wants it, it goes when {site.mirror} is evicted, or with"
    assert f"{line} rm -r {site.tree}\n" in told


def test_what_a_few_bytes_are_called(models: Models) -> None:
    models.recipe("one", {"a.bin": 40})
    models.stage("one")
    told = models.ok("plan", "-v", "stage:one").out
    assert "40 B, as its ledger says; " in told
    assert "0.0 MB" not in told
