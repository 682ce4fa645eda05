"""Runs the gates of a recipe against a served model: all of them, then one error that names every failure."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import msgspec

from sparkbuild.core.errors import GateError
from sparkbuild.core.units import count
from sparkbuild.gates import smoke, tools
from sparkbuild.gates.chat import GateResult, chat, question
from sparkbuild.workspace.shapes.schema import Gate, SmokeGate


def check(
    gates: Sequence[Gate],
    base_url: str,
    model_id: str,
    note: Callable[[str], None],
    progress: Callable[[int, int], None],
) -> tuple[GateResult, ...]:
    """Run every gate; `base_url` without /v1. `note` gets one line per gate, `progress` (gates done, gates in all)."""
    results: list[GateResult] = []
    for gate in gates:
        progress(len(results), len(gates))
        result = _asked(gate, base_url, model_id)
        outcome = f"ok in {result.seconds:.1f} s: {result.answer}"
        if not result.ok:
            outcome = f"FAILED: {result.message}; answer: {result.answer or '(none)'}"
        note(f"gate {result.id}: {outcome}")
        results.append(result)
    progress(len(results), len(gates))
    if not all(result.ok for result in results):
        raise _failure(results, base_url, model_id)
    return tuple(results)


def _asked(gate: Gate, base_url: str, model_id: str) -> GateResult:
    """Ask one gate's question and judge the reply; a server that does not answer properly is a failure as well."""
    began = time.monotonic()
    try:
        if isinstance(gate, SmokeGate):
            result = smoke.grade(gate, chat(base_url, question(gate, model_id), gate.timeout))
        else:
            result = tools.grade(gate, chat(base_url, tools.body(gate, model_id), gate.timeout))
    except GateError as error:
        kind, expected = ("smoke", gate.expect) if isinstance(gate, SmokeGate) else ("tool", gate.tool)
        result = GateResult(gate.id, kind, ok=False, answer="", expected=expected, message=error.what)
    return msgspec.structs.replace(result, seconds=round(time.monotonic() - began, 3))


def _failure(results: Sequence[GateResult], base_url: str, model_id: str) -> GateError:
    failed = [result for result in results if not result.ok]
    answers = [f"{result.id}: {result.message}\n  answer: {result.answer or '(none)'}" for result in failed]
    error = GateError(
        f"{model_id} failed {len(failed)} of {count(len(results), 'gate')}: {', '.join(gate.id for gate in failed)}",
        where=base_url,
        found="\n".join(answers),
        wanted="\n".join(f"{result.id}: {result.expected}" for result in failed),
    )
    error.results = tuple(results)
    return error
