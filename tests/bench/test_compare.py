from __future__ import annotations

from typing import Any

import msgspec
import pytest

from sparkbuild.bench.compare import comparable
from sparkbuild.bench.goal import settings
from sparkbuild.bench.manifest import Engine, Pool, Program
from sparkbuild.core.key import Key
from tests.bench.examples import BENCH, manifest

SCORES = manifest().scores
assert SCORES is not None
OTHER = settings(msgspec.structs.replace(BENCH, tool_eval=msgspec.structs.replace(BENCH.tool_eval, max_turns=8)))


@pytest.mark.parametrize(
    ("changes", "reasons"),
    [
        ({}, []),
        # Another engine, model, image or recipe is what runs are compared for.
        ({"engine": Engine("http://h:1", "m", ("m",), "vllm", "1"), "lane_key": "x", "recipe": "other"}, []),
        (
            {"complete": False, "incomplete_because": ("the run was interrupted",)},
            ["second run demo of demo is incomplete: the run was interrupted"],
        ),
        ({"scores": None}, ["tool_eval: only in the first run"]),
        ({"speed": None}, ["throughput: only in the first run"]),
        (
            {"scores": msgspec.structs.replace(SCORES, pool=Pool(97, 194, "bb"))},
            ["scenario pool: 2 scenarios, 4 points -> 97 scenarios, 194 points"],
        ),
        ({"scores": msgspec.structs.replace(SCORES, pool=Pool(2, 4, "bb"))}, ["scenario pool: other ids"]),
        (
            {"harness": {**manifest().harness, "tool-eval-bench": Program("2.8.0", "2.8.0")}},
            ["tool-eval-bench: 3.0.0 -> 2.8.0"],
        ),
        ({"harness": {"llama-benchy": Program("0.4.0", "")}}, ["tool-eval-bench: 3.0.0 -> unknown"]),
        (
            {"settings": OTHER, "settings_fingerprint": Key(OTHER).digest},
            ["settings: tool_eval.max_turns: 2 -> 8"],
        ),
    ],
)
def test_reasons(changes: dict[str, Any], reasons: list[str]):
    assert comparable(manifest(), manifest(**changes)) == reasons


def test_an_incomplete_run_is_not_even_comparable_with_itself():
    run = manifest(complete=False, incomplete_because=())
    assert comparable(run, run) == [
        "first run demo of demo is incomplete: not said why",
        "second run demo of demo is incomplete: not said why",
    ]
