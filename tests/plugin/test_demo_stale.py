"""What is damaged or changed is named by the plan, and only that is made again."""

from __future__ import annotations

import hashlib
import os
import signal
from pathlib import Path
from typing import Any

from tests.plugin.demo import CHUNK, GOALS, RECIPE, Demo
from tests.workspace_tool import is_alive, until

STAGE = "stage:demo:local:weights"


def stale(demo: Demo) -> dict[str, dict[str, Any]]:
    """The plan of serve:demo without what is ok."""
    return {task: goal for task, goal in demo.plan("serve:demo").items() if goal["state"] != "ok"}


def only(demo: Demo, task: str, state: str = "run") -> dict[str, Any]:
    """The one goal that is stale."""
    found = stale(demo)
    assert list(found) == [task], found
    assert found[task]["state"] == state
    return found[task]


def flip(path: Path, offset: int) -> None:
    """Change one byte; size, inode and mtime stay."""
    before = path.stat()
    os.chmod(path, 0o644)
    with path.open("r+b") as file:
        file.seek(offset)
        byte = file.read(1)
        file.seek(offset)
        file.write(bytes([byte[0] ^ 1]))
    os.chmod(path, before.st_mode)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def serve(demo: Demo) -> list[dict[str, Any]]:
    """Serve, and return what this run made; a serve after it makes nothing."""
    before = len(demo.runs())
    demo.ok("serve:demo")
    made = [entry for entry in demo.runs()[before:] if entry["event"] == "made"]
    assert "4 up to date" in demo.ok("serve:demo").out
    assert demo.engines() == [demo.pid]
    return made


def tasks(made: list[dict[str, Any]]) -> list[str]:
    return [entry["task"] for entry in made]


def test_a_killed_server(lane: Demo):
    pid = lane.pid
    os.kill(pid, signal.SIGKILL)
    until(lambda: not is_alive(pid))
    goal = only(lane, "serve:demo")
    assert f"process {pid} is gone without having been stopped" in goal["reasons"][0]["text"]
    assert lane.status()["state"] == "dead (was not stopped)"
    assert "serve.py: serving" in lane.ok("logs", "demo").out  # kept after its death
    assert tasks(serve(lane)) == ["serve:demo"]
    assert lane.pid not in {0, pid}


def test_a_deleted_staged_file(lane: Demo):
    pid = lane.pid
    size = lane.staged.stat().st_size
    lane.staged.unlink()
    plan = stale(lane)
    assert plan[STAGE]["state"] == "run"
    (reason,) = plan[STAGE]["reasons"]
    assert lane.staged.name in reason["text"]
    assert plan[STAGE]["bytes"] == size
    assert plan["serve:demo"]["state"] == "maybe"
    assert plan["serve:demo"]["reasons"][0]["text"] == f"waits for {STAGE}"
    assert tasks(serve(lane)) == [STAGE]
    assert lane.staged.stat().st_size == size
    assert lane.pid == pid


def test_a_flipped_byte_moves_one_chunk(lane: Demo):
    pid, whole = lane.pid, sha256(lane.staged)
    flip(lane.staged, 5 * CHUNK + 17)
    assert sha256(lane.staged) != whole
    plan = stale(lane)
    (reason,) = plan[STAGE]["reasons"]
    assert lane.staged.name in reason["text"]
    assert "chunk 6 of 24" in reason["text"]  # counted from one
    assert plan[STAGE]["bytes"] == CHUNK
    (made,) = serve(lane)
    assert (made["task"], made["bytes"]) == (STAGE, CHUNK)
    assert sha256(lane.staged) == whole
    assert lane.pid == pid


def test_a_damaged_file_without_its_source_fetches_it_again(lane: Demo):
    whole = sha256(lane.staged)
    artifact = next(lane.artifacts.rglob("*.whl"))
    artifact.unlink()
    flip(lane.staged, 17)
    assert {task: goal["state"] for task, goal in stale(lane).items()} == {
        "artifact:demo:smollm2": "run",
        STAGE: "run",
        "serve:demo": "maybe",
    }
    assert tasks(serve(lane)) == ["artifact:demo:smollm2", STAGE]
    assert sha256(lane.staged) == whole


def test_an_edited_recipe_is_named_old_to_new_and_replaces_the_lane(lane: Demo):
    pid = lane.pid
    lane.edit('"--ctx", "8192"', '"--ctx", "4096"')
    goal = only(lane, "serve:demo")
    (reason,) = goal["reasons"]
    assert reason["part"] == "command"
    assert "8192" in reason["old"]
    assert "4096" in reason["new"]
    assert reason["text"] == f"command: {reason['old']} -> {reason['new']}"
    assert lane.status()["current"] is False
    assert tasks(serve(lane)) == ["serve:demo"]
    assert not is_alive(pid)
    assert "4096" in lane.record["argv"]


def test_an_edited_file_of_the_recipe_replaces_the_lane(lane: Demo):
    pid = lane.pid
    lane.edit("{%", "{# a remark #}{%", "recipes/demo/chat.jinja")
    (reason,) = only(lane, "serve:demo")["reasons"]
    assert reason["part"] == "files"
    assert tasks(serve(lane)) == ["serve:demo"]
    assert not is_alive(pid)


def test_an_edited_gate_is_checked_again_by_the_same_process(lane: Demo):
    pid = lane.pid
    lane.edit('prompt = "What is 2 + 2?"', 'prompt = "How much is 2 + 2?"')
    (reason,) = only(lane, "serve:demo")["reasons"]
    assert reason["part"] == "gates"
    assert "How much is" in reason["new"]
    since = lane.status()["since"]
    assert tasks(serve(lane)) == ["serve:demo"]
    assert lane.pid == pid
    assert lane.status()["since"] == since


def test_an_edited_image_file_builds_the_image_and_replaces_the_lane(lane: Demo):
    pid, image = lane.pid, lane.record["parts"]["image"]
    lane.edit('"""Serves one GGUF file', '"""Serves a GGUF file', "images/llamacpp/serve.py")
    plan = stale(lane)
    assert list(plan) == ["image:llamacpp", "serve:demo"]
    (reason,) = plan["image:llamacpp"]["reasons"]
    assert reason["part"] == "file serve.py"
    assert reason["old"] != reason["new"]
    assert plan["serve:demo"]["reasons"][0]["part"] == "image"
    assert tasks(serve(lane)) == ["image:llamacpp", "serve:demo"]
    assert not is_alive(pid)
    assert lane.record["parts"]["image"] != image


def test_a_damaged_file_of_the_image_is_named(lane: Demo):
    pid = lane.pid
    folder = lane.store / "images/llamacpp" / lane.record["parts"]["image"]
    path = next(folder.rglob("xllamacpp/__init__.py"))
    whole = sha256(path)
    path.rename(f"{path}.aside")
    (reason,) = stale(lane)["image:llamacpp"]["reasons"]
    assert reason["text"] == f"{path.relative_to(folder)} is missing"
    Path(f"{path}.aside").rename(path)
    assert stale(lane) == {}
    flip(path, 3)
    plan = stale(lane)
    assert {task: goal["state"] for task, goal in plan.items()} == {"image:llamacpp": "run", "serve:demo": "maybe"}
    (reason,) = plan["image:llamacpp"]["reasons"]
    assert reason["text"] == f"{path.relative_to(folder)} is not as it was built"
    assert tasks(serve(lane)) == ["image:llamacpp"]
    assert sha256(path) == whole
    assert lane.pid == pid


def test_a_hung_server_is_said_to_be_and_not_replaced(lane: Demo):
    pid = lane.pid
    os.kill(pid, signal.SIGSTOP)
    try:
        goal = only(lane, "serve:demo")
        assert f"process {pid} runs, but no answer on port" in goal["reasons"][0]["text"]
        assert lane.status()["state"].startswith("not answering")
    finally:
        os.kill(pid, signal.SIGCONT)
    assert stale(lane) == {}
    assert lane.pid == pid


def test_always_makes_everything_again(lane: Demo):
    pid = lane.pid
    before = len(lane.runs())
    lane.ok("run", "-a", "serve:demo")
    assert sorted(tasks([entry for entry in lane.runs()[before:] if entry["event"] == "made"])) == sorted(GOALS)
    assert not is_alive(pid)
    assert lane.engines() == [lane.pid]
    assert stale(lane) == {}


def test_a_protected_lane_is_not_replaced(lane: Demo):
    lane.edit('model_id = "smollm2-135m"\n', 'model_id = "smollm2-135m"\nprotect = true\n')
    pid = lane.pid
    lane.ok("serve:demo")  # protects the lane that runs
    assert lane.pid == pid
    assert lane.status()["protected"] is True
    protected = lane.read()
    lane.edit('"--ctx", "8192"', '"--ctx", "4096"')
    reasons = only(lane, "serve:demo")["reasons"]
    assert reasons[-1]["part"] == "protect"
    assert "doit stop:demo" in reasons[-1]["text"]
    done = lane.fails("serve:demo")
    assert "is protected and is not replaced" in done.text
    assert "doit stop:demo" in done.text
    assert lane.pid == pid
    (lane.root / RECIPE).write_text(protected)
    done = lane.fails("run", "-a", "-s", "serve:demo")
    assert "is protected" in done.text
    assert lane.pid == pid
    lane.restore()  # the recipe says so no longer, and nothing else changed: that may be noted
    lane.ok("serve:demo")
    assert lane.pid == pid
    assert lane.status()["protected"] is False
    (lane.root / RECIPE).write_text(protected)
    lane.ok("serve:demo")
    assert f"stopped process {pid}" in lane.ok("stop:demo").out
