"""Folders that are somebody else's, through the commands: the plan says it, a run changes nothing."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.plugin.models import Models


@pytest.fixture
def models(tmp_path: Path) -> Models:
    made = Models(tmp_path / "models")
    made.recipe("one", {"a.bin": 1000, "b.bin": 1000})
    return made


def test_an_operators_own_file(models: Models) -> None:
    own = models.folder("one") / "b.bin"
    own.parent.mkdir(parents=True)
    own.write_text("mine")
    plan = models.ok("plan", "stage:one").out
    assert "files that sparkbuild did not stage, with other content" in plan
    assert "make it so" not in plan
    assert f"mv --backup=numbered -t {own.parent}.before {own}" in models.fails("stage:one").text
    assert own.read_text() == "mine"
    assert [path.name for path in own.parent.iterdir()] == ["b.bin"]


def test_the_folder_of_another_workspace(models: Models, tmp_path: Path) -> None:
    other = Models(tmp_path / "other", disk=models.disk)
    other.recipe("one", {"c.bin": 1000})
    models.stage("one")
    plan = other.ok("plan", "stage:one").out
    assert "the folder to stage into holds other staged data" in plan
    assert "is of one:data of workspace" in plan
    assert str(models.root) in plan
    assert "holds other staged data" in other.fails("stage:one").text
    assert sorted(path.name for path in models.folder("one").glob("*.bin")) == ["a.bin", "b.bin"]
    assert "make it so" not in models.ok("plan", "stage:one").out


def test_adopted_files_stay_when_room_is_made(models: Models) -> None:
    folder = models.folder("one")
    folder.mkdir(parents=True)
    (folder / "a.bin").write_bytes((models.source("one") / "a.bin").read_bytes())
    models.stage("one")
    models.drop("one")
    models.recipe("big", {"x.bin": 1000}, min_free=1 << 60)
    shown = models("plan", "stage:big", "--evict").text
    assert f"in {folder} stay: its files were there before; by hand: rm -r {folder}" in shown
    assert (folder / "a.bin").exists()


@pytest.fixture
def disk(models: Models) -> Iterator[Path]:
    """A file system of its own to stage onto."""
    if os.geteuid() != 0:
        pytest.skip("mounting needs root")
    models.disk.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "none", models.disk], capture_output=True, check=False)
    if done.returncode:
        pytest.skip(f"no mount here: {done.stderr.decode().strip()}")
    yield models.disk
    subprocess.run(["umount", models.disk], capture_output=True, check=False)


def test_a_disk_that_is_not_mounted(models: Models, disk: Path) -> None:
    models.stage("one")
    subprocess.run(["umount", disk], check=True)
    plan = models.ok("plan", "stage:one").out
    assert f"was staged before, {models.folder('one')} has no ledger now\n" in plan
    for text in (plan, models.fails("stage:one").text):
        assert "the disk that the folder was staged on is not mounted" in text
        assert f"wanted: the tmpfs that was mounted on {disk}" in text
        assert f"next:   on that node: mount {disk}; or, when that disk is gone for good, rm " in text
        assert "make it so" not in text
    assert list(disk.iterdir()) == []
