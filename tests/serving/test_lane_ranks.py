"""Lanes of several ranks, decided from facts alone: all alive, some not, of other launches, silent, in the way."""

from __future__ import annotations

from typing import Any

import pytest

from sparkbuild.core.plan import OK, RUN, UNKNOWN
from sparkbuild.serving.judge import judge, steps
from sparkbuild.serving.lane import launch_parts
from sparkbuild.workspace.shapes.schema import Docker, Mount, SmokeGate
from tests.serving.lanes import FOREIGN, FOREIGN_TEXT, goal

Fact = dict[str, Any]
ALL = ("launch", "ready", "gates")
AGAIN = ("stop", *ALL)
ID = "0123456789abcdef" * 4


def record(rank: int = 0, **changes: Any) -> Fact:
    """What a container's launch is recorded as; that of rank 0 is served."""
    wanted = goal()
    fixed = {
        "runtime": "docker",
        "container": ID,
        "pid": 0,
        "launch": "l1",
        "rank": rank,
        "key": wanted.key.digest,
        "parts": wanted.key.parts,
        "model_id": "smollm2",
        "host": "10.0.0.1",
        "port": 0 if rank else 8000,
        "protect": False,
        "ready": None if rank else {"seconds": 2.0, "ttft": 0.1, "text": "hello"},
        "gates": None if rank else [{"id": "copy", "ok": True}],
        "served_at": None if rank else 1000.0,
        "stopped_at": None,
    }
    return {**fixed, **changes}


def lives(rank: int = 0, of: Fact | None = None, **changes: Any) -> Fact:
    serves = {"answers": not rank, "listening": not rank, "served_ids": ["smollm2"]}
    fixed = {"record": of or record(rank), "alive": True, "port_holder": None, "docker_problem": "", "left": []}
    return {**fixed, **serves, **changes}


def dead(rank: int = 0, *lines: str, of: Fact | None = None, state: str = "Exited (1) 5 seconds ago") -> Fact:
    return {**never(), "record": of or record(rank), "last_lines": list(lines), "state": state}


def never(**changes: Any) -> Fact:
    fixed = {"record": None, "alive": False, "answers": False, "listening": False, "docker_problem": "", "state": ""}
    return {**fixed, "left": [], "others": [], "stranger": "", **changes}


GONE = "container 0123456789ab is gone without having been stopped"
EXITED = f"{GONE} (Exited (1) 5 seconds ago)"
EDITED = record(parts=goal(port=9000).key.parts)
LAST = "last line of its log"
LEFT_ON = "a container of an earlier launch is left on"
LEFT = {"id": "f" * 64, "name": "sparkbuild-demo", "state": "created", "status": "Created"}

STARTED = "it was started again, by somebody else, at 2026-01-01 00:00:00 UTC"
RUNS = "container 0123456789ab runs, but"

# facts of dgx1 and dgx2, reasons (part, text), steps
TABLE: dict[str, tuple[Fact, Fact, list[tuple[str, str]], tuple[str, ...]]] = {
    "served": (lives(), lives(1), [], ()),
    "never": (never(), never(), [("lane", "not served yet")], ALL),
    "stopped": (
        dead(of=record(stopped_at=1700000000.0)),
        dead(1, of=record(1, stopped_at=1700000001.0)),
        [("lane", "was stopped at 2023-11-14 22:13:21 UTC")],
        ALL,
    ),
    "all died": (
        dead(0, "lost rank 1"),
        dead(1, "", "CUDA error ", " "),
        [
            (
                "lane",
                f"rank 0 on dgx1: {EXITED}; {LAST}: lost rank 1; rank 1 on dgx2: {EXITED}; {LAST}: CUDA error",
            )
        ],
        ALL,
    ),
    "one died, the other was never there": (
        never(),
        dead(1, "x"),
        [("lane", f"rank 1 on dgx2: {EXITED}; last line of its log: x")],
        ALL,
    ),
    "a worker died": (
        lives(),
        dead(1, "CUDA error"),
        [("rank", f"rank 1 on dgx2: {EXITED}; last line of its log: CUDA error")],
        AGAIN,
    ),
    "the head died": (dead(), lives(1), [("rank", f"rank 0 on dgx1: {EXITED}")], AGAIN),
    "a worker's container was removed": (
        lives(),
        dead(1, state=""),
        [("rank", f"rank 1 on dgx2: {GONE}")],
        AGAIN,
    ),
    "a worker was never launched": (lives(), never(), [("rank", "rank 1 on dgx2 was never launched")], AGAIN),
    "the head was never launched": (never(), lives(1), [("rank", "rank 0 on dgx1 was never launched")], AGAIN),
    "a worker of another launch": (
        lives(),
        lives(1, record(1, launch="l0")),
        [("rank", "rank 1 on dgx2 is of another launch")],
        AGAIN,
    ),
    "a worker of another launch, and edited": (
        lives(0, EDITED),
        lives(1, record(1, launch="l0")),
        [("rank", "rank 1 on dgx2 is of another launch"), ("port", "port: 9000 -> 8000")],
        AGAIN,
    ),
    "edited": (lives(0, EDITED), lives(1), [("port", "port: 9000 -> 8000")], AGAIN),
    "edited and protected": (
        lives(0, {**EDITED, "protect": True}),
        lives(1),
        [("port", "port: 9000 -> 8000"), ("protect", "the running lane is protected: doit stop:demo first")],
        AGAIN,
    ),
    "the head is gone, a protected worker is not": (
        never(),
        lives(1, record(1, protect=True)),
        [
            ("rank", "rank 0 on dgx1 was never launched"),
            ("protect", "the running lane is protected: doit stop:demo first"),
        ],
        AGAIN,
    ),
    "not ready": (
        lives(0, record(ready=None, served_at=None), answers=False),
        lives(1),
        [("ready", "container 0123456789ab runs, but was not ready when last looked at")],
        ("ready", "gates"),
    ),
    "hangs": (
        lives(0, answers=False, problem="no answer on port 8000: timed out"),
        lives(1),
        [("answers", "container 0123456789ab runs, but no answer on port 8000: timed out")],
        ("ready", "gates"),
    ),
    "gates failed": (
        lives(0, record(gates=[{"id": "copy", "ok": False}], served_at=None)),
        lives(1),
        [("gates", "gates failed: copy")],
        ("gates",),
    ),
    "no longer protected": (
        lives(0, record(protect=True)),
        lives(1),
        [("protect", "protect: true -> false")],
        ("protect",),
    ),
    "another lane on a node": (
        never(),
        never(others=["glm"]),
        [("lane", "not served yet"), ("occupied", "dgx2 serves lane glm: doit stop:glm")],
        ALL,
    ),
    "another lane that also has the port": (
        never(others=["glm"], port_holder={"pid": 5, "command": "x", "user": "ann", "lane": "glm"}),
        never(),
        [
            ("lane", "not served yet"),
            ("port", "port 8000 on dgx1 is held by lane glm (process 5 of ann): doit stop:glm"),
        ],
        ALL,
    ),
    "a lane of another store": (
        never(),
        never(foreign=[FOREIGN]),
        [("lane", "not served yet"), ("occupied", FOREIGN_TEXT)],
        ALL,
    ),
    "a container of another store on the head's port": (
        never(port_holder={"pid": 0, "command": "x", "user": "", "lane": "", "container": "sparkbuild-glm"}),
        never(),
        [("lane", "not served yet"), ("port", "port 8000 on dgx1 is held by container sparkbuild-glm")],
        ALL,
    ),
    "the recipe's own container on the head's port": (
        never(
            left=[{**LEFT, "state": "running", "status": "Up 2 minutes"}],
            port_holder={"pid": 0, "command": "x", "user": "", "lane": "demo", "container": "sparkbuild-demo"},
        ),
        never(),
        [
            ("lane", "not served yet"),
            ("left", f"{LEFT_ON} dgx1 and will be removed: sparkbuild-demo (ffffffffffff, Up 2 minutes)"),
        ],
        AGAIN,
    ),
    "a container of a lane of ours on the head's port": (
        never(port_holder={"pid": 0, "command": "x", "user": "", "lane": "glm", "container": "sparkbuild-glm"}),
        never(),
        [
            ("lane", "not served yet"),
            ("port", "port 8000 on dgx1 is held by lane glm (container sparkbuild-glm): doit stop:glm"),
        ],
        ALL,
    ),
    "a worker's port is nobody's business": (
        never(),
        never(port_holder={"pid": 5, "command": "x", "user": "ann", "lane": ""}),
        [("lane", "not served yet")],
        ALL,
    ),
    "a stranger": (
        never(),
        never(stranger="0123 of image x, running"),
        [
            ("lane", "not served yet"),
            (
                "stranger",
                "a container that is not ours has the name sparkbuild-demo on dgx2: 0123 of image x, running",
            ),
        ],
        ALL,
    ),
    "a leftover": (
        never(),
        never(left=[LEFT]),
        [
            ("lane", "not served yet"),
            (
                "left",
                f"{LEFT_ON} dgx2 and will be removed: sparkbuild-demo (ffffffffffff, Created)",
            ),
        ],
        AGAIN,
    ),
    "a leftover beside a dead lane": (
        dead(0, "x"),
        {**dead(1, "x"), "left": [{**LEFT, "state": "running", "status": ""}]},
        [
            ("lane", f"rank 0 on dgx1: {EXITED}; last line of its log: x; rank 1 on dgx2: {EXITED}; last line of "),
            ("left", "a container of an earlier launch is left on dgx2 and will be removed: "),
        ],
        AGAIN,
    ),
}
# facts of which no launch may follow: of dgx1 and dgx2, the reasons' texts
SILENT: dict[str, tuple[Fact, Fact, list[str]]] = {
    "a worker": (lives(), {"unreachable": "no route"}, ["dgx2 does not answer: no route"]),
    "the head": ({"unreachable": "no route"}, lives(1), ["dgx1 does not answer: no route"]),
    "all": (
        {"unreachable": "no route"},
        {"unreachable": "refused"},
        ["dgx1 does not answer: no route", "dgx2 does not answer: refused"],
    ),
    "docker of a worker": (
        lives(),
        {**dead(1), "docker_problem": "dockerd does not answer"},
        ["docker on dgx2: dockerd does not answer"],
    ),
    "docker where it was never launched": (
        never(docker_problem="no /var/run/docker.sock"),
        never(),
        ["docker on dgx1: no /var/run/docker.sock"],
    ),
    "a look that failed": (
        lives(),
        {"present": False, "problem": "PermissionError: lane.json"},
        ["dgx2 could not be looked at: PermissionError: lane.json"],
    ),
    "an answer without a word of it": (lives(), {}, ["dgx2 could not be looked at: it says nothing of the lane"]),
}


@pytest.mark.parametrize("name", TABLE)
def test_judge(name: str) -> None:
    one, two, reasons, todo = TABLE[name]
    fact = {"ranks": {"dgx1": one, "dgx2": two}}
    verdict = judge(goal(), fact, None)
    assert verdict.state == (RUN if reasons else OK)
    assert [reason.part for reason in verdict.reasons] == [part for part, _ in reasons]
    for reason, (_, text) in zip(verdict.reasons, reasons, strict=True):
        assert reason.text.startswith(text) if text.endswith(" ") else reason.text == text
    assert steps(goal(), fact) == todo
    assert bool(todo) == bool(reasons)


@pytest.mark.parametrize("name", SILENT)
def test_what_is_not_known_is_not_launched(name: str) -> None:
    one, two, texts = SILENT[name]
    verdict = judge(goal(), {"ranks": {"dgx1": one, "dgx2": two}}, None)
    assert verdict.state == UNKNOWN
    assert [reason.text for reason in verdict.reasons] == texts


def test_docker_does_not_matter_to_a_process_on_a_node_without_it() -> None:
    wanted = goal(("dgx1",), runtime="process")
    assert judge(wanted, never(docker_problem="no docker"), None).state == RUN
    in_docker = never(docker_problem="no docker", record=record())
    assert judge(wanted, in_docker, None).state == UNKNOWN, "the container of its last launch may run"


def test_what_is_told_of_a_lane_that_serves() -> None:
    verdict = judge(goal(), {"ranks": {"dgx1": lives(), "dgx2": lives(1)}}, None)
    assert "smollm2 at http://10.0.0.1:8000/v1 on dgx1, dgx2 since 1970-01-01" in verdict.told


def test_forcing() -> None:
    for one, two, todo in ((lives(), lives(1), AGAIN), (never(), never(), ALL), (dead(), lives(1), AGAIN)):
        assert steps(goal(), {"ranks": {"dgx1": one, "dgx2": two}}, force=True) == todo


CHANGES: dict[str, dict[str, Any]] = {
    "runtime": {"runtime": "process"},
    "model": {"model": "/srv/models/x"},
    "args": {"args": ("--tp", "2")},
    "head_args": {"head_args": ("-x",)},
    "worker_args": {"worker_args": ("--headless",)},
    "network": {"network": "none"},
    "mounts": {"mounts": (Mount("/srv/models", "/models"),)},
    "docker": {"docker": Docker(gpus=True)},
    "fabric": {"fabric": "10.0.0.0/24"},
    "nodes": {"nodes": ("dgx2", "dgx1")},
    "gates": {"gates": (SmokeGate(id="other", prompt="Say 43.", expect="43"),)},
}


@pytest.mark.parametrize("part", CHANGES)
def test_what_changes_the_key(part: str) -> None:
    old, new = goal().key.parts, goal(**CHANGES[part]).key.parts
    changed = {name for name in {*old, *new} if new.get(name) != old.get(name)}
    assert changed == ({"runtime", "docker"} if part == "runtime" else {part})
    assert (launch_parts(old) != launch_parts(new)) == (part != "gates")


def test_how_many_dead_containers_are_kept_changes_nothing_that_runs() -> None:
    assert goal(docker=Docker(keep=9)).key == goal().key
    assert goal(min_memory=1, wait=False, ready_timeout=1.0).key == goal().key


def test_the_goal() -> None:
    made = goal()
    assert made.nodes == made.pools == ("dgx1", "dgx2")
    assert str(made.uri) == "lane://pair/demo"
    assert [str(need.uri) for need in made.needs] == [
        *("image://dgx1/demo-ranks", "image://dgx2/demo-ranks"),
        *("staged://dgx1/demo/weights", "staged://dgx2/demo/weights"),
    ]


def test_a_rank_that_was_started_again_is_not_the_launch_that_was_checked() -> None:
    fact = {"ranks": {"dgx1": lives(), "dgx2": lives(1, again=STARTED)}}
    verdict = judge(goal(), fact, None)
    assert (verdict.state, [reason.text for reason in verdict.reasons]) == (
        RUN,
        [f"rank 1 on dgx2: {RUNS} {STARTED}"],
    )
    assert steps(goal(), fact) == AGAIN


def test_one_rank_that_was_started_again_has_its_gates_run_again() -> None:
    one = goal(("dgx1",))
    fact = lives(of=record(parts=one.key.parts, key=one.key.digest), answers=False, again=STARTED, problem=STARTED)
    verdict = judge(one, fact, None)
    assert (verdict.state, [reason.text for reason in verdict.reasons]) == (RUN, [f"{RUNS} {STARTED}"])
    assert steps(one, fact) == ("ready", "gates")


def test_a_paused_container_is_not_serving() -> None:
    one = goal(("dgx1",))
    served = record(parts=one.key.parts, key=one.key.digest)
    fact = lives(of=served, answers=False, again="it is paused", frozen=True, problem="it is paused")
    verdict = judge(one, fact, None)
    assert (verdict.state, [reason.text for reason in verdict.reasons]) == (RUN, [f"{RUNS} it is paused"])
    assert steps(one, fact) == AGAIN
