"""Runs the gates of a recipe against a served model: all of them, then one error that names every failure."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import msgspec

from sparkbuild.core.errors import GateError
from sparkbuild.gates import smoke, tools
from sparkbuild.gates.chat import chat
from sparkbuild.gates.result import GateResult
from sparkbuild.workspace.shapes.schema import Gate, SmokeGate


def check(
    gates: Sequence[Gate],
    base_url: str,
    model_id: str,
    note: Callable[[str], None],
    progress: Callable[[int, int], None],
) -> tuple[GateResult, ...]:
    """Run every gate; `base_url` without /v1. `note` gets one line per gate, `progress` (gates done, gates in all).

    Raises GateError listing the gates that failed, with the answer and the expected value of each.
    """
    results: list[GateResult] = []
    for gate in gates:
        progress(len(results), len(gates))
        result = run(gate, base_url, model_id)
        note(summary(result))
        results.append(result)
    progress(len(results), len(gates))
    error = failures(results, base_url, model_id)
    if error is not None:
        error.results = tuple(results)
        raise error
    return tuple(results)


def run(gate: Gate, base_url: str, model_id: str) -> GateResult:
    """Ask one gate's question and judge the reply; a server that does not answer properly is a failure as well."""
    began = time.monotonic()
    try:
        if isinstance(gate, SmokeGate):
            result = smoke.grade(gate, chat(base_url, smoke.body(gate, model_id), gate.timeout))
        else:
            result = tools.grade(gate, chat(base_url, tools.body(gate, model_id), gate.timeout))
    except GateError as error:
        kind = "smoke" if isinstance(gate, SmokeGate) else "tool"
        expected = gate.expect if isinstance(gate, SmokeGate) else gate.tool
        result = GateResult(gate.id, kind, ok=False, answer="", expected=expected, message=error.what)
    return msgspec.structs.replace(result, seconds=round(time.monotonic() - began, 3))


def summary(result: GateResult) -> str:
    """One line of the log."""
    if result.ok:
        return f"gate {result.id}: ok in {result.seconds:.1f} s: {result.answer}"
    return f"gate {result.id}: FAILED: {result.message}; answer: {result.answer or '(none)'}"


def failures(results: Sequence[GateResult], base_url: str, model_id: str) -> GateError | None:
    """The error that names every gate that failed; None when all passed."""
    failed = [result for result in results if not result.ok]
    if not failed:
        return None
    found, wanted = [], []
    for result in failed:
        found.append(f"{result.id}: {result.message}")
        found.append(f"  answer: {result.answer or '(none)'}")
        wanted.append(f"{result.id}: {result.expected}")
    names = ", ".join(result.id for result in failed)
    plural = "gate" if len(results) == 1 else "gates"
    return GateError(
        f"{model_id} failed {len(failed)} of {len(results)} {plural}: {names}",
        where=base_url,
        found="\n".join(found),
        wanted="\n".join(wanted),
    )
