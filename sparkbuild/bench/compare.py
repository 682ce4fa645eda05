"""May two runs be compared? Reasons why not."""

from __future__ import annotations

from sparkbuild.bench.manifest import Manifest, Program
from sparkbuild.core.reasons import differences


def comparable(a: Manifest, b: Manifest) -> list[str]:
    """Reasons why the numbers of two runs may not be set side by side; [] when they may.

    Engine, image and model may differ: comparing those is the point. The harness's own config fingerprint is not
    used here, since the address of the server and the engine's version are part of it.
    """
    found = [
        f"{name} run {run.label} of {run.recipe} is incomplete: {'; '.join(run.incomplete_because) or 'not said why'}"
        for name, run in (("first", a), ("second", b))
        if not run.complete
    ]
    for part, one, other in (("tool_eval", a.scores, b.scores), ("throughput", a.speed, b.speed)):
        if (one is None) != (other is None):
            found.append(f"{part}: only in the {'second' if one is None else 'first'} run")
    if a.scores is not None and b.scores is not None and a.scores.pool != b.scores.pool:
        pools = [f"{run.pool.count} scenarios, {run.pool.max_points} points" for run in (a.scores, b.scores)]
        found.append(f"scenario pool: {pools[0]} -> {pools[1]}" if pools[0] != pools[1] else "scenario pool: other ids")
    for program in sorted({*a.harness, *b.harness}):
        versions = [_version(run.harness.get(program, Program())) for run in (a, b)]
        if versions[0] != versions[1]:
            found.append(f"{program}: {versions[0]} -> {versions[1]}")
    if a.settings_fingerprint != b.settings_fingerprint:
        found += [f"settings: {reason.text}" for reason in differences(_flat(a), _flat(b))]
    return found


def _version(program: Program) -> str:
    return program.reported or program.installed or "unknown"


def _flat(run: Manifest) -> dict[str, object]:
    return {
        f"{table}.{name}": value for table, values in run.settings.items() for name, value in (values or {}).items()
    }
