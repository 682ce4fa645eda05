"""`doit verify`: each staged folder gets a row that is true, and an exit code that a script can go by."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.agent.driver import CHUNK, flip
from tests.plugin.models import MIB, Models


@pytest.fixture
def models(tmp_path: Path) -> Models:
    made = Models(tmp_path / "w")
    made.recipe("big", {"a.bin": 9 * MIB, "b.bin": MIB})
    made.recipe("small", {"c.bin": 3 * MIB})
    return made


def rows(models: Models, *args: str, code: int = 0) -> list[dict[str, Any]]:
    done = models("verify", "--json", *args)
    assert done.code == code, done
    return list(json.loads(done.out)["staged"])


def test_all_is_well(models: Models) -> None:
    models.stage("big", "small")
    done = models.ok("verify")
    assert re.search(r"^local  big:data    ok +\d\S* MB read +\d+\.\d s  10\.5 MB$", done.out, re.MULTILINE), done
    assert re.search(r"^local  small:data  ok", done.out, re.MULTILINE), done
    found = rows(models, "--full")
    assert [(row["task"], row["state"], row["read"], row["total"]) for row in found] == [
        ("stage:big:local:data", "ok", 10 * MIB, 10 * MIB),
        ("stage:small:local:data", "ok", 3 * MIB, 3 * MIB),
    ]


def test_it_needs_no_source(models: Models) -> None:
    models.stage("big", "small")
    models.source("big").rename(models.root / "away")
    models.ok("verify", "--full", "big")


def test_a_flipped_byte_is_named_with_the_command_that_mends(models: Models) -> None:
    models.stage("big", "small")
    flip(models.folder("big") / "a.bin", CHUNK + 7)
    done = models("verify", "--full")
    assert done.code == 1
    assert "    a.bin differs from its ledger in chunk 2 of 3\n    make it so: doit stage:big:local:data\n" in done.out
    assert re.search(r"^local  big:data    damaged", done.out, re.MULTILINE), done
    models.ok("stage:big:local:data")
    models.ok("verify:big", "--full")


def test_what_is_not_staged_is_missing(models: Models) -> None:
    models.stage("big")
    done = models("verify")
    assert done.code == 1
    assert re.search(r"^local  small:data  not staged", done.out, re.MULTILINE), done
    assert "make it so: doit stage:small:local:data" in done.out


def test_data_of_another_key_is_not_what_is_wanted(models: Models) -> None:
    models.stage("small")
    path = models.root / "recipes/small/recipe.toml"
    path.write_text(path.read_text() + 'skip = ["*.txt"]\n')
    (row,) = rows(models, "small", code=1)
    assert row["state"] == "other data"
    assert "skip" in row["problems"][0]


@pytest.mark.parametrize("spelled", [["verify:big"], ["verify", "big"], ["verify", "stage:big:local"]])
def test_one_recipe(models: Models, spelled: list[str]) -> None:
    models.stage("big")
    done = models.ok(*spelled, "--full")
    assert "big:data" in done.out
    assert "small" not in done.out


def test_nothing_is_written_but_what_is_known(models: Models) -> None:
    models.stage("big", "small")
    before = {path: path.stat().st_ctime_ns for path in models.disk.rglob("*") if path.is_file()}
    models.ok("verify")
    assert before == {path: path.stat().st_ctime_ns for path in models.disk.rglob("*") if path.is_file()}


def test_a_silent_node_is_two(models: Models) -> None:
    config = models.root / "config.toml"
    gone = '[nodes.gone]\nconnection = "ssh"\naddress = "127.0.0.1"\nport = 1\nstore = "/srv/x"\n'
    config.write_text(f'{config.read_text()}\n{gone}[clusters.gone]\nnodes = ["gone"]\n')
    models.stage("big")
    path = models.root / "recipes/small/recipe.toml"
    path.write_text(
        path.read_text()
        .replace('cluster = "local"', 'cluster = "gone"')
        .replace("[serve]", '[serve]\nruntime = "docker"')
        .replace('image = "llamacpp"', f'image = "x@sha256:{"0" * 64}"')
    )
    done = models("verify")
    assert done.code == 2, done
    assert re.search(r"^gone +small:data  node silent", done.out, re.MULTILINE), done
    assert re.search(r"^local +big:data +ok", done.out, re.MULTILINE), done
    assert "gone cannot be reached" in done.out


def test_a_broken_recipe_is_two_and_its_data_is_no_orphan(models: Models) -> None:
    models.stage("big", "small")
    (models.root / "recipes/small/recipe.toml").write_text("nonsense")
    done = models("verify")
    assert done.code == 2
    assert "recipes/small/recipe.toml" in done.err
    assert re.search(r"^local +big:data +ok", done.out, re.MULTILINE), done
    assert "recipe is gone" not in done.out
    models.ok("verify", "big")


def test_what_no_recipe_wants_is_listed(models: Models) -> None:
    models.stage("big", "small")
    models.drop("small")
    done = models.ok("verify")
    assert f"local  {models.folder('small')}: 3.2 MB of small:data, whose recipe is gone; never served" in done.out
    assert json.loads(models.ok("verify", "--json").out)["orphans"][0]["folder"] == str(models.folder("small"))


def test_a_scrub_goes_on_where_it_stopped(models: Models) -> None:
    models.stage("big")
    seen = []
    for _ in range(3):
        done = models.ok("verify", "big", "--scrub", "--limit=4MiB")
        seen.append(re.search(r"(\d+) % of 10\.5 MB, round began 20\d\d-\d\d-\d\d", done.out))
    assert [found and found.group(1) for found in seen] == ["40", "80", "100"]
    flip(models.folder("big") / "a.bin", 3)
    done = models("verify:big", "--scrub", "--limit", "4MiB")
    assert done.code == 1
    assert "a.bin differs from its ledger in chunk 1 of 3" in done.out


def test_a_folder_that_was_never_read_says_so_and_what_is_missing_in_it_is_told(models: Models) -> None:
    models.stage("big", "small")
    done = models.ok("verify", "--scrub", "--limit=4MiB")
    row = r"^local  small:data  never read +0 B read .* 0 % of 3.1 MB, its turn comes$"
    assert re.search(row, done.out, re.MULTILINE), done
    assert re.search(r"^local  big:data    ok  ", done.out, re.MULTILINE), done
    (models.folder("small") / "c.bin").unlink()
    done = models("verify", "--scrub", "--limit=4MiB")
    assert done.code == 1
    assert "c.bin is missing\n    make it so: doit stage:small:local:data\n" in done.out


def test_scrubbing_what_is_not_staged(models: Models) -> None:
    assert [row["state"] for row in rows(models, "--scrub", code=1)] == ["not staged", "not staged"]


@pytest.mark.parametrize(
    ("args", "text"),
    [
        (["verify", "bgi"], "nothing that is staged has the name 'bgi'"),
        (["verify:bgi"], "  did you mean: verify:big?"),
        (["verify", "data"], "  did you mean: verify:big:local:data, verify:small:local:data?"),
        (["verify", "stage:big:locla"], "  did you mean: verify:big:local?"),
        (["verify", "--fulll"], "  did you mean: --full?"),
        (["verify:big", "--fll"], "verify:big has no option --fll\n  did you mean: --full?"),
        (["verify:big", "stage:big"], "stage:big cannot be made along with a look at staged data"),
        (["verify", "--full", "--scrub"], "one of them"),
        (["verify", "--limit", "1GB"], "--limit goes with --scrub: a quick look reads a sample"),
        (["verify", "--full", "--limit", "1GB"], "--limit goes with --scrub: --full reads everything"),
        (["verify", "--scrub", "--limit", "lots"], "--limit takes a size such as 20GB or 500MB, and lots is none"),
        (["verify", "--scrub", "--limit", "0"], "--limit takes a size above 0"),
        (["verify:big", "--scrub", "--limit"], "and nothing is none"),
    ],
)
def test_a_command_line_that_means_nothing(models: Models, args: list[str], text: str) -> None:
    done = models.fails(*args)
    assert done.code == 3
    assert text in done.err
    assert len(done.err.splitlines()) <= 4
