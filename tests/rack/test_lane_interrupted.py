"""A ctrl-C, or the end of doit itself, in any phase of a launch: a lane that runs is left, or nothing is."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from tests.rack.lanes import RECIPE, STORE, Lanes, box, is_claimed, is_running, record, shell
from tests.workspace_tool import Done, finish, until

pytestmark = pytest.mark.usefixtures("possible")
LONG = pytest.mark.long  # a landing sees one moment of each sort, and the random ones of tests/campaign


def moments(*landing: str, long: tuple[str, ...]) -> list[object]:
    """Parameters: those of a landing, and those of the long tier."""
    return [*landing, *(pytest.param(moment, marks=LONG) for moment in long)]


TASK = f"serve:{RECIPE}"


def launching(lanes: Lanes) -> Lanes:
    """With a secret, so that there is one to be left; ranks that only live, and are waited for."""
    lanes.sleeping()
    lanes.edit("wait = false\n", "")
    lanes.serve_with('secrets = ["HUB_TOKEN"]')
    lanes.env["HUB_TOKEN"] = "hush"
    return lanes


def interrupted(process: subprocess.Popen[str], number: int = signal.SIGINT) -> Done:
    process.send_signal(number)
    done = finish(process, 60)
    assert "Traceback" not in done.text, done
    return done


def last_lines(done: Done) -> str:
    return "\n".join(done.out.splitlines()[-4:])


def drained(master: int) -> None:
    """Read what a terminal shows, so that writing to it never waits."""
    with contextlib.suppress(OSError):
        while os.read(master, 65536):
            pass


@pytest.mark.parametrize(
    "moment", moments("held", "created", "watched", long=("starting", "prepared", "head", "worker"))
)
def test_a_ctrl_c_before_it_is_ready_leaves_nothing(lanes: Lanes, moment: str) -> None:
    launching(lanes)
    done = interrupted(lanes.start_and_wait(moment))
    assert done.code == 130, done
    if moment in {"head", "worker", "watched"}:
        assert f"lane {RECIPE} was not ready: it was taken down on dgx1, dgx2" in last_lines(done)
    assert lanes.is_gone(), lanes.left()
    for node in lanes.nodes:
        assert not shell(node, "find /dev/shm -name HUB_TOKEN").strip()
    assert lanes.state() == "run"
    lanes.ok(TASK, "--no-wait")
    assert [is_running(node) for node in lanes.nodes] == [True, True], "nothing is in the way of the next"


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), pytest.param(signal.SIGHUP, 129, marks=LONG)])
def test_another_signal_does_the_same(lanes: Lanes, number: int, code: int) -> None:
    launching(lanes)
    assert interrupted(lanes.start_and_wait("worker"), number).code == code
    assert lanes.is_gone(), lanes.left()


def test_a_terminal_that_is_closed(lanes: Lanes) -> None:
    """Nobody sees what is written any more; the lane is taken down all the same."""
    launching(lanes)
    master, slave = os.openpty()
    command = ["setsid", "--ctty", sys.executable, "-m", "doit", TASK]
    process = subprocess.Popen(command, cwd=lanes.root, env=lanes.env, stdin=slave, stdout=slave, stderr=slave)
    try:
        os.close(slave)
        threading.Thread(target=drained, args=(master,), daemon=True).start()
        until(lambda: lanes.reached("watched") or process.poll() is not None, 60)
        os.close(master)
        assert process.wait(60) == 129
    finally:
        process.kill()
        process.wait()
    assert lanes.is_gone(), lanes.left()


@pytest.mark.parametrize("mode", [pytest.param(["-n", "0"], id="serial", marks=LONG), pytest.param([], id="threads")])
def test_a_second_ctrl_c_ends_at_once_and_says_what_it_leaves(lanes: Lanes, mode: list[str]) -> None:
    launching(lanes)
    lanes.edit("import time;", "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN);")
    process = lanes.start_and_wait("watched", "run", *mode, TASK)
    process.send_signal(signal.SIGINT)
    time.sleep(1.0)  # the containers are given stop_grace to end
    began = time.monotonic()
    process.send_signal(signal.SIGINT)
    done = finish(process, 60)
    assert time.monotonic() - began < 5
    assert done.code == 130, done
    assert "Traceback" not in done.text, done
    assert f"{TASK} was at work and was not cleaned up: doit status, doit stop:{RECIPE}" in last_lines(done)
    lanes.ok(f"stop:{RECIPE}")
    assert lanes.is_gone(), lanes.left()


@pytest.mark.parametrize("moment", ["loading", "gates"])
def test_a_ctrl_c_while_the_engine_starts_or_is_asked(lanes: Lanes, moment: str) -> None:
    done = interrupted(lanes.start_and_wait(moment))
    head = record(lanes.nodes[0])
    if head.get("ready") and is_running(lanes.nodes[0]):  # it answers: it is left
        assert is_running(lanes.nodes[1])
        assert done.code in {0, 130}, done
        assert lanes.row()["state"] in {"serving", "serving, gates not passed"}
        container = box(lanes.nodes[0])["Id"]
        lanes.ok(TASK)
        assert box(lanes.nodes[0])["Id"] == container, "serve goes on with it"
        return
    # also at the gates: the stop came before doit had heard that the readiness was noted
    assert done.code == 130, done
    assert lanes.is_gone(), lanes.left()
    assert lanes.state() == "run"


def test_a_ctrl_c_while_the_image_is_sent(lanes: Lanes) -> None:
    lanes.sleeping()
    lanes.ok("sync:demo-ranks")
    node = lanes.nodes[0]
    references = node.docker("images", "--format", "{{.Repository}}:{{.Tag}}", "sparkbuild/demo-ranks").out.split()
    for reference in references:
        node.docker("rmi", "--force", reference)  # also a name that a pull which was broken off has left

    def begun() -> int:
        return sum(entry["event"] == "start" and entry["task"] == "sync:demo-ranks:dgx1" for entry in lanes.runs())

    before = begun()
    process = lanes.start(TASK)
    until(lambda: begun() > before or process.poll() is not None)
    done = interrupted(process)
    assert done.code == 130, done
    assert lanes.is_gone(), lanes.left()
    assert lanes.state("sync:demo-ranks:dgx1") in {"run", "ok"}
    assert not record(node)
    assert lanes.ok(TASK)
    assert len(lanes.left()) == 2


@pytest.mark.parametrize("moment", moments("created", long=("prepared", "worker")))
def test_a_killed_doit_and_the_next_serve(lanes: Lanes, moment: str) -> None:
    """Nothing of it holds the nodes, and what it left is found: gone on with, or cleared."""
    launching(lanes)
    lanes.edit("[serve]\n", "[serve]\nwait = false\n")
    process = lanes.start_and_wait(moment)
    process.kill()
    finish(process)
    until(lambda: not any(is_claimed(node) for node in lanes.nodes), 10)
    left = [box(node).get("Id") for node in lanes.nodes]
    lanes.ok(TASK)
    assert sorted(lanes.left()) == sorted(
        [
            *(f"{node.name}: sparkbuild-{RECIPE} running" for node in lanes.nodes),
            *(f"{node.name}: {path}" for node in lanes.nodes for path in secrets(lanes, node.name)),
        ]
    )
    assert record(lanes.nodes[0])["launch"] == record(lanes.nodes[1])["launch"]
    assert [box(node)["Id"] == record(node)["container"] for node in lanes.nodes] == [True, True]
    if moment != "worker":
        assert [box(node)["Id"] for node in lanes.nodes] != left
    lanes.ok(f"stop:{RECIPE}")
    assert lanes.left() == []


def test_a_lane_whose_records_are_lost_is_found_by_its_containers(lanes: Lanes) -> None:
    """They hold the port; what is ours is ended, and served anew."""
    lanes.serve()
    before = [box(node)["Id"] for node in lanes.nodes]
    for node in lanes.nodes:
        shell(node, f"rm -rf {STORE}/lanes")
    left = [reason for reason in lanes.reasons() if reason.startswith("a container of an earlier launch is left")]
    assert len(left) == 2
    assert lanes.serve()["state"] == "serving"
    assert len(lanes.left()) == 2
    assert [box(node)["Id"] for node in lanes.nodes] != before
    for node in lanes.nodes:
        shell(node, f"rm -rf {STORE}/lanes")
    assert "stopped container" in lanes.ok(f"stop:{RECIPE}").out
    assert lanes.left() == []


def secrets(lanes: Lanes, name: str) -> list[str]:
    """The files of secrets of the launch that runs, one each."""
    node = next(node for node in lanes.nodes if node.name == name)
    launch = record(node)["launch"]
    found = shell(node, f"find /dev/shm -path '*/{launch}/*' -type f").split()
    assert len(found) == 1
    assert shell(node, f"ls {STORE}/lanes").split() == [RECIPE]
    return found
