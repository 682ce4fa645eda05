"""Is a bench run complete? Decided on what was measured, never on exit codes alone: both harnesses lie with them."""

from __future__ import annotations

from itertools import product

from sparkbuild.bench.manifest import Cell, Scores, Speed
from sparkbuild.workspace.shapes.schema import Bench, Throughput, ToolEval


def problems(bench: Bench, scores: Scores | None, speed: Speed | None) -> list[str]:
    """What is missing, one line each; [] when everything that was asked for was measured."""
    found = []
    if bench.tool_eval is None and bench.throughput is None:
        found.append("the recipe's [bench] asks for nothing: give it [bench.tool_eval] or [bench.throughput]")
    if bench.tool_eval is not None:
        found += _scores(bench.tool_eval, scores)
    if bench.throughput is not None:
        found += _speed(bench.throughput, speed)
    return found


def _scores(settings: ToolEval, scores: Scores | None) -> list[str]:
    if scores is None:
        return ["tool-eval-bench left no result"]
    found = []
    if scores.completion_rate != 100:
        ids = ", ".join(scores.excluded) or "which ones is not said"
        found.append(f"tool-eval-bench completed {scores.completion_rate:g} % of its scenarios; not scored: {ids}")
    if scores.pool.count == 0:
        found.append("tool-eval-bench ran no scenario")
    elif settings.scenarios and scores.pool.count != len(set(settings.scenarios)):
        found.append(f"tool-eval-bench ran {scores.pool.count} of {len(set(settings.scenarios))} scenarios")
    seen = scores.passed + scores.partial + scores.failed + len(scores.excluded)
    if seen != scores.pool.count:
        found.append(f"tool-eval-bench judged {seen} of {scores.pool.count} scenarios")
    if scores.status != "completed":
        found.append(f"tool-eval-bench calls its run {scores.status!r}")
    return found


def _speed(settings: Throughput, speed: Speed | None) -> list[str]:
    if speed is None:
        return ["llama-benchy left no result"]
    found = []
    if speed.failed:
        found.append(f"llama-benchy: {speed.failed} {'request' if speed.failed == 1 else 'requests'} failed")
    have = {(cell.prompt, cell.generate, cell.depth, cell.concurrency): cell for cell in speed.cells}
    for wanted in product(settings.prompt, settings.generate, settings.depth, settings.concurrency):
        prompt, generate, depth, concurrency = wanted
        name = f"llama-benchy pp{prompt} tg{generate} @ d{depth} c{concurrency}"
        if wanted not in have:
            found.append(f"{name}: not measured")
        else:
            found += [f"{name}: {text}" for text in _cell(have[wanted], settings)]
    return found


def _cell(cell: Cell, settings: Throughput) -> list[str]:
    values = {"prefill": cell.prefill_tps, "ttft": cell.ttft_ms}
    if cell.generate > 1:  # one token has no time between tokens
        values["decode"] = cell.decode_tps
    found = [f"{name} is {value:g}" for name, value in values.items() if not value > 0]
    if cell.runs < settings.runs:
        found.append(f"{cell.runs} of {settings.runs} runs")
    return found
