from __future__ import annotations

import msgspec
import pytest

from sparkbuild.bench.complete import problems
from sparkbuild.bench.manifest import Cell, Pool, Scores, Speed
from sparkbuild.workspace.shapes.schema import Bench, Throughput, ToolEval

BENCH = Bench(
    image="harness",
    tool_eval=ToolEval(scenarios=("TC-01", "TC-02", "TC-11")),
    throughput=Throughput(tokenizer="t", prompt=(64,), generate=(8,), depth=(0,), concurrency=(1, 2), runs=2),
)
SCORES = Scores(Pool(3, 6, "x"), points=2, final_score=33, completion_rate=100, passed=1, partial=0, failed=2)
CELL = Cell(64, 8, 0, 1, prefill_tps=100.0, decode_tps=50.0, ttft_ms=10.0, runs=2)
SPEED = Speed((CELL, msgspec.structs.replace(CELL, concurrency=2)), failed=0)


def scores(**changes: object) -> Scores:
    return msgspec.structs.replace(SCORES, **changes)


def speed(**changes: object) -> Speed:
    return Speed((msgspec.structs.replace(CELL, **changes), SPEED.cells[1]), failed=0)


@pytest.mark.parametrize(
    ("found", "problem"),
    [
        (SCORES, ""),
        (scores(points=0, passed=0, failed=3), ""),  # a bad score is a complete one
        (None, "tool-eval-bench left no result"),
        (
            scores(completion_rate=66.7, failed=1, excluded=("TC-11",)),
            "tool-eval-bench completed 66.7 % of its scenarios; not scored: TC-11",
        ),
        (
            scores(completion_rate=0.0, passed=0, failed=3),
            "tool-eval-bench completed 0 % of its scenarios; not scored: which ones is not said",
        ),
        (scores(pool=Pool(0, 0, "x"), passed=0, failed=0), "tool-eval-bench ran no scenario"),
        (scores(pool=Pool(2, 4, "x"), failed=1), "tool-eval-bench ran 2 of 3 scenarios"),
        (scores(failed=1), "tool-eval-bench judged 2 of 3 scenarios"),
        (scores(status="interrupted"), "tool-eval-bench calls its run 'interrupted'"),
    ],
)
def test_scores(found: Scores | None, problem: str):
    assert problems(BENCH, found, SPEED) == ([problem] if problem else [])


@pytest.mark.parametrize(
    ("found", "problem"),
    [
        (SPEED, ""),
        (None, "llama-benchy left no result"),
        (msgspec.structs.replace(SPEED, failed=1), "llama-benchy: 1 request failed"),
        (msgspec.structs.replace(SPEED, failed=3), "llama-benchy: 3 requests failed"),
        (Speed(SPEED.cells[:1], failed=0), "llama-benchy pp64 tg8 @ d0 c2: not measured"),
        (speed(decode_tps=0.0), "llama-benchy pp64 tg8 @ d0 c1: decode is 0"),
        (speed(prefill_tps=0.0), "llama-benchy pp64 tg8 @ d0 c1: prefill is 0"),
        (speed(ttft_ms=float("nan")), "llama-benchy pp64 tg8 @ d0 c1: ttft is nan"),
        (speed(runs=1), "llama-benchy pp64 tg8 @ d0 c1: 1 of 2 runs"),
    ],
)
def test_speed(found: Speed | None, problem: str):
    assert problems(BENCH, SCORES, found) == ([problem] if problem else [])


def test_one_token_has_no_decode_speed():
    throughput = Throughput(tokenizer="t", prompt=(64,), generate=(1,), runs=2)
    cell = msgspec.structs.replace(CELL, generate=1, decode_tps=0.0)
    assert problems(Bench(image="h", throughput=throughput), None, Speed((cell,), failed=0)) == []


def test_what_was_not_asked_for_is_not_missed():
    assert problems(msgspec.structs.replace(BENCH, throughput=None), SCORES, None) == []


def test_nothing_is_never_complete():
    assert problems(Bench(image="harness"), None, None) == [
        "the recipe's [bench] asks for nothing: give it [bench.tool_eval] or [bench.throughput]"
    ]
