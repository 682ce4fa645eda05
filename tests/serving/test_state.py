"""The state of a lane, from facts alone: what `doit status` says may never be more than what was seen."""

from __future__ import annotations

from typing import Any

import pytest

from sparkbuild.serving.ranks import Seen
from sparkbuild.serving.state import LaneState, state

Fact = dict[str, Any]
ID = "0123456789abcdef" * 4
PAIR = ["dgx1", "dgx2"]
AWAY: Fact = {"unreachable": "dgx1 cannot be reached"}
DOWN = "dockerd does not answer on /run/docker.sock: nothing within 5 s"


def record(rank: int = 0, **changes: Any) -> Fact:
    found = {"container": ID, "runtime": "docker", "launch": "l1", "rank": rank, "parts": {"nodes": PAIR}}
    serves = {"ready": {"seconds": 1.0}, "served_at": 60.0} if rank == 0 else {"ready": None, "served_at": None}
    return {**found, **serves, "port": 0 if rank else 8000, "launched_at": 9.0, "stopped_at": None, **changes}


def lives(rank: int = 0, of: Fact | None = None, **changes: Any) -> Fact:
    fixed = {"record": of or record(rank), "alive": True, "answers": rank == 0, "docker_problem": "", "left": []}
    return {**fixed, **changes}


def dead(rank: int = 0, of: Fact | None = None, **changes: Any) -> Fact:
    fixed = {"record": of or record(rank), "alive": False, "answers": False, "docker_problem": "", "left": []}
    return {**fixed, **changes}


def never(**changes: Any) -> Fact:
    return {"record": None, "alive": False, "answers": False, "docker_problem": "", "left": [], **changes}


def silent(of: Fact | None) -> Fact:
    """Docker does not answer: whether the container lives is not known, and `alive` says nothing."""
    return {**never(), "record": of, "docker_problem": DOWN}


def box(launch: str = "l1", where: str = "running") -> Fact:
    return {"id": ID, "name": "sparkbuild-demo", "state": where, "status": "Up 2 minutes", "launch": launch}


STOPPED = {"stopped_at": 99.0}
LOST = "container sparkbuild-demo runs on {} without a record"
ASKED = f"docker on {{}} cannot be asked: {DOWN}"

# facts of dgx1 and dgx2; the state; is there a rank whose record it is, and does it live
TABLE: dict[str, tuple[Fact, Fact, str, bool]] = {
    "serving": (lives(), lives(1), "serving", True),
    "gates": (lives(of=record(served_at=None)), lives(1), "serving, gates not passed", True),
    "starting": (lives(of=record(ready=None, served_at=None)), lives(1), "starting", True),
    "silent engine": (lives(answers=False, problem="/health answers 503"), lives(1),
                      "not answering (/health answers 503)", True),
    "deaf engine": (lives(answers=False), lives(1), "not answering (does not listen)", True),
    "never": (never(), never(), "not running", False),
    "stopped": (dead(of=record(**STOPPED)), dead(1, of=record(1, **STOPPED)), "stopped", False),
    "did not start": (dead(of=record(ready=None, **STOPPED)), dead(1), "did not start", False),
    "died": (dead(), dead(1), "dead (was not stopped)", False),
    "only a worker was recorded": (never(), dead(1), "dead (was not stopped)", False),
    "a worker died": (lives(), dead(1), "broken (rank 1 on dgx2 does not run)", True),
    "the head died": (dead(), lives(1), "broken (rank 0 on dgx1 does not run); rank 1 runs on dgx2", True),
    "another launch": (lives(), lives(1, record(1, launch="l0")),
                       "broken (rank 1 on dgx2 is of another launch)", True),
    # a node that does not answer
    "worker away": (lives(), AWAY, "serving; dgx2 does not answer", True),
    "head away": (AWAY, lives(1), "unknown (dgx1 does not answer); rank 1 runs on dgx2", True),
    "head away, worker dead": (AWAY, dead(1), "unknown (dgx1 does not answer); rank 1 on dgx2 does not run", False),
    "head away, never": (AWAY, never(), "unknown (dgx1 does not answer)", False),
    "never, worker away": (never(), AWAY, "unknown (dgx2 does not answer)", False),
    "both away": (AWAY, AWAY, "unknown (dgx1, dgx2 do not answer)", False),
    "ended, worker away": (dead(of=record(ready=None, **STOPPED)), AWAY, "did not start; dgx2 does not answer", False),
    "could not look": (lives(), {"problem": "no lanes"}, "serving; dgx2 cannot be looked at: no lanes", True),
    # docker that does not answer
    "docker down on the worker": (lives(), silent(record(1)), f"serving; {ASKED.format('dgx2')}", True),
    "docker down on the head": (silent(record()), lives(1),
                                f"unknown ({ASKED.format('dgx1')}); rank 1 runs on dgx2", True),
    "docker down on both": (silent(record()), silent(record(1)),
                            f"unknown ({ASKED.format('dgx1')}; {ASKED.format('dgx2')})", False),
    "docker down, no record": (silent(None), never(), f"unknown ({ASKED.format('dgx1')})", False),
    "one away, one without docker": (AWAY, silent(record(1)),
                                     f"unknown (dgx1 does not answer; {ASKED.format('dgx2')})", False),
    # records that are gone
    "no records": (never(left=[box()]), never(left=[box()]),
                   f"unrecorded ({LOST.format('dgx1')}, {LOST.format('dgx2')})", False),
    "no record of the head": (never(left=[box()]), lives(1),
                              f"unrecorded ({LOST.format('dgx1')}); rank 1 runs on dgx2", True),
    "no record of the worker": (lives(), never(left=[box()]), f"serving; {LOST.format('dgx2')}", True),
    "an older worker": (lives(), never(left=[box("l0")]),
                        f"broken (rank 1 on dgx2 does not run); {LOST.format('dgx2')}", True),
    "no record, worker away": (never(left=[box()]), AWAY,
                               f"unrecorded ({LOST.format('dgx1')}); dgx2 does not answer", False),
    "one that was only created": (never(left=[box(where="created")]), never(), "not running", False),
    "another user's": (never(foreign=[{"recipe": "demo"}]), never(),
                       "not running; another store's lane of this recipe runs on dgx1", False),
    "another recipe": (never(foreign=[{"recipe": "else"}]), never(), "not running", False),
    # nodes and clusters that were changed under it
    "swapped": (lives(1), lives(0, record(parts={"nodes": ["dgx2", "dgx1"]})),
                "serving; launched on dgx2, dgx1", True),
    "was on another head": (never(), lives(1, record(1, parts={"nodes": ["dgx9", "dgx2"]})),
                            "unknown (rank 1 of a launch on dgx9, dgx2 runs on dgx2; dgx9 was not looked at)", True),
    "was on another worker": (lives(of=record(parts={"nodes": ["dgx1", "dgx9"]})), never(),
                              "serving; launched on dgx1, dgx9, and dgx9 was not looked at", True),
}  # fmt: skip


def seen(*facts: Fact) -> tuple[Seen, ...]:
    return tuple(Seen(rank, f"dgx{rank + 1}", fact) for rank, fact in enumerate(facts))


@pytest.mark.parametrize("name", TABLE)
def test_of_two_nodes(name: str) -> None:
    head, worker, text, alive = TABLE[name]
    found = state("demo", seen(head, worker), "docker", ("dgx1", "dgx2"))
    assert found.text == text
    assert found.alive is alive
    assert (found.record is not None) or not alive


def of_one(fact: Fact, runtime: str = "process") -> LaneState:
    return state("demo", seen(fact), runtime, ("dgx1",))


def test_a_process_needs_no_docker() -> None:
    own = record(container="", runtime="process", parts={})
    assert of_one({**lives(of=own), "docker_problem": DOWN}).text == "serving"
    assert of_one({**never(), "docker_problem": DOWN}).text == "not running"


def test_a_process_that_was_a_container_may_still_be_one() -> None:
    assert of_one(silent(record())).text == f"unknown ({ASKED.format('dgx1')})"


def test_a_cluster_that_was_made_smaller() -> None:
    assert of_one(lives(), "docker").text == "serving; launched on dgx1, dgx2, and dgx2 was not looked at"
    found = state("demo", (Seen(0, "dgx2", lives(1)),), "docker", ("dgx2",))
    assert found.text == "unknown (rank 1 of a launch on dgx1, dgx2 runs on dgx2; dgx1 was not looked at)"
    assert (found.node, found.nodes) == ("dgx2", ("dgx1", "dgx2"))


@pytest.mark.parametrize(
    ("facts", "text", "node"),
    [
        ((AWAY, never(), lives(of=record(parts={}))), "serving", "dgx3"),
        ((never(), AWAY, dead(of=record(parts={}, **STOPPED))), "stopped; dgx2 does not answer", "dgx3"),
        ((AWAY, never(), never()), "unknown (dgx1 does not answer)", "dgx1"),
        ((never(), never()), "not running", "dgx1"),
        ((lives(), dead(1), never()), "broken (rank 1 on dgx2 does not run)", "dgx1"),
        ((never(), never(left=[box()])), f"unrecorded ({LOST.format('dgx2')})", "dgx2"),
        # a node without docker holds no lane that nobody knows of
        (({**never(), "docker_problem": DOWN}, never()), "not running", "dgx1"),
    ],
)
def test_of_a_recipe_that_cannot_be_read(facts: tuple[Fact, ...], text: str, node: str) -> None:
    found = state("demo", seen(*facts), "")
    assert (found.text, found.node) == (text, node)


@pytest.mark.parametrize(
    ("facts", "text"),
    [
        ((never(), lives(), lives(1)), "serving; launched on dgx2, dgx3"),
        ((never(), lives(), dead(1)), "broken (rank 1 on dgx3 does not run); launched on dgx2, dgx3"),
        ((never(), AWAY, lives(1)), "unknown (dgx2 does not answer); rank 1 of a launch on dgx2, dgx3 runs on dgx3"),
        ((lives(of=record(parts={})), AWAY, never()), "serving"),
        ((never(), AWAY, AWAY), "unknown (dgx2, dgx3 do not answer)"),
    ],
)
def test_nodes_that_the_recipe_has_no_more(facts: tuple[Fact, ...], text: str) -> None:
    before = {"nodes": ["dgx2", "dgx3"]}
    for fact in facts[1:]:
        if fact.get("record"):
            fact["record"]["parts"] = before
    assert state("demo", seen(*facts), "docker", ("dgx1",)).text == text
