"""What a signal ended is known afterwards, so that the last line can name it."""

from __future__ import annotations

import io
from types import SimpleNamespace
from typing import Any

import pytest

from sparkbuild.core.interrupt import Cancel, Interrupted
from sparkbuild.plugin.adapters.goalaction import came_with
from sparkbuild.plugin.adapters.reporter import Reporter
from tests.core.test_plan import goal


def test_what_was_ended() -> None:
    cancel = Cancel()
    with cancel.working("image:done"):
        pass
    with pytest.raises(Interrupted), cancel.working("image:tiny"):
        raise Interrupted(130)
    with pytest.raises(OSError, match="x"), cancel.working("image:failed"):
        raise OSError("x")
    assert (cancel.ended, cancel.cut) == (["image:tiny"], [])


@pytest.mark.parametrize(
    ("interrupted", "made", "start", "end"),
    [
        ({}, 2, "2 made; ", " s"),
        ({"image:tiny": ""}, 0, "interrupted in image:tiny; ", "and the same command goes on"),
        ({"a": "left", "b": ""}, 1, "interrupted in a (left), b; 1 made; ", "what was finished is kept"),
        ({}, 0, "", ""),
    ],
)
def test_the_last_line(interrupted: dict[str, str], made: int, start: str, end: str) -> None:
    out = io.StringIO()
    reporter = Reporter(out, {})
    reporter.interrupted = interrupted
    task: Any = SimpleNamespace(name="x", actions=["x"], result="", meta={})
    for _ in range(made):
        reporter.add_success(task)
    reporter.complete_run()
    last = next(reversed(out.getvalue().splitlines()), "")
    assert last.startswith(start)
    assert end in last


def test_what_came_with_a_step_of_the_same_run() -> None:
    base = goal("base")
    built = goal("built", base)
    synced = goal("synced", built)
    assert came_with(synced, {}) == ""
    assert came_with(synced, {built.target: (1.0, 1), base.target: (1.0, 1)}) == built.task
    assert came_with(synced, {base.target: (1.0, 1)}) == base.task
    assert came_with(synced, {synced.target: (1.0, 1)}) == ""
