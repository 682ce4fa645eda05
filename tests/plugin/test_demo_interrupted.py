"""Serving is interrupted, run twice at once, or stands beside something broken: no engine is lost, none is left."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable

import pytest

from tests.engine import healthy
from tests.plugin.demo import RECIPE, Demo
from tests.workspace_tool import finish, is_alive, until


def starting(demo: Demo) -> bool:
    """The run has begun to make the lane."""
    return bool(demo.runs()) and demo.runs()[-1]["event"] == "start" and demo.runs()[-1]["task"] == "serve:demo"


def launched(demo: Demo) -> bool:
    """A process runs and is not ready."""
    return bool(demo.pid) and not demo.record["ready"]


def loading(demo: Demo) -> bool:
    """The engine has begun to read the model."""
    log = demo.store / (demo.record.get("log") or "none")
    return bool(demo.pid) and log.exists() and "loading" in log.read_text(errors="replace")


MOMENTS = pytest.mark.parametrize("moment", [starting, launched, loading])


@pytest.mark.parametrize("mode", [["-n", "0"], []], ids=["serial", "threads"])
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@MOMENTS
def test_a_signal_during_the_launch_leaves_no_engine(
    idle: Demo, moment: Callable[[Demo], bool], number: int, code: int, mode: list[str]
):
    process = idle.start("run", *mode, "serve:demo")
    until(lambda: moment(idle))
    process.send_signal(number)
    done = finish(process, 60)
    assert done.code == code, done
    assert "Traceback" not in done.text, done
    if idle.record.get("ready"):  # it was quicker than the signal: a lane that runs is left, or nothing is
        assert idle.engines() == [idle.pid]
        served = idle.record["served_at"] is not None
        assert idle.status()["state"] == ("serving" if served else "serving, gates not passed")
        assert idle.states("serve:demo")["serve:demo"] == ("ok" if served else "run")
        return
    assert idle.states("serve:demo")["serve:demo"] == "run"
    assert idle.engines() == []
    assert not idle.record or idle.record["served_at"] is None or idle.record["stopped_at"]
    assert idle.status()["state"] in {"stopped", "not running", "did not start"}


@MOMENTS
def test_a_killed_doit_and_the_next_serve_goes_on(idle: Demo, moment: Callable[[Demo], bool]):
    process = idle.start("run", "serve:demo")
    until(lambda: moment(idle))
    process.send_signal(signal.SIGKILL)
    finish(process)
    pid = idle.pid  # 0 when it was not launched yet
    idle.ok("serve:demo")
    assert idle.engines() == [idle.pid]
    assert pid in {0, idle.pid}
    assert idle.states("serve:demo")["serve:demo"] == "ok"


def test_two_serves_at_once_launch_one_engine(idle: Demo):
    before = len(idle.runs())
    both = [idle.start("serve:demo") for _ in range(2)]
    for process in both:
        done = finish(process, 120)
        assert done.code == 0, done
    assert idle.engines() == [idle.pid]
    assert [entry["task"] for entry in idle.runs()[before:] if entry["event"] == "made"] == ["serve:demo"]


def test_stopping_while_another_serves(idle: Demo):
    process = idle.start("serve:demo")
    until(lambda: launched(idle))
    assert "stopped process" in idle.ok("stop:demo").out
    done = finish(process, 60)
    assert done.code == 1, done
    moment = "while its gates were asked" if idle.record["ready"] else "before it was ready"
    assert f"lane demo was stopped {moment}" in done.out, done
    assert idle.engines() == []
    assert idle.status()["state"] in {"stopped", "did not start"}


def test_an_engine_that_hangs_while_it_starts_does_not_hold_up_a_ctrl_c(idle: Demo):
    idle.edit("stop_grace = 10.0", "stop_grace = 1.0")
    process = idle.start("serve:demo")
    until(lambda: launched(idle))
    port = idle.record["port"]
    until(lambda: healthy(f"http://127.0.0.1:{port}"))
    pid = idle.pid
    os.kill(pid, signal.SIGSTOP)
    begin = time.monotonic()
    process.send_signal(signal.SIGINT)
    done = finish(process, 60)
    assert done.code in {130, 1}, done  # 1: it was ready a moment before, and its gates failed
    assert time.monotonic() - begin < 15
    assert idle.ok("stop:demo")
    assert not is_alive(pid)
    assert idle.engines() == []


def test_what_outlives_its_lanes_main_process_is_ended(idle: Demo):
    """An engine of several processes, whose main one is killed: the others still hold its memory and its port."""
    idle.edit(
        '    "{{ image.python }}", "{{ image.files }}/serve.py",',
        f'    "{sys.executable}", "-c", """{_PARENT}""", "{{{{ image.python }}}}", "{{{{ image.files }}}}/serve.py",',
    )
    idle.ok("serve:demo")
    leader = idle.pid
    assert len(idle.engines()) == 2
    os.kill(leader, signal.SIGKILL)
    until(lambda: not is_alive(leader))
    (left,) = idle.engines()
    (reason, *_) = idle.plan("serve:demo")["serve:demo"]["reasons"]
    assert f"process {leader} is gone" in reason["text"]
    idle.ok("serve:demo")
    assert not is_alive(left)
    assert len(idle.engines()) == 2
    os.kill(idle.pid, signal.SIGKILL)
    assert "stopped process" in idle.ok("stop:demo").out
    assert idle.engines() == []


_PARENT = "import subprocess, sys; sys.exit(subprocess.call(sys.argv[1:]))"


def test_a_broken_other_recipe_blocks_nothing(idle: Demo):
    other = idle.root / "recipes/other"
    other.mkdir()
    try:
        (other / "recipe.toml").write_text('cluster = "local\n')
        done = idle.ok("serve:demo")
        assert idle.pid
        listed = idle("list")
        assert listed.code == 2
        assert "recipes/other/recipe.toml:1" in listed.err
        assert "serve:demo" in listed.out
        planned = idle("plan")
        assert planned.code == 2
        assert "recipes/other/recipe.toml:1" in planned.err
        named = idle.fails("serve:other")
        assert "recipes/other/recipe.toml:1" in named.err
        assert "stopped process" in idle.ok("stop:demo").out
        assert done.out
    finally:
        (other / "recipe.toml").unlink()
        other.rmdir()


def test_a_lane_can_be_stopped_while_its_recipe_is_broken(lane: Demo):
    pid = lane.pid
    lane.edit("[serve]", "[serve")
    assert f"{RECIPE}:10" in lane.fails("serve:demo").err
    assert is_alive(pid)
    assert f"stopped process {pid}" in lane.ok("stop:demo").out
    assert not is_alive(pid)


def test_a_lane_outlives_the_name_of_its_recipe(lane: Demo):
    """Renaming a recipe must not lose the lane that runs under its old name."""
    pid = lane.pid
    old, new = lane.root / "recipes" / "demo", lane.root / "recipes" / "renamed"
    old.rename(new)
    try:
        rows = {row["recipe"]: row for row in json.loads(lane.ok("status", "--json").out)["lanes"]}
        assert rows["demo"]["pid"] == pid
        assert rows["renamed"]["state"] == "not running"
        assert "held by lane demo" in lane.ok("plan", "serve:renamed").out
        assert "serve.py" in lane.ok("logs", "demo").out
        assert f"stopped process {pid}" in lane.ok("stop:demo").out
        assert lane.engines() == []
        assert "demo" not in {row["recipe"] for row in json.loads(lane.ok("status", "--json").out)["lanes"]}
        assert "there is no task 'stop:demo'" in lane.fails("stop:demo").err
    finally:
        new.rename(old)
