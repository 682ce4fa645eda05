from __future__ import annotations

import subprocess
import sys
from typing import Any

import msgspec
import pytest

from sparkbuild.bench.goal import judge
from sparkbuild.core.plan import OK, RUN
from tests.bench.examples import BENCH, goal
from tests.engine import ROOT


def report(**changes: Any) -> dict[str, Any]:
    wanted = goal()
    base = {
        "name": "2026-01-02_030405_demo",
        "path": "recipes/demo/reports/2026-01-02_030405_demo",
        "complete": True,
        "incomplete_because": [],
        "key": wanted.key.digest,
        "parts": wanted.key.parts,
        "lane": wanted.needs[0].key.parts,
    }
    return {**base, **changes}


def lines(wanted: Any, *reports: dict[str, Any]) -> tuple[str, list[str]]:
    verdict = judge(wanted, {"reports": list(reports)})
    return verdict.state, [reason.text for reason in verdict.reasons]


def test_the_goal():
    wanted = goal()
    assert wanted.task == "bench:demo"
    assert str(wanted.uri) == "report://local/demo/demo"
    assert str(goal(label="night").uri) == "report://local/demo/night"
    assert wanted.pools == ("bench", "node:local")
    assert goal(label="night").key == wanted.key  # the label names a report, it does not change what is measured


def test_never_run():
    assert lines(goal()) == (RUN, ["never run as `demo`"])


def test_complete():
    assert lines(goal(), report()) == (OK, ["complete: recipes/demo/reports/2026-01-02_030405_demo"])


def test_an_older_complete_report_with_the_key_is_enough():
    assert lines(goal(), report(), report(key="0", parts={}, lane={}))[0] == OK
    assert lines(goal(), report(), report(complete=False, incomplete_because=["x"]))[0] == OK


def test_incomplete():
    state, found = lines(goal(), report(complete=False, incomplete_because=["the run was interrupted"]))
    assert state == RUN
    path = "recipes/demo/reports/2026-01-02_030405_demo"
    assert found == [f"last run is incomplete: the run was interrupted ({path})"]


def test_broken():
    state, found = lines(goal(), {"name": "n", "path": "p/n", "broken": "manifest.json: No such file or directory"})
    assert (state, found) == (RUN, ["p/n cannot be read: manifest.json: No such file or directory"])


def test_the_lane_changed():
    state, found = lines(goal(lane={"port": 2, "model_id": "m"}), report())
    assert (state, found) == (RUN, ["lane port: 1 -> 2"])


def test_the_harness_changed():
    state, found = lines(goal(harness="h2"), report())
    assert state == RUN
    assert found[0].startswith("harness image: ")
    assert len(found) == 1


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"tool_eval": msgspec.structs.replace(BENCH.tool_eval, seed=7)}, "tool_eval seed: 42 -> 7"),
        ({"throughput": msgspec.structs.replace(BENCH.throughput, runs=5)}, "throughput runs: 1 -> 5"),
    ],
)
def test_the_settings_changed(changes: dict[str, Any], text: str):
    state, found = lines(goal(msgspec.structs.replace(BENCH, **changes)), report())
    assert (state, found) == (RUN, [text])


def test_a_table_was_removed():
    state, found = lines(goal(msgspec.structs.replace(BENCH, tool_eval=None)), report())
    assert state == RUN
    assert "tool_eval seed: 42 -> (none)" in found


def test_the_image_and_the_label_alone_change_no_key():
    other = msgspec.structs.replace(BENCH, label="x", image="y")
    assert goal(other).key == goal().key


def test_listing_tasks_loads_neither_the_http_client_nor_jinja():
    code = "import sys, sparkbuild.bench.kind as k; sys.exit(bool({'httpx', 'jinja2'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0
