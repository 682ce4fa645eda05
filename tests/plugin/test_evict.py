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

from sparkbuild.agent.ledger import index
from sparkbuild.staging.eviction import Folder, Need, choose, split, stays, together
from tests.agent.driver import call, key
from tests.plugin.models import MIB, Models
from tests.staging.hubcache import REPO, usual

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


def one_line(text: str, part: str) -> str:
    """The one line of a text that has this in it."""
    (line,) = [line for line in text.splitlines() if part in line]
    return line


def free(models: Models) -> int:
    disk = os.statvfs(models.disk)
    return disk.f_bavail * disk.f_frsize


def there(models: Models) -> list[str]:
    return [name for name in "abcd" if (models.folder(name) / "model.bin").exists()]


def test_a_plan_says_what_does_not_fit_and_what_would_go(models: Models) -> None:
    models.recipe("d", {"model.bin": 16 * MIB}, min_free=MIB)
    done = models.ok("plan", "stage:d")
    spare = "wanted 16.8 MB for the data + 1.0 MB to stay free (min_free, recipes/d/recipe.toml): "
    assert spare in one_line(done.out, "will be refused: found ")
    assert "doit stage:d --evict, which removes 8.4 MB of other staged data\n" in done.out
    assert "make it so:  doit stage:d --evict\n" in done.out
    why = models.ok("why", "stage:d:local:data").out
    assert spare in why
    assert "doit stage:d --evict, which removes 8.4 MB" in why
    assert "make it so" not in why
    goal = models.plan("stage:d")["stage:d:local:data"]
    assert "room" in [reason["part"] for reason in goal["reasons"]]
    done = models.ok("plan", "stage:d", "--evict")
    head = f"evict   local  {models.folder('b')}     8.4 MB  b:data; last served "
    assert head in done.out
    assert spare in one_line(done.out, "does not fit yet: found ")
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
    assert "refused" not in models.ok("plan", "stage:d").out
    assert NOTHING in models.ok("stage:d", "--evict").out
    assert there(models) == ["a", "b", "c", "d"]


def test_without_the_option_staging_is_refused_and_nothing_is_removed(models: Models) -> None:
    models.recipe("d", {"model.bin": 16 * MIB})
    done = models.fails("stage:d")
    assert "not enough room to stage" in done.text
    assert "wanted: 16.8 MB for the data; " in done.text
    assert "next:   doit stage:d --evict, which removes 8.4 MB of other staged data\n" in done.text
    assert there(models) == ["a", "b", "c"]
    assert not models.folder("d").exists()
    models.drop("d")
    assert "d:data" not in models.ok("verify").text, "it is no orphan: nothing was staged"


def test_what_was_evicted_is_told_by_its_plan(models: Models) -> None:
    models.recipe("d", {"model.bin": 16 * MIB})
    models.ok("stage:d", "--evict")
    for command in ("plan", "why"):
        told = models.ok(command, "stage:b:local:data").out
        assert " UTC to make room for stage:d:local:data\n" in one_line(told, "was evicted at 20") + "\n"
    models.drop("d")
    shutil.rmtree(models.folder("d"))
    models.ok("stage:b")
    shutil.rmtree(models.folder("b"))
    told = one_line(models.ok("plan", "stage:b").out, "was staged before")
    assert told.endswith(f"{models.folder('b')} has no ledger now: it was removed")


@pytest.mark.parametrize("evict", [(), ("--evict",)])
def test_min_free_that_no_disk_can_keep(models: Models, evict: tuple[str, ...]) -> None:
    """Evicting is not advised: it cannot help."""
    models.recipe("d", {"model.bin": 2 * MIB}, min_free=900_000_000_000_000)
    most = (free(models) - 2 * MIB) // 1_000_000
    advice = f"lower min_free in recipes/d/recipe.toml to at most {most}_000_000; the disk has 38."
    plan = models.ok("plan", "stage:d", *evict).out
    assert "2.1 MB for the data + 900.0 TB to stay free (min_free, recipes/d/recipe.toml)" in plan
    assert advice in plan
    assert "make it so" not in plan
    done = models.fails("stage:d", *evict)
    assert advice in done.text
    assert "--evict" not in done.text
    assert there(models) == ["a", "b", "c"]
    models.recipe("d", {"model.bin": 2 * MIB}, min_free=most * 1_000_000)
    assert "make it so:  doit stage:d\n" in models.ok("plan", "stage:d").out
    models.ok("stage:d")


def test_evicting_with_a_lower_min_free_where_both_are_needed(models: Models) -> None:
    models.recipe("d", {"model.bin": 16 * MIB}, min_free=38 * MIB)
    line = one_line(models.ok("plan", "stage:d").out, "evicting is not enough")
    assert "25.2 MB of other staged data may go: lower min_free in recipes/d/recipe.toml to at most " in line
    assert ", with doit stage:d --evict; the disk has 38." in line
    most = int(line.partition("at most ")[2].partition(",")[0])
    models.recipe("d", {"model.bin": 16 * MIB}, min_free=most)
    models.ok("stage:d", "--evict")
    assert there(models) == ["d"]


def test_more_data_than_the_disk_has(models: Models) -> None:
    models.recipe("d", {"model.bin": 48 * MIB})
    plan = models.ok("plan", "stage:d").out
    line = one_line(plan, "evicting is not enough, 25.2 MB of other staged data may go: ")
    assert "a larger file system is needed: this one has 38." in line
    assert "make it so" not in plan


def test_blocks_that_fit_alone_and_not_together(models: Models) -> None:
    models.recipe("d", {"model.bin": 8 * MIB})
    models.recipe("e", {"model.bin": 6 * MIB}, min_free=MIB)
    for name in "de":
        assert f"make it so:  doit stage:{name}\n" in models.ok("plan", f"stage:{name}").out
    plan = models.ok("plan", "stage:d", "stage:e").out
    text = "may be refused: all 2 blocks on this disk together want 14.7 MB and "
    assert "will be refused: " not in plan
    assert [line.rstrip().rpartition(" is free, ")[2] for line in plan.splitlines() if text in line] in (
        ["so some of them will be refused"] * 2,
        ["so 1.0 MB would not stay free (min_free, recipes/e/recipe.toml) were it last"],  # a disk with a little more
    )
    assert "doit stage:d stage:e --evict, which removes 8.4 MB of other staged data\n" in plan
    assert "make it so:  doit stage:d stage:e --evict\n" in plan
    models.ok("stage:d", "stage:e", "--evict")
    assert sorted(path.name for path in models.disk.iterdir() if path.name in "abcde") == ["a", "c", "d", "e"]


def test_one_that_cannot_fit_is_not_charged_to_the_others(models: Models) -> None:
    """It alone is told to be refused; of the others, which do not fit all together, those that do are named."""
    for name in "abc":
        models.recipe(name, {}, protect=True)
    for name, size in {"d": 6, "e": 5, "f": 4}.items():
        models.recipe(name, {"model.bin": size * MIB})
    models.recipe("g", {"model.bin": MIB}, min_free=900_000_000)
    tasks = [f"stage:{name}" for name in "defg"]
    plan = models.ok("plan", *tasks).out
    sure = one_line(plan, "will be refused: ")
    assert "wanted 1.0 MB for the data + 900.0 MB to stay free (min_free, recipes/g/recipe.toml): " in sure
    assert "lower min_free in recipes/g/recipe.toml to at most " in plan
    text = f"all 3 blocks on this disk together want 15.7 MB and {free(models) / 1e6:.1f} MB is free, so some of them"
    assert plan.count(f"may be refused: {text} will be refused\n") == 3
    assert plan.count("evicting cannot help, no other staged data may go: make ") == 3
    assert plan.count("these fit: doit stage:d:local:data stage:e:local:data\n") == 3
    assert "make it so" not in plan
    assert "will be refused: " not in models.ok("plan", "stage:d", "stage:e").out
    models.ok("stage:d:local:data", "stage:e:local:data")
    done = models.fails("-c", "stage:f", "stage:g")
    assert done.text.count("not enough room to stage") == 2


def test_one_that_evicting_makes_room_for_beside_others_that_are_too_much(models: Models) -> None:
    models.recipe("d", {"model.bin": 30 * MIB})
    models.recipe("e", {"model.bin": 8 * MIB})
    plan = models.ok("plan", "stage:d", "stage:e").out
    assert "wanted 31.5 MB for the data: " in one_line(plan, "will be refused: ")
    assert one_line(
        plan, "for this one alone: doit stage:d:local:data --evict; for all, evicting is not enough, 25.2 MB"
    )
    assert "may be refused" not in plan, "d will not be there"
    models.ok("stage:e")
    models.drop("e")
    shutil.rmtree(models.folder("e"))
    models.ok("stage:d:local:data", "--evict")


def test_what_a_mending_takes_is_no_new_room(models: Models) -> None:
    """Bytes are changed where they are: nothing is refused, though min_free is not kept any more."""
    models.recipe("a", {}, min_free=38 * MIB)
    with (models.folder("a") / "model.bin").open("r+b") as file:
        file.write(b"spark")
    plan = models.ok("plan", "stage:a").out
    assert "differs from its ledger in chunk 0 of 2" in plan or "differs from its ledger in chunk 1 of 2" in plan
    assert "refused" not in plan
    models.ok("stage:a")


def test_what_a_replacing_gives_back_first_is_no_new_room(models: Models) -> None:
    models.recipe("d", {"model.bin": 10 * MIB})
    models.stage("d")
    assert free(models) < 10 * MIB
    models.recipe("d", {"model.bin": 9 * MIB, "more.bin": MIB // 2})
    text = (models.root / "recipes/d/recipe.toml").read_text()
    (models.root / "recipes/d/recipe.toml").write_text(text.replace('id = "data"', 'id = "data"\nskip = ["x"]'))
    plan = models.ok("plan", "stage:d").out
    assert "skip" in plan
    assert "refused" not in plan
    models.ok("stage:d")


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


def test_the_old_folder_of_a_block_is_named_with_what_removes_it(tmp_path: Path) -> None:
    models = Models(tmp_path / "w")
    models.recipe("k", {"model.bin": MIB})
    models.stage("k")
    path = models.root / "recipes/k/recipe.toml"
    path.write_text(path.read_text().replace(str(models.folder("k")), str(models.folder("new"))))
    models.stage("k")
    line = one_line(models.ok("verify").out, "k:data; never served")
    assert line.startswith(f"local  {models.folder('k')}: 1.1 MB of ")
    command = f"rm -r {models.folder('k')}"
    assert f"; no recipe wants it: it goes with {command} on local, and first where doit stage --evict has" in line
    subprocess.run(command.split(), check=True)
    assert "no recipe wants" not in models.ok("verify").out
    (models.folder("new") / "model.bin").rename(models.root / "model.bin")
    shutil.rmtree(models.folder("new"))
    models.folder("new").mkdir()
    (models.root / "model.bin").rename(models.folder("new") / "model.bin")
    models.recipe("z", {"z.bin": 1000})
    models.stage("k", "z")
    models.drop("k")
    line = one_line(models.ok("verify").out, "whose recipe is gone")
    assert f"and it is not evicted: its files were there before; by hand: rm -r {models.folder('new')}" in line


def test_data_of_a_recipe_that_is_gone_may_go(models: Models) -> None:
    models.drop("b")
    models.recipe("d", {"model.bin": 16 * MIB})
    assert "  b:data, whose recipe is gone; last served " in models.ok("plan", "stage:d", "--evict").out
    models.ok("stage:d", "--evict")
    assert there(models) == ["a", "c", "d"]


def test_data_that_no_recipe_wants_goes_first(models: Models) -> None:
    """Though it was served last; and of two, the one that was served longest ago."""
    for name in ("c", "a"):
        file = models.root / f"recipes/{name}/recipe.toml"
        file.write_text(file.read_text().replace(f'"{models.folder(name)}"', f'"{models.disk}/new-{name}"'))
    models.recipe("d", {"model.bin": 16 * MIB})
    done = models.ok("stage:d", "--evict")
    assert "a:data, which no recipe wants any more; last served " in one_line(done.out, "evict   ")
    assert there(models) == ["b", "c", "d"]
    models.recipe("e", {"model.bin": 16 * MIB})
    rows = json.loads(models.ok("plan", "--json", "stage:e", "--evict").out)["evict"][0]["folders"]
    assert [(row["recipe"], row["orphan"]) for row in rows] == [("c", True), ("b", False)]


MIRROR = """
[[staging]]
id = "hub"
kind = "hub-mirror"
src = "{src}"
repos = ["{repo}"]
dst = "{disk}/hub"

[[staging.exports]]
kind = "tree"
id = "model"
target = "/model"
path = "{disk}/exported/model"
"""


def test_exports_that_go_with_it_are_named(models: Models) -> None:
    nas = usual(models.root.parent / "nas")
    nas.add("big.bin", os.urandom(6 * MIB))
    models.recipe("m", {})
    path = models.root / "recipes/m/recipe.toml"
    block = MIRROR.format(src=nas.root, repo=REPO, disk=models.disk)
    path.write_text(path.read_text().partition("[[staging]]")[0] + block)
    models.stage("m")
    models.recipe("d", {"model.bin": free(models) + 3 * MIB})
    models.drop("m")
    line = one_line(models.ok("plan", "stage:d", "--evict").out, "evict   ")
    assert "m:hub, whose recipe is gone; " in line
    assert line.endswith(f"; with its export {models.disk}/exported/model")
    models.ok("stage:d", "--evict")
    assert not (models.disk / "exported/model").exists()
    assert there(models) == ["a", "b", "c", "d"]


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
    assert free(models) < 8 * MIB
    assert "refused" not in models.ok("plan", "stage:d").out


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


def need(short: int) -> Need:
    return Need("n", "1", ("t",), write=short, free=0, total=100, min_free=0, keeper="t")


def test_what_several_want_of_one_disk() -> None:
    one, two, three = (
        Need("n", "1", (name,), write, 10, 100, spare, name)
        for name, write, spare in (("a", 4, 0), ("b", 5, 3), ("c", 1, 90))
    )
    every = together([one, two, three])
    assert (every.tasks, every.write, every.min_free, every.keeper) == (("a", "b", "c"), 10, 90, "c")
    assert every.short == 90
    assert split(every, 20) == ([three], [one, two])
    assert split(every, 81) == ([], [one, two, three])
    assert together([one, two]).short == 2
    assert split(three, 0) == ([three], [])
    assert together([one]) is one


@pytest.mark.parametrize(
    ("short", "folders", "chosen"),
    [
        (0, [folder("a", 5)], []),
        (5, [folder("a", 5, 2), folder("b", 5, 1)], ["b"]),
        (6, [folder("a", 5, 2), folder("b", 5, 1), folder("c", 5, 3)], ["b", "a"]),
        (6, [folder("a", 9, 3), folder("b", 2, 1), folder("c", 2, 2)], ["a"]),  # the small ones were no use
        (5, [folder("a", 0, 1), folder("b", 5, 2)], ["b"]),  # its bytes have another name
        (5, [folder("a", 5, 0, staged_at=9.0), folder("b", 5, 8)], ["b"]),  # staged a moment ago, to be served
        (5, [folder("a", 5, 9, orphan=True), folder("b", 5, 1)], ["a"]),
        (5, [folder("a", 5, 9, orphan=True), folder("b", 5, 1, orphan=True), folder("c", 5)], ["b"]),
        (8, [folder("a", 5, 9, orphan=True), folder("b", 5, 1)], ["a", "b"]),
        (11, [folder("a", 5, 2), folder("b", 5, 1)], None),
    ],
)
def test_what_is_chosen(short: int, folders: list[Folder], chosen: list[str] | None) -> None:
    found = choose(need(short), folders)
    assert (found if found is None else [one.recipe for one in found]) == chosen


def test_who_stays() -> None:
    one = folder("a", 5)
    assert stays(one, {}, "w", frozenset()) == ""
    assert stays(one, {"/a": "wanted"}, "w", frozenset()) == "wanted"
    assert "cannot be read" in stays(one, {}, "w", frozenset({"a"}))
    assert stays(one, {}, "another", frozenset({"a"})) == ""
    assert "runs" in stays(folder("a", 5, used="lane b runs and uses it"), {}, "w", frozenset())
    assert "protected" in stays(folder("a", 5, protect=True), {}, "w", frozenset())
    assert "staged by" in stays(folder("a", 5, busy="pid 7"), {}, "w", frozenset())
