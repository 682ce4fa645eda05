"""The whole flow on one machine, as a newcomer sees it: serve, serve again, plan, status, logs, why, stop."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from tests.plugin.demo import GOALS, Demo, Served
from tests.workspace_tool import finish, is_alive

SHAPE = {"task", "uri", "node", "state", "reasons", "bytes", "command"}


def by_task(plan: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {goal["task"]: goal for goal in plan["goals"]}


def ask(demo: Demo, text: str) -> str:
    body = {"messages": [{"role": "user", "content": text}], "max_tokens": 32, "temperature": 0}
    url = f"http://127.0.0.1:{demo.record['port']}/v1/chat/completions"
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as response:
        return str(json.load(response)["choices"][0]["message"]["content"])


def test_the_first_serve_makes_four_goals_and_a_model_that_answers(first: Served):
    assert sorted(first.demo.made()[:4]) == sorted(GOALS)
    assert "4 made" in first.done.out
    assert first.demo.pid
    assert first.demo.record["ready"]["ttft"] > 0
    assert first.demo.record["ready"]["seconds"] > first.demo.record["ready"]["ttft"]
    assert [gate["id"] for gate in first.demo.record["gates"]] == ["arithmetic", "copy", "weather"]
    assert "4" in ask(first.demo, "What is 2 + 2?")


def test_the_run_log_says_why_each_was_made(first: Served):
    told = {entry["task"]: entry["reasons"] for entry in first.demo.runs() if entry["event"] == "start"}
    assert told == {
        "artifact:demo:smollm2": ["not fetched yet"],
        "image:llamacpp": ["not built yet"],
        "stage:demo:local:weights": ["not staged yet"],
        "serve:demo": ["not served yet"],
    }
    for entry in first.demo.runs():
        if entry["event"] == "made":
            assert (first.demo.root / entry["log"]).read_text().strip(), entry["task"]


def test_the_plan_before(first: Served):
    goals = by_task(first.before)
    assert {task: goal["state"] for task, goal in goals.items()} == dict.fromkeys(GOALS, "run")
    assert list(goals)[-1] == "serve:demo"


def test_the_plan_after(first: Served):
    assert {task: goal["state"] for task, goal in by_task(first.after).items()} == dict.fromkeys(GOALS, "ok")


@pytest.mark.parametrize("when", ["before", "after"])
def test_the_shape_of_a_plan(first: Served, when: str):
    plan = getattr(first, when)
    assert set(plan) == {"goals"}
    assert {goal["task"] for goal in plan["goals"]} == set(GOALS)
    for goal in plan["goals"]:
        assert set(goal) == SHAPE
        assert goal["state"] in {"run", "ok", "maybe", "unknown"}
        assert goal["node"] == "local"
        assert re.fullmatch(r"[a-z]+://local/\S+", goal["uri"])
        assert goal["command"] == f"doit {goal['task']}"
        assert goal["bytes"] is None or isinstance(goal["bytes"], int)
        for reason in goal["reasons"]:
            assert set(reason) == {"part", "old", "new", "text"}
            assert reason["text"]


def test_a_second_serve_runs_nothing_and_does_not_need_the_source(first: Served):
    made, pid = first.demo.made(), first.demo.pid
    aside = first.demo.root / "aside"
    first.demo.artifacts.rename(aside)
    try:
        done = first.demo.ok("serve:demo")
        plan = first.demo.plan("serve:demo")
        assert not first.demo.artifacts.exists()
    finally:
        aside.rename(first.demo.artifacts)
    assert "4 up to date" in done.out
    assert first.demo.made() == made
    assert first.demo.pid == pid
    assert {goal["state"] for goal in plan.values()} == {"ok"}
    assert "not needed" in plan["artifact:demo:smollm2"]["reasons"][0]["text"]


def test_nothing_is_left_beside_what_was_made(first: Served):
    found = [path for path in first.demo.store.rglob("*") if re.search(r"\.(part|tmp)$|^download$", path.name)]
    assert found == []


def test_a_plan_changes_nothing_and_says_so(first: Served):
    done = first.demo.ok("plan", "serve:demo")
    assert "nothing to do: 4 ok" in done.out
    done = first.demo.ok("plan", "-v", "serve:demo")
    assert f'"--port", "{first.demo.record["port"]}"' in done.out


def test_status(first: Served):
    row = first.demo.status()
    record = first.demo.record
    assert row["state"] == "serving"
    assert row["current"] is True
    assert row["pid"] == first.demo.pid
    assert row["url"] == f"http://127.0.0.1:{record['port']}/v1"
    assert row["model_id"] == "smollm2-135m"
    assert row["gates"] == {"arithmetic": True, "copy": True, "weather": True}
    assert row["lock"].startswith("demo@")
    assert 0 <= time.time() - row["since"] < 3600
    text = first.demo.ok("status").out
    for part in ("serving since", str(row["pid"]), row["url"], "from lock demo"):
        assert part in text


def test_why(first: Served):
    done = first.demo.ok("why", "serve:demo")
    head, *rest = done.out.splitlines()
    assert head.startswith("ok      serve:demo   lane://local/demo@")
    assert "last made" in rest[1]


def test_logs(first: Served):
    text = first.demo.ok("logs", "demo").out
    assert "serve.py: serving smollm2-135m at http://127.0.0.1:" in text
    assert len(first.demo.ok("logs", "demo", "-n", "3").out.splitlines()) == 3


def test_logs_of_a_recipe_that_is_none(first: Served):
    done = first.demo.fails("logs", "dmeo")
    assert "did you mean" in done.err
    assert "demo" in done.err


def test_without_its_state_file_nothing_runs(first: Served):
    made, pid = first.demo.made(), first.demo.pid
    for path in (first.demo.root / ".sparkbuild").glob("state.db*"):
        path.unlink()
    done = first.demo.ok("serve:demo")
    assert "4 up to date" in done.out
    assert (first.demo.made(), first.demo.pid) == (made, pid)


def test_a_broken_state_file_is_harmless_too(first: Served):
    pid = first.demo.pid
    (first.demo.root / ".sparkbuild/state.db").write_bytes(b"no database at all" * 100)
    assert "4 up to date" in first.demo.ok("serve:demo").out
    assert first.demo.pid == pid


def test_state_moved_to_another_folder_is_a_no_op(first: Served, tmp_path: Path):
    subprocess.run(["cp", "-a", first.demo.root, tmp_path / "moved"], check=True)
    moved = Demo(tmp_path / "moved")
    try:
        made = moved.made()
        assert "4 up to date" in moved.ok("serve:demo").out
        assert set(moved.states("serve:demo").values()) == {"ok"}
        assert moved.made() == made
        assert moved.engines() == []
        assert moved.record["pid"] == first.demo.pid
    finally:
        shutil.rmtree(moved.root)


def test_no_path_of_the_workspace_is_in_a_key(first: Served):
    parts = [entry["parts"] for entry in first.demo.runs() if entry["event"] == "start"]
    assert parts
    assert str(first.demo.root) not in json.dumps(parts)


def test_following_a_log_ends_with_the_lane(lane: Demo):
    follow = lane.start("logs", "demo", "-f")
    pid = lane.pid
    assert follow.stdout is not None
    assert follow.stdout.readline()  # it is at work by now
    assert follow.poll() is None
    lane.ok("stop:demo")
    done = finish(follow, 20)
    assert done.code == 0, done
    assert "serve.py: stopped" in done.out
    assert not is_alive(pid)


def test_stopping_twice(lane: Demo):
    pid = lane.pid
    assert f"stopped process {pid} on local" in lane.ok("stop:demo").out
    assert not is_alive(pid)
    assert lane.engines() == []
    assert "does not run" in lane.ok("stop:demo").out
    row = lane.status()
    assert (row["state"], row["pid"], row["url"]) == ("stopped", None, None)
    (reason,) = lane.plan("serve:demo")["serve:demo"]["reasons"]
    assert reason["text"].startswith("was stopped at ")
    assert "serve.py: stopped" in lane.ok("logs", "demo").out
