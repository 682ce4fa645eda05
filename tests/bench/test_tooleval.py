from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest

from sparkbuild.bench.target import BenchTarget
from sparkbuild.bench.tooleval import Events, command, read
from sparkbuild.core.run import Progress
from sparkbuild.workspace.shapes.schema import ToolEval

TARGET = BenchTarget("http://h:1", "m", "/py", "/files")


def after(argv: list[str], flag: str) -> str:
    return argv[argv.index(flag) + 1]


def test_the_command_line():
    argv = command(ToolEval(max_turns=3, backend_kwargs={"max_tokens": 128}), TARGET, "night", "/out.json")
    assert argv[:4] == ["/py", "-I", "-m", "tool_eval_bench"]
    assert "--short" in argv
    assert after(argv, "--base-url") == "http://h:1"
    assert after(argv, "--model") == "m"
    assert after(argv, "--seed") == "42"
    assert after(argv, "--temperature") == "0"
    assert after(argv, "--max-turns") == "3"
    assert after(argv, "--timeout") == "120"
    assert after(argv, "--label") == "night"
    assert after(argv, "--json-file") == "/out.json"
    assert json.loads(after(argv, "--backend-kwargs")) == {"max_tokens": 128}


@pytest.mark.parametrize(
    ("settings", "present", "absent"),
    [
        (ToolEval(preset="standard"), [], ["--short", "--hardmode", "--scenarios", "--backend-kwargs"]),
        (ToolEval(preset="hard"), ["--hardmode"], ["--short"]),
        (ToolEval(scenarios=("TC-01", "TC-11")), ["--scenarios", "TC-01", "TC-11"], ["--short"]),
    ],
)
def test_what_is_selected(settings: ToolEval, present: list[str], absent: list[str]):
    argv = command(settings, TARGET, "l", "r")
    assert all(word in argv for word in present)
    assert not any(word in argv for word in absent)


def test_events():
    events = Events()
    start = {"event": "scenario_start", "scenario_id": "TC-02", "index": 1, "total": 15}
    assert events.take(json.dumps(start)) == Progress("tool-eval-bench TC-02", 1, 15, "scenarios")
    end = {"event": "scenario_result", "scenario_id": "TC-02", "index": 1, "total": 15, "points": 2}
    assert events.take(json.dumps(end)) == Progress("tool-eval-bench TC-02", 2, 15, "scenarios")
    for line in ("", "Traceback", "[1]", '{"event": "log", "message": "x"}', '{"event": "scenario_start"}'):
        assert events.take(line) is None
    assert events.error == ""
    assert events.take('{"event": "error", "error": "connection_failed", "message": "no route"}') is None
    assert events.error == "no route"


def result(**scores: Any) -> dict[str, Any]:
    rows = [{"scenario_id": i, "status": s} for i, s in (("TC-02", "pass"), ("TC-01", "fail"), ("TC-11", "partial"))]
    base = {"total_points": 3, "max_points": 6, "final_score": 50, "scenario_results": rows, "median_turn_ms": 9.5}
    return {
        "tool_eval_bench_version": "3.0.0",
        "status": "completed",
        "safety_warnings": ["TC-51"],
        "config": {"config_fingerprint": "abc"},
        "scores": {**base, **scores},
    }


def test_a_result_without_a_completion_rate_is_whole():
    scores, version = read(json.dumps(result()).encode())
    assert version == "3.0.0"
    assert scores.completion_rate == 100
    assert (scores.passed, scores.partial, scores.failed) == (1, 1, 1)
    assert (scores.pool.count, scores.pool.max_points) == (3, 6)
    assert scores.pool.sha256 == hashlib.sha256(b"TC-01\nTC-02\nTC-11\n").hexdigest()
    assert scores.safety_warnings == ("TC-51",)
    assert scores.config_fingerprint == "abc"


def test_what_the_server_spoilt_is_not_the_models_failure():
    data = result(completion_rate=66.7, excluded_scenarios=["TC-01"], max_points=4)
    scores, _ = read(json.dumps(data).encode())
    assert scores.completion_rate == 66.7
    assert scores.excluded == ("TC-01",)
    assert scores.failed == 0


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"{}", b"null", b'{"scores": {}}', b'{"scores": 3}'])
def test_no_result(data: bytes):
    with pytest.raises(ValueError, match="not a result of tool-eval-bench"):
        read(data)
