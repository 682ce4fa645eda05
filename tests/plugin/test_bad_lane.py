"""`doit` beside an engine that misbehaves: what is said, when, what runs on, and that no command is held up."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.bad_engine import ESCAPES, MARKUP, MODES
from tests.bad_lane import RECIPE, TASK, BadLane
from tests.engine import free_port
from tests.workspace_tool import Done, finish, until


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BadLane]:
    lane = BadLane(tmp_path_factory.mktemp("bad") / "ws")
    try:
        lane.ok("image:none")
        yield lane
    finally:
        lane.clean_up()


@pytest.fixture
def lane(made: BadLane) -> Iterator[BadLane]:
    made.port = free_port()
    made.recipe()
    yield made
    made(f"stop:{RECIPE}")


def says(done: Done, *texts: str) -> None:
    for text in texts:
        assert text in done.text, done


@pytest.mark.parametrize(
    ("mode", "texts"),
    [
        ("guarded", ("/v1/models answers 401", "wants a key")),
        ("html", ("answers with a page", "no engine with the API of OpenAI")),
    ],
)
def test_a_wait_that_cannot_end_well_ends_at_once(lane: BadLane, mode: str, texts: tuple[str, ...]) -> None:
    lane.recipe("--do", mode, ready_timeout=300.0)
    began = time.monotonic()
    says(lane.fails(TASK), "will not be ready by waiting; it is left running", f"doit stop:{RECIPE} ends it", *texts)
    assert time.monotonic() - began < 60
    assert lane.row()["state"] == "starting"
    lane.become("fine")
    assert "done  serve:bad" in lane.ok(TASK).out, "it was not launched anew"


def test_what_an_engine_answers_is_not_lost_when_the_time_is_over(lane: BadLane) -> None:
    """The last question has no time left: that it had no answer is no news of the engine."""
    lane.recipe("--do", "endless", ready_timeout=3.0)
    says(lane.fails(TASK), "was not ready after 3 s", "found:  an answer of more than 8 MiB")


def test_the_exit_of_a_single_rank_is_told(lane: BadLane) -> None:
    lane.recipe("--say", "loading", "--exit-after", "0.1", "--exit-code", "7", "--listen-after", "5")
    lane.recipe("--listen-after", "0", "--do", "503", "--exit-after", "0.3", "--exit-code", "7", "--say", "loading")
    says(lane.fails(TASK), "its process ended (exit code 7) before it was ready", "loading")
    lane.recipe("--do", "503", "--exit-after", "0.3", "--exit-code", "-11")
    says(lane.fails(TASK), "its process ended (killed by SIGSEGV) before it was ready")


def test_every_command_answers_beside_every_engine(lane: BadLane) -> None:
    lane.ok(TASK)
    for mode in sorted(set(MODES) - {"fine", "talkative"}):
        if mode.startswith("chat-"):
            continue
        lane.become(mode)
        began = time.monotonic()
        state = lane.row()["state"]
        assert state.startswith("not answering ("), (mode, state)
        assert time.monotonic() - began < 30
        (reason,) = lane.plan(TASK)[TASK]["reasons"]
        assert "runs, but" in reason["text"], mode
        assert reason["text"].isprintable()
    lane.become("deep-json")
    assert lane("health").code in {0, 1}
    lane.become("fine")
    assert lane.row()["state"] == "serving"


def test_a_lane_of_another_store_that_still_loads_holds_its_port(lane: BadLane, tmp_path: Path) -> None:
    """Nothing listens on the port yet: who was started to is told by recipe and store, before a second one is."""
    lane.recipe("--listen-after", "60", ready_timeout=120.0)
    process = lane.start(TASK)
    record = lane.store / f"lanes/{RECIPE}/lane.json"
    other = BadLane(tmp_path / "other")
    other.port = lane.port
    other.recipe()
    (other.root / f"recipes/{RECIPE}").rename(other.root / "recipes/second")
    other.ok("image:none")
    try:
        until(lambda: record.exists() and json.loads(record.read_text())["port"] == lane.port)
        until(lambda: f"is of lane {RECIPE} of another store ({lane.store})" in other("plan", "serve:second").out, 10)
        says(other.fails("serve:second"), f"is of lane {RECIPE} of another store ({lane.store})")
    finally:
        process.send_signal(signal.SIGINT)
        finish(process, 60)
        other.clean_up()


def test_a_gate_that_fails_of_odd_words_leaves_the_lane(lane: BadLane) -> None:
    """On a terminal, what an engine says is neither markup nor an escape of the terminal."""
    lane.ok(TASK)
    pid = lane.row()["pid"]
    path = lane.root / f"recipes/{RECIPE}/recipe.toml"
    path.write_text(path.read_text().replace('expect = "4"', 'expect = "5"'))
    for mode, said in (("chat-markup", MARKUP), ("chat-escapes", ESCAPES)):
        lane.become(mode)
        code, text = on_terminal(lane, TASK)
        assert code == 1, text
        assert "Traceback" not in text
        assert "MarkupError" not in text
        assert said not in text or mode == "chat-markup"
        assert "\x1b]0;" not in text
        assert lane.row()["pid"] == pid
    assert "[/INST]" in on_terminal(lane, TASK, mode="chat-markup")[1]


@pytest.mark.parametrize(
    ("how", "told"),
    [
        ("killed", f"lane {RECIPE}: its process ended (killed by SIGKILL) while its gates were asked"),
        ("stopped", f"lane {RECIPE} was stopped while its gates were asked"),
    ],
)
def test_a_lane_that_ends_while_its_gates_are_asked(lane: BadLane, how: str, told: str) -> None:
    """It does not run on, and nobody is told so."""
    lane.ok(TASK)
    path = lane.root / f"recipes/{RECIPE}/recipe.toml"
    path.write_text(path.read_text().replace('expect = "4"', 'expect = "5"'))
    lane.become("chat-silent")
    chats = lane.chats()
    process = lane.start(TASK)
    until(lambda: lane.chats() > chats)
    if how == "killed":
        os.kill(lane.row()["pid"], signal.SIGKILL)
    else:
        lane.ok(f"stop:{RECIPE}")
    done = finish(process, 60)
    assert done.code == 1
    says(done, told)
    assert "runs on" not in done.text


@pytest.mark.parametrize("mode", ["silent", "dribble", "chat-silent", "chat-dribble"])
def test_a_ctrl_c_hangs_up_on_an_engine_that_hangs_while_it_starts(lane: BadLane, mode: str) -> None:
    lane.recipe("--do", mode, ready_timeout=300.0)
    before = len(lane.runs())
    process = lane.start(TASK)
    until(lambda: any(entry["event"] == "start" for entry in lane.runs()[before:]))
    until(lambda: asked(lane) >= (3 if mode.startswith("chat-") else 1))
    says(interrupted(process), "was not ready: it was taken down")
    assert lane.row()["state"] == "did not start"


def test_a_ctrl_c_hangs_up_on_an_engine_that_hangs_at_a_gate(lane: BadLane) -> None:
    lane.ok(TASK)
    path = lane.root / f"recipes/{RECIPE}/recipe.toml"
    path.write_text(path.read_text().replace("timeout = 5.0", "timeout = 300.0"))
    lane.become("chat-silent")
    process = lane.start(TASK)
    assert process.stdout is not None
    assert any("gates 0/1" in line for line in process.stdout), "no gate was begun"
    says(interrupted(process), "the lane runs on without its gates")


def asked(lane: BadLane) -> int:
    """How many requests the engine had; 0 when there is none yet."""
    try:
        with urllib.request.urlopen(f"{lane.url}/asked", timeout=10) as answer:
            return int(json.load(answer))
    except OSError:
        return 0


def interrupted(process: subprocess.Popen[str]) -> Done:
    """What a started doit says at a ctrl-C, which ends it long before the 30 s that cleaning may take."""
    began = time.monotonic()
    process.send_signal(signal.SIGINT)
    done = finish(process, 60)
    assert time.monotonic() - began < 15, done
    assert done.code == 130, done
    return done


def test_an_error_of_the_engine_is_no_markup_while_it_starts(lane: BadLane) -> None:
    lane.recipe("--do", "chat-markup", ready_timeout=3.0)
    code, text = on_terminal(lane, TASK)
    assert code == 1
    assert "was not ready after 3 s; it is left running" in re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)
    assert lane.row()["state"] == "starting"


def on_terminal(lane: BadLane, *args: str, mode: str = "") -> tuple[int, str]:
    """Doit on a pseudo terminal: its code, and every byte that it wrote there."""
    if mode:
        lane.become(mode)
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "doit", *args]
    env = {**lane.env, "TERM": "xterm", "COLUMNS": "200"}
    process = subprocess.Popen(command, cwd=lane.root, env=env, stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    out = bytearray()
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        if select.select([ours], [], [], 0.2)[0]:
            try:
                block = os.read(ours, 65536)
            except OSError:
                break
            if not block:
                break
            out += block
        elif process.poll() is not None:
            break
    code = process.wait(timeout=30)
    os.close(ours)
    return code, out.decode(errors="replace")


def test_a_held_port_is_said_before_anything_is_made(lane: BadLane, tmp_path: Path) -> None:
    other = BadLane(tmp_path / "other")  # with no image yet
    holder = subprocess.Popen([sys.executable, "-S", "-m", "http.server", str(other.port), "--bind", "127.0.0.1"])
    try:
        deadline = time.monotonic() + 20
        while f"held by process {holder.pid}" not in (told := other("plan", TASK)).out:
            assert time.monotonic() < deadline, told
        assert "make it so" not in told.out
        says(other.fails(TASK), "lane bad cannot be launched", f"port {other.port} on local is held by process")
        assert not (other.store / "images").exists(), "nothing was built"
    finally:
        holder.kill()
        holder.wait()
        shutil.rmtree(other.root)
    assert lane.row()["state"] != "serving"


def test_a_lane_is_not_stopped_for_a_port_that_is_held(lane: BadLane) -> None:
    lane.ok(TASK)
    pid, port, free = lane.row()["pid"], lane.port, free_port()
    holder = subprocess.Popen([sys.executable, "-S", "-m", "http.server", str(free), "--bind", "127.0.0.1"])
    try:
        lane.port = free
        lane.recipe()
        deadline = time.monotonic() + 20
        while "is held by process" not in (told := lane("plan", TASK)).out:
            assert time.monotonic() < deadline, told
        says(lane.fails(TASK), f"port {free} on local is held by process {holder.pid}")
    finally:
        holder.kill()
        holder.wait()
    lane.port = port
    lane.recipe()
    assert (lane.row()["pid"], lane.row()["state"]) == (pid, "serving")


def test_memory_is_looked_at_when_a_lane_replaces_itself(lane: BadLane) -> None:
    lane.ok(TASK)
    pid = lane.row()["pid"]
    lane.recipe("--say", "another launch", more=f"min_memory = {1 << 50}")
    done = lane.fails(TASK)
    says(done, "of memory available", "wanted (min_memory)", "held by the lane that it replaces")
    assert lane.row()["pid"] == pid
