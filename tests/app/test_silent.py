"""One error for all goals of nodes that say nothing: each node once, however many goals are on it."""

from __future__ import annotations

import pytest

from sparkbuild.app.silent import silent
from sparkbuild.core.goal import Goal, Uri
from sparkbuild.core.key import Key
from sparkbuild.core.plan import MAYBE, OK, RUN, UNKNOWN, Step, Verdict
from sparkbuild.core.reasons import Reason

AWAY = Reason("node", "dgx2 does not answer: cannot reach it\n  found:  no route")
DOCKER = Reason("docker", "docker on dgx1: it is down")
WAITS = Reason("needed", "waits to see dgx2")


def step(task: str, state: str, *reasons: Reason) -> Step:
    goal = Goal(task=task, uri=Uri("image", "dgx2", task), key=Key({}), doc="")
    return Step(goal, state, reasons, 0, Verdict(state, reasons))


@pytest.mark.parametrize("states", [(), (OK,), (RUN, MAYBE, OK)])
def test_all_is_known(states: tuple[str, ...]) -> None:
    assert silent([step("a", state) for state in states]) is None


def test_each_node_once() -> None:
    steps = [step(f"stage:demo:{number}", UNKNOWN, AWAY) for number in range(6)]
    error = silent([step("image:a", RUN), step("artifact:x", UNKNOWN, WAITS), *steps, step("b", UNKNOWN, AWAY, DOCKER)])
    assert error is not None
    tasks = "stage:demo:0, stage:demo:1, stage:demo:2, stage:demo:3 and 3 more"
    assert error.what == f"nothing is made: the state of {tasks} is not known"
    assert error.found == f"{AWAY.text}\n{DOCKER.text}"
