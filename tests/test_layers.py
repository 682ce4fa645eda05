"""The layers of tests, and what `./doitw test --changed` chooses."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests import chosen, layers

TESTS = Path(__file__).parent


@pytest.mark.parametrize(
    ("path", "layer"),
    {
        "core/test_key.py": "unit",
        "agent/stage/test_stage.py": "agent",
        "agent/rows/test_rows.py": "unit",
        "plugin/test_demo.py": "slow",
        "campaign/test_campaign.py": "rack",
        "rack/test_sync.py": "rack",
    }.items(),
)
def test_the_layer_of_a_file(path: str, layer: str) -> None:
    assert (TESTS / path).is_file()
    assert layers.layer(path) == layer


def test_what_has_a_layer_is_there() -> None:
    gone = [path for path in layers.named() if not (TESTS / path).is_dir() and not (TESTS / f"{path}.py").is_file()]
    assert gone == []


@pytest.mark.parametrize(
    "start",
    [
        lambda: subprocess.run(["true"], check=False),
        lambda: os.fork(),  # noqa: PLW0108 - what stands there by then
        lambda: os.system("true"),
    ],
)
def test_a_process_is_refused(start: object) -> None:
    with layers.no_process() as refused, pytest.raises(AssertionError, match="of the layer unit starts"):
        start()  # type: ignore[operator]
    assert len(refused) == 1


def test_this_test_is_refused_one_too(request: pytest.FixtureRequest) -> None:
    assert request.node.get_closest_marker("unit")
    assert subprocess.Popen._execute_child.__name__ == "refuse"


def test_only() -> None:
    assert layers.only(["-q", "-m", "unit"]) == "unit"
    assert layers.only(["-m", f"rack{layers.NOT_LONG}"]) == "rack"
    assert layers.only(["-m", "not rack"]) == layers.only(["-m"]) == layers.only([]) == ""


def test_a_change_reaches_what_is_above_it() -> None:
    known = chosen.imports()
    low = set(chosen.reaching(["sparkbuild/agent/stage/assess.py"], known))
    assert {"tests/agent/stage/test_stage.py", "tests/agent/evict/test_evict.py"} <= low
    assert not [path for path in low if path.startswith(("tests/gates/", "tests/rack/test_lane", "tests/core/"))]
    gate = set(chosen.reaching(["sparkbuild/gates/smoke.py"], known))
    assert {"tests/gates/test_smoke.py", "tests/plugin/test_demo.py"} <= gate
    assert not [path for path in gate if path.startswith("tests/agent/")]
    assert chosen.reaching(["tests/plugin/models.py"], known)
    assert chosen.reaching(["docs/gates.md"], known) == []
    assert chosen.reaching(["doitw"], known) == ["tests/doitw"]
