"""A NAS that hangs, as the operator meets it: who is asked is on the screen, and it can be left."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.hungfs import hangs
from tests.plugin.models import Models
from tests.workspace_tool import finish


@pytest.fixture
def models(tmp_path: Path) -> Iterator[Models]:
    """A recipe whose source is on it."""
    made = Models(tmp_path / "ws")
    made.recipe("one", {"a.bin": 1000})
    with hangs(tmp_path / "nas") as nas:
        recipe = made.root / "recipes/one/recipe.toml"
        recipe.write_text(recipe.read_text().replace(str(made.source("one")), f"{nas}/one"))
        yield made


def test_a_plan_says_who_is_asked_and_gives_it_up(models: Models, tmp_path: Path) -> None:
    began = time.monotonic()
    done = models("plan", "stage:one")
    assert time.monotonic() - began < 45
    assert f"local has not answered for 3 s: it looks at {tmp_path}/nas/one" in done.err
    assert "ctrl-C leaves it at once" in done.err
    assert "the file system of the source does not answer" in done.out
    assert f"{tmp_path}/nas/one" in done.out


@pytest.mark.parametrize("command", ["plan", "stage"])
def test_it_can_be_left(models: Models, command: str) -> None:
    process = models.start(*(("plan", "stage:one") if command == "plan" else ("stage:one",)))
    assert process.stderr is not None
    assert "has not answered for 3 s" in process.stderr.readline()
    began = time.monotonic()
    process.send_signal(signal.SIGINT)
    assert finish(process, 30).code == 130
    assert time.monotonic() - began < 6


def test_verify_gives_up_what_is_staged_on_it(tmp_path: Path) -> None:
    """Two folders on it and one beside: the bound is waited for once, and the third is told as it is."""
    made = Models(tmp_path / "ws")
    for name in ("one", "two", "three"):
        made.recipe(name, {"a.bin": 1000})
    made.stage("one", "two", "three")
    kept = tmp_path / "kept"
    made.folder("three").rename(kept)
    with hangs(made.disk):
        recipe = made.root / "recipes/three/recipe.toml"
        recipe.write_text(recipe.read_text().replace(str(made.folder("three")), str(kept)))
        began = time.monotonic()
        done = made("verify")
        assert time.monotonic() - began < 35
        assert done.code == 2
        assert done.out.count("node silent") == 2
        assert "the file system of staged data does not answer" in done.out
        assert f"where:  node local, {made.folder('one')}" in done.out
        assert "three:data" in done.out
        began = time.monotonic()
        done = made("plan", "stage:one", "stage:two")
        assert time.monotonic() - began < 35
        assert "unknown" in done.out
        assert "the file system of staged data does not answer" in done.out
