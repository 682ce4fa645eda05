"""tool-eval-bench: its command line, its events, and its result."""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec

from sparkbuild.agent.wire.printable import one_line
from sparkbuild.bench.manifest import Pool, Scores
from sparkbuild.bench.target import BenchTarget
from sparkbuild.core.run import Progress
from sparkbuild.workspace.shapes.schema import ToolEval

PROGRAM = "tool-eval-bench"

_PRESETS: dict[str, tuple[str, ...]] = {"short": ("--short",), "standard": (), "hard": ("--hardmode",)}


def command(settings: ToolEval, target: BenchTarget, label: str, result: str) -> list[str]:
    """The command line; `result` is the JSON file to write. With it, events go to stderr as JSON lines."""
    selection = ("--scenarios", *settings.scenarios) if settings.scenarios else _PRESETS[settings.preset]
    argv = [target.python, "-I", "-m", "tool_eval_bench", "--base-url", target.base_url, "--model", target.model_id]
    argv += selection
    argv += ["--seed", str(settings.seed), "--temperature", "0", "--max-turns", str(settings.max_turns)]
    argv += ["--timeout", f"{settings.timeout:g}", "--label", label, "--json-file", result, "--output-dir", "runs"]
    if settings.backend_kwargs:
        argv += ["--backend-kwargs", msgspec.json.encode(settings.backend_kwargs, order="sorted").decode()]
    return argv


class Events:
    """Follows the events of a run: how far it is, and the last error it told."""

    def __init__(self) -> None:
        self.error = ""

    def take(self, line: str) -> Progress | None:
        """One line of output; a Progress when it says how far the run is. Lines that are no events are passed over."""
        try:
            event = msgspec.json.decode(line)
        except (msgspec.DecodeError, RecursionError):
            return None
        if not isinstance(event, dict):
            return None
        kind = event.get("event")
        if kind == "error":
            self.error = one_line(str(event.get("message") or event.get("error") or ""))
        if kind not in ("scenario_start", "scenario_result") or not isinstance(event.get("index"), int):
            return None
        done = event["index"] + (kind == "scenario_result")
        total = event.get("total")
        return Progress(f"{PROGRAM} {event.get('scenario_id', '')}", done, total, "scenarios")


def read(data: bytes) -> tuple[Scores, str]:
    """The scores in a result file, and the version of the program that wrote it.

    Keys as in schema_version "1". `completion_rate` is absent when it is 100. Raises ValueError for any other shape.
    """
    try:
        result = msgspec.json.decode(data)
        return _scores(result), str(result["tool_eval_bench_version"])
    except (KeyError, TypeError, AttributeError, OverflowError, RecursionError, msgspec.MsgspecError) as error:
        raise ValueError(f"not a result of {PROGRAM}: {type(error).__name__}: {error}") from error


def _scores(result: Any) -> Scores:
    scores = result["scores"]
    rows = scores["scenario_results"]
    excluded = tuple(sorted(str(item) for item in scores.get("excluded_scenarios") or ()))
    counted = [row["status"] for row in rows if row["scenario_id"] not in excluded]
    ids = sorted(str(row["scenario_id"]) for row in rows)
    pool = Pool(
        len(ids), int(scores["max_points"]), hashlib.sha256("".join(f"{i}\n" for i in ids).encode()).hexdigest()
    )
    return Scores(
        pool=pool,
        points=int(scores["total_points"]),
        final_score=int(scores["final_score"]),
        completion_rate=float(scores.get("completion_rate", 100)),
        passed=counted.count("pass"),
        partial=counted.count("partial"),
        failed=counted.count("fail"),
        excluded=excluded,
        safety_warnings=tuple(map(str, result.get("safety_warnings") or ())),
        median_turn_ms=scores.get("median_turn_ms"),
        config_fingerprint=str(result["config"].get("config_fingerprint", "")),
        status=str(result.get("status", "")),
    )
