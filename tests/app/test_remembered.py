"""What was read of a workspace is remembered, and believed only while nothing that was looked at has changed."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from sparkbuild.app import remembered
from sparkbuild.app.catalog import Catalog
from sparkbuild.workspace.files import looked

RECIPE = """\
cluster = "local"
image = "busybox:1.36@sha256:{}"
model_id = "m"
[serve]
runtime = "docker"
port = 8000
command = ["httpd", "-f", "-p", "{{{{ port }}}}"]
""".format("a" * 64)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A workspace in which something was done, long ago."""
    for folder in ("recipes/demo", "images", "locks", ".sparkbuild"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "recipes/demo/recipe.toml").write_text(RECIPE)
    return tmp_path


@pytest.fixture(autouse=True)
def old(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits for files to settle."""
    monkeypatch.setattr(looked, "SETTLED", -3600.0)


def is_remembered(root: Path) -> bool:
    return remembered.recall(root) is not None


def test_the_second_reading_gives_what_the_first_gave(root: Path) -> None:
    first = Catalog(root)
    assert is_remembered(root)
    second = Catalog(root)
    assert second.names == first.names
    assert list(second.goals.by_task) == list(first.goals.by_task)
    assert "serve:demo" in second.goals.by_task
    for task, goal in first.goals.by_task.items():
        again = second.goals.by_task[task]
        assert (again.target, again.key.parts, again.spec) == (goal.target, goal.key.parts, goal.spec)
        assert [need.target for need in again.needs] == [need.target for need in goal.needs]
        assert all(second.goals.by_task[need.task] is need for need in again.needs)


def edited(root: Path) -> None:
    path = root / "recipes/demo/recipe.toml"
    path.write_text(path.read_text().replace("8000", "8001"))


def edited_with_its_times_kept(root: Path) -> None:
    path = root / "recipes/demo/recipe.toml"
    before = path.stat()
    edited(root)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def replaced_by_a_link(root: Path) -> None:
    path = root / "recipes/demo/recipe.toml"
    path.rename(root / "elsewhere.toml")
    path.symlink_to(root / "elsewhere.toml")


def a_recipe_more(root: Path) -> None:
    (root / "recipes/more").mkdir()
    (root / "recipes/more/recipe.toml").write_text((root / "recipes/demo/recipe.toml").read_text())


def a_recipe_less(root: Path) -> None:
    (root / "recipes/demo").rename(root / "recipes/.demo")


def a_config(root: Path) -> None:
    (root / "config.toml").write_text("[pools]\nbuild = 2\n")


def a_lock(root: Path) -> None:
    (root / "locks/new.source.lock").write_text("format=local-inference-source-lock/v1\n")


CHANGES = [edited, edited_with_its_times_kept, replaced_by_a_link, a_recipe_more, a_recipe_less, a_config, a_lock]


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_is_seen(root: Path, change: Callable[[Path], None]) -> None:
    Catalog(root)
    assert is_remembered(root)
    time.sleep(0.02)  # a tick of the clock that ctimes are of
    change(root)
    assert not is_remembered(root)


def test_a_folder_that_was_empty_gets_a_recipe(root: Path) -> None:
    (root / "recipes/later").mkdir()
    Catalog(root)
    assert is_remembered(root)
    (root / "recipes/later/recipe.toml").write_text("")
    assert "recipes/later" in Catalog(root).names.problems


def test_what_was_just_written_is_not_remembered(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(looked, "SETTLED", 2.0)
    Catalog(root)
    assert not (root / ".sparkbuild/read").exists()


def test_mistakes_are_found_anew(root: Path) -> None:
    (root / "recipes/demo/recipe.toml").write_text("cluster = 1\n")
    assert Catalog(root).names.problems
    assert not (root / ".sparkbuild/read").exists()


def test_a_fresh_workspace_stays_as_it_is(root: Path) -> None:
    (root / ".sparkbuild").rmdir()
    Catalog(root)
    assert not (root / ".sparkbuild").exists()


@pytest.mark.parametrize("part", [0, 10, -10])
def test_a_damaged_file_is_as_good_as_none(root: Path, part: int) -> None:
    expected = Catalog(root).names
    path = root / ".sparkbuild/read"
    content = path.read_bytes()
    path.write_bytes(content[:part])
    again = Catalog(root)
    assert again.names == expected
    assert list(again.goals.by_task) == list(expected.docs)


def test_a_file_that_others_may_write_is_not_believed(root: Path) -> None:
    Catalog(root)
    (root / ".sparkbuild/read").chmod(0o620)
    assert not is_remembered(root)


def test_another_code_reads_anew(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Catalog(root)
    assert is_remembered(root)
    monkeypatch.setattr(remembered, "_code_stamp", lambda path: (0, len(path)))
    assert not is_remembered(root)
