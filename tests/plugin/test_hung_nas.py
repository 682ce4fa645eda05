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
