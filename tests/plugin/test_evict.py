"""`doit stage:x --evict`: what is wanted gets room, from what is wanted least, and from nothing else."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sparkbuild.agent import index
from sparkbuild.staging.eviction import Folder, Need, choose, stays
from tests.agent.driver import call, key
from tests.plugin.models import MIB, Models

NOTHING = "nothing has to be removed: what is to be staged fits"


@pytest.fixture
def models(tmp_path: Path) -> Iterator[Models]:
    """A workspace that stages into a file system of 40 MiB, which a, b and c of 8 MiB each are on."""
    if os.geteuid() != 0:
        pytest.skip("mounting a small file system needs root")
    mkfs = shutil.which("mkfs.ext4", path=f"{os.environ['PATH']}:/usr/sbin:/sbin")
    if mkfs is None:
        pytest.skip("there is no mkfs.ext4 (package e2fsprogs)")
    image, disk = tmp_path / "disk.img", tmp_path / "disk"
    disk.mkdir()
    with image.open("wb") as file:
        file.truncate(40 * MIB)
    subprocess.run([mkfs, "-q", "-m", "0", "-O", "^has_journal", image], check=True)
    mounted = subprocess.run(["mount", "-o", "loop", str(image), str(disk)], capture_output=True, check=False)
    if mounted.returncode:
        pytest.skip(f"no mount here: {mounted.stderr.decode().strip()}")
    try:
        made = Models(tmp_path / "w", disk)
        for name in ("a", "b", "c"):
            made.recipe(name, {"model.bin": 8 * MIB})
        made.stage("a", "b", "c")
        for at, name in enumerate(("b", "a", "c"), 1):
            made.served(name, 1_790_000_000.0 + 3600 * at)
        yield made
    finally:
        subprocess.run(["umount", "-l", disk], check=True)


def there(models: Models) -> list[str]:
    return [name for name in "abcd" if (models.folder(name) / "model.bin").exists()]


def test_a_plan_says_what_does_not_fit_and_what_would_go(models: Models) -> None:
    models.recipe("d", {"model.bin": 16 * MIB}, min_free=MIB)
    done = models.ok("plan", "stage:d")
    assert "does not fit: 16.8 MB to write, " in done.out
    assert "free, 1.0 MB must stay free; doit stage:d --evict\n" in done.out
    goal = models.plan("stage:d")["stage:d:local:data"]
    assert "room" in [reason["part"] for reason in goal["reasons"]]
    done = models.ok("plan", "stage:d", "--evict")
    head = f"evict   local  {models.folder('b')}     8.4 MB  b:data; last served "
    assert head in done.out
    assert " s to stage\n" in done.out
    assert done.out.count("evict   ") == 1
    assert "make it so:  doit stage:d --evict\n" in done.out
    (one,) = json.loads(models.ok("plan", "--json", "stage:d", "--evict").out)["evict"]
    assert (one["enough"], [folder["recipe"] for folder in one["folders"]]) == (True, ["b"])
    assert there(models) == ["a", "b", "c"]


@pytest.mark.parametrize("name", ["stage:d", "stage:d:local", "stage:d:local:data"])
def test_the_least_recently_served_goes_and_what_is_wanted_comes(models: Models, name: str) -> None:
    models.recipe("d", {"model.bin": 16 * MIB})
    done = models.ok(name, "--evict")
    assert f"evicted {models.folder('b')} on local: 8.4 MB given back" in done.out
    assert there(models) == ["a", "c", "d"]
    (entry,) = [entry for entry in models.runs() if entry["event"] == "evicted"]
    assert (entry["folder"], entry["files"]) == (str(models.folder("b")), 1)
    assert models.states("stage:d", "stage:b")["stage:b:local:data"] == "run"


def test_what_fits_removes_nothing(models: Models) -> None:
    models.recipe("d", {"model.bin": 2 * MIB})
    assert "does not fit" not in models.ok("plan", "stage:d").out
    assert NOTHING in models.ok("stage:d", "--evict").out
    assert there(models) == ["a", "b", "c", "d"]


def test_without_the_option_staging_is_refused_and_nothing_is_removed(models: Models) -> None:
    models.recipe("d", {"model.bin": 16 * MIB})
    assert "not enough room to stage" in models.fails("stage:d").text
    assert there(models) == ["a", "b", "c"]


def test_one_that_is_big_enough_alone_spares_the_others(models: Models) -> None:
    models.recipe("d", {"model.bin": 10 * MIB})
    models.stage("d")
    models.served("d", time.time())
    for name in "abc":
        models.served(name, 2.0)
    models.served("a", 1.0)
    models.recipe("e", {"model.bin": 12 * MIB})
    models.ok("stage:e", "--evict")
    assert there(models) == ["c", "d"]  # a and b: neither is enough alone


def test_a_protected_recipe_keeps_its_data(models: Models) -> None:
    models.recipe("b", {}, protect=True)
    models.recipe("d", {"model.bin": 16 * MIB})
    models.ok("stage:d", "--evict")
    assert there(models) == ["b", "c", "d"]


def test_data_of_a_recipe_that_is_gone_may_go(models: Models) -> None:
    models.drop("b")
    models.recipe("d", {"model.bin": 16 * MIB})
    assert "  b:data, whose recipe is gone; last served " in models.ok("plan", "stage:d", "--evict").out
    models.ok("stage:d", "--evict")
    assert there(models) == ["a", "c", "d"]


def test_data_of_a_recipe_that_cannot_be_read_stays(models: Models) -> None:
    (models.root / "recipes/b/recipe.toml").write_text("nonsense")
    models.recipe("d", {"model.bin": 16 * MIB})
    models.ok("stage:d", "--evict")
    assert there(models) == ["b", "c", "d"]


def test_what_a_running_lane_uses_stays(models: Models) -> None:
    request = {
        "store": str(models.store), "recipe": "b", "launch": "1", "rank": 0, "world_size": 1, "key": key(), "parts": {},
        "argv": ["sleep", "600"], "env": {}, "host": "127.0.0.1", "port": 0, "model_id": "m", "protect": False,
        "uses": [str(models.folder("b"))],
    }  # fmt: skip
    record: dict[str, Any] = call("launch", request).last["record"]
    try:
        models.recipe("d", {"model.bin": 16 * MIB})
        models.ok("stage:d", "--evict")
        assert there(models) == ["b", "c", "d"]
    finally:
        os.killpg(record["pid"], 9)


def test_too_little_removes_nothing(models: Models) -> None:
    models.recipe("a", {}, protect=True)
    models.recipe("d", {"model.bin": 32 * MIB})
    plan = models.ok("plan", "stage:d", "--evict")
    assert "stage:d:local:data: removing other staged data does not make enough room on local" in plan.out
    done = models.fails("stage:d", "--evict")
    assert done.code == 3
    assert f"8.4 MB in {models.folder('a')} stay: recipe a is protected" in done.err
    assert there(models) == ["a", "b", "c"]


def test_files_of_others_stay_and_are_named(models: Models) -> None:
    (models.folder("b") / "notes.txt").write_text("mine")
    models.recipe("d", {"model.bin": 16 * MIB})
    done = models.ok("stage:d", "--evict")
    assert "not ours, and left there: notes.txt" in done.out
    assert (models.folder("b") / "notes.txt").read_text() == "mine"


def test_an_interrupted_staging_counts_what_it_has(models: Models) -> None:
    models.recipe("d", {"one.bin": 4 * MIB, "two.bin": 4 * MIB})
    models.stage("d")
    (models.folder("d") / ".sparkbuild/ledger.json").unlink()
    free = os.statvfs(models.disk).f_bavail * os.statvfs(models.disk).f_frsize
    assert free < 8 * MIB
    assert "does not fit" not in models.ok("plan", "stage:d").out


def test_a_folder_that_was_replaced_by_a_link_stays(models: Models, tmp_path: Path) -> None:
    shutil.move(models.folder("b"), tmp_path / "away")
    models.folder("b").symlink_to(tmp_path / "away")
    models.recipe("d", {"model.bin": 28 * MIB})
    models.ok("stage:d", "--evict")
    assert (tmp_path / "away/model.bin").exists()
    assert there(models) == ["b", "d"]


def test_a_hostile_index_is_left_alone(models: Models) -> None:
    (models.store / "staged-index/x.json").write_text("[" * 9999)
    Path(index.path_of(str(models.store), "/etc")).write_text('{"format": "sparkbuild-staged/v1", "dst": "/etc"}')
    models.recipe("d", {"model.bin": 16 * MIB})
    models.ok("stage:d", "--evict")
    assert there(models) == ["a", "c", "d"]


@pytest.mark.parametrize(
    ("args", "text"),
    [
        (["serve:a", "--evict"], "--evict is an option of what is staged: doit stage:<recipe> --evict, not serve:a"),
        (["plan", "serve:a", "--evict"], "--evict is an option of what is staged: doit plan stage:<recipe> --evict"),
        (["plan", "--evict"], "--evict is an option of what is staged: doit plan stage:<recipe> --evict"),
        (["--evict", "stage:a"], "stands after its name: doit stage:a --evict"),
    ],
)
def test_where_it_means_nothing(tmp_path: Path, args: list[str], text: str) -> None:
    models = Models(tmp_path / "w")
    models.recipe("a", {"model.bin": MIB})
    done = models.fails(*args)
    assert done.code == 3
    assert text in done.err


def folder(name: str, frees: int, served: float = 0.0, **more: Any) -> Folder:
    return Folder("n", f"/{name}", recipe=name, block="data", workspace="w", frees=frees, served_at=served, **more)


@pytest.mark.parametrize(
    ("short", "folders", "chosen"),
    [
        (0, [folder("a", 5)], []),
        (5, [folder("a", 5, 2), folder("b", 5, 1)], ["b"]),
        (6, [folder("a", 5, 2), folder("b", 5, 1), folder("c", 5, 3)], ["b", "a"]),
        (6, [folder("a", 9, 3), folder("b", 2, 1), folder("c", 2, 2)], ["a"]),  # the small ones were no use
        (5, [folder("a", 0, 1), folder("b", 5, 2)], ["b"]),  # its bytes have another name
        (5, [folder("a", 5, 0, staged_at=9.0), folder("b", 5, 8)], ["b"]),  # staged a moment ago, to be served
        (11, [folder("a", 5, 2), folder("b", 5, 1)], None),
    ],
)
def test_what_is_chosen(short: int, folders: list[Folder], chosen: list[str] | None) -> None:
    found = choose(Need("n", "1", ("t",), short, 0, 0), folders)
    assert (found if found is None else [one.recipe for one in found]) == chosen


def test_who_stays() -> None:
    one = folder("a", 5)
    assert stays(one, {}, "w", frozenset()) == ""
    assert stays(one, {"/a": "wanted"}, "w", frozenset()) == "wanted"
    assert "cannot be read" in stays(one, {}, "w", frozenset({"a"}))
    assert stays(one, {}, "another", frozenset({"a"})) == ""
    assert "runs" in stays(folder("a", 5, users=("b",)), {}, "w", frozenset())
    assert "protected" in stays(folder("a", 5, protect=True), {}, "w", frozenset())
    assert "staged by" in stays(folder("a", 5, busy="pid 7"), {}, "w", frozenset())
