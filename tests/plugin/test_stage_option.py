"""`doit serve:demo --stage=auto|skip|force`, with the demo: what is looked at, what is made, and what is said of it."""

from __future__ import annotations

import shutil
from typing import Any

import pytest

from tests.agent.driver import flip
from tests.plugin.demo import CHUNK, Demo
from tests.plugin.models import MIB, Models

STAGE = "stage:demo:local:weights"


def staged(demo: Demo) -> dict[str, Any]:
    """The last entry about the staged weights in the run log."""
    return next(entry for entry in reversed(demo.runs()) if entry.get("task") == STAGE)


def test_skip_launches_with_what_is_there(idle: Demo) -> None:
    flip(idle.staged, idle.staged.stat().st_size - 100)  # a byte of the last tensor: it still loads
    assert idle.states("serve:demo")[STAGE] == "run"
    plan = idle.plan("serve:demo", "--stage=skip")
    assert plan[STAGE]["state"] == "ok"
    assert plan["serve:demo"]["state"] == "run"
    shown = idle.ok("plan", "-v", "--stage", "skip", "serve:demo").out
    assert "not looked at (--stage=skip)" in shown
    assert "make it so:  doit serve:demo --stage=skip\n" in shown
    made = len(idle.made())
    done = idle.ok("serve:demo", "--stage=skip", "--no-wait")
    assert f"ok    {STAGE}  not looked at (--stage=skip)" in done.out
    assert STAGE not in idle.made()[made:]
    assert idle.pid
    idle.ok("stop:demo")
    idle.ok(STAGE)


def test_skip_without_a_folder_is_an_error_before_anything_is_done(idle: Demo) -> None:
    folder = idle.staged.parent
    folder.rename(folder.with_name("away"))
    try:
        plan = idle.ok("plan", "serve:demo", "--stage=skip").out
        assert "cannot be launched with --stage=skip: what it is to read is not there" in plan
        assert "make it so" not in plan
        done = idle.fails("serve:demo", "--stage", "skip")
        assert done.code == 3
        assert f"local has no folder {folder} ({STAGE})" in done.err
        assert "next:   doit serve:demo, which stages it" in done.err
        assert not idle.pid
    finally:
        folder.with_name("away").rename(folder)


def test_force_reads_all_of_it_and_mends_what_no_quick_look_finds(idle: Demo) -> None:
    plan = idle.plan("serve:demo", "--stage=force")
    assert plan[STAGE]["state"] == "run"
    assert [reason["text"] for reason in plan[STAGE]["reasons"]] == ["is read in full and mended (--stage=force)"]
    flip(idle.staged, 5 * CHUNK + 1)
    done = idle.ok("serve:demo", "--stage=force", "--no-wait")
    assert f"done  {STAGE}" in done.out
    assert "serve:demo" in done.out
    log = (idle.root / staged(idle)["log"]).read_text()
    assert "1 chunk mended" in log
    idle.ok("stop:demo")
    idle.ok("verify", "demo", "--full")


def test_force_of_what_is_right_reads_it_and_serves(idle: Demo) -> None:
    done = idle.ok("serve:demo", "--stage=force", "--no-wait")
    assert f"{STAGE}: check 98.4 MB" in done.out or f"done  {STAGE}" in done.out
    assert staged(idle)["event"] == "made"
    assert staged(idle)["bytes"] == 0
    assert idle.pid
    idle.ok("stop:demo")


def test_force_without_the_source_is_told_before_anything_is_done(tmp_path: Any) -> None:
    models = Models(tmp_path / "w")
    models.recipe("one", {"a.bin": 1000})
    models.recipe("two", {"b.bin": 3 * MIB})
    models.stage("one", "two")
    for name in ("one", "two"):
        before = models.ok("plan", f"serve:{name}", "--stage=force").out
        assert "cannot be made so:\n      the folder to stage from" not in before
        shutil.rmtree(models.source(name))
        for value in ("auto", "skip"):
            told = models.ok("plan", "-v", f"serve:{name}", f"--stage={value}").out
            assert "the folder to stage from is not there" not in told
        plan = models.ok("plan", f"serve:{name}", "--stage=force").out
        assert "is read in full and mended (--stage=force)" in plan
        assert "the folder to stage from is not there" in plan
        assert f"cannot be made without stage:{name}:local:data" in plan
        assert "make it so" not in plan
        shown = models.plan(f"serve:{name}", "--stage=force")[f"stage:{name}:local:data"]
        assert shown["refused"]["what"] == "the folder to stage from is not there"


def test_a_workspace_that_stages_nothing_says_so(tmp_path: Any) -> None:
    models = Models(tmp_path / "w")
    models.recipe("one", {})
    path = models.root / "recipes/one/recipe.toml"
    path.write_text(path.read_text().partition("\n[[staging]]")[0] + "\n")
    for words in (["stage"], ["plan", "stage"], ["stage", "--evict"]):
        done = models.fails(*words)
        assert done.code == 3
        assert "no recipe has a [[staging]] block: there is nothing to stage" in done.err
        assert "did you mean" not in done.err


def test_auto_is_as_without_it(idle: Demo) -> None:
    assert idle.states("serve:demo", "--stage=auto") == idle.states("serve:demo")


@pytest.mark.parametrize(
    ("args", "text"),
    [
        (["serve:a", "--stage=never"], "--stage takes auto, skip or force, and never is none of these"),
        (["serve:a", "--stage="], "--stage takes auto, skip or force, and nothing is none of these"),
        (["plan", "serve:a", "--stage=never"], "--stage takes auto, skip or force, and never is none of these"),
        (["plan", "stage:a", "--stage=skip"], "--stage is an option of lanes"),
        (["stage:a:local:data", "--stage=skip"], "stage:a:local:data has no option --stage\n  wanted: --evict"),
        (["stage:a", "--evct"], "stage:a has no option --evct\n  did you mean: --evict?\n  wanted: --evict"),
        (["stage:a:local:data", "--evic"], "did you mean: --evict?"),
        (["stage", "--evict=yes"], "--evict takes no value: doit stage --evict"),
        (
            ["serve", "--no-wait"],
            "--no-wait is an option of a single task, and serve is several",
        ),
        (["serve:a", "--stag=skip"], "did you mean: --stage?"),
        (["--stage=skip", "serve:a"], "--stage is an option of the task, and stands after its name: doit serve:a"),
    ],
)
def test_a_command_line_that_means_nothing(tmp_path: Any, args: list[str], text: str) -> None:
    models = Models(tmp_path / "w")
    models.recipe("a", {"model.bin": MIB})
    done = models.fails(*args)
    assert done.code == 3
    assert text in done.err
    shutil.rmtree(models.root)
