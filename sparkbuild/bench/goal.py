"""The report of a recipe as a goal: what it depends on, and whether one that fits is there."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import msgspec

from sparkbuild.bench.manifest import Parts
from sparkbuild.bench.observe import Report, Reports
from sparkbuild.core.goal import Goal, Input, Uri
from sparkbuild.core.key import Key
from sparkbuild.core.plan import OK, RUN, Verdict
from sparkbuild.core.reasons import Reason, differences
from sparkbuild.workspace.shapes.schema import Bench


class BenchSpec(msgspec.Struct, frozen=True):
    """One bench. `folder` is the recipe's, relative to the workspace; `locks` maps lock names to their sha256."""

    recipe: str
    folder: str
    cluster: str
    label: str
    bench: Bench
    locks: dict[str, str]


def bench_goal(
    recipe: str,
    cluster: str,
    bench: Bench,
    lane: Goal,
    harness: Goal,
    *,
    locks: Mapping[str, str] = MappingProxyType({}),
    label: str = "",
    inputs: tuple[Input, ...] = (),
) -> Goal:
    """The goal of having a complete run package of the recipe under `label` (default: the recipe's)."""
    label = label or bench.label
    parts = {"lane": lane.key.digest, "harness": harness.key.digest, "settings": settings(bench)}
    return Goal(
        task=f"bench:{recipe}",
        uri=Uri("report", cluster, f"{recipe}/{label}"),
        key=Key(parts),
        doc=f"benchmark {recipe}, report `{label}`",
        spec=BenchSpec(recipe, f"recipes/{recipe}", cluster, label, bench, dict(locks)),
        needs=(lane, harness),
        inputs=inputs,
        pools=("bench", *lane.pools),  # what else ran on the lane's nodes would be measured as well
        hosts=lane.hosts,
    )


def settings(bench: Bench) -> Parts:
    """The tables that decide what is measured; image and label do not."""
    return {
        "tool_eval": None if bench.tool_eval is None else msgspec.to_builtins(bench.tool_eval),
        "throughput": None if bench.throughput is None else msgspec.to_builtins(bench.throughput),
    }


def judge(goal: Goal, fact: Reports) -> Verdict:
    """Is there a complete package with this key; if not, why."""
    reports = fact.get("reports") or []
    for report in reversed(reports):
        if report.get("complete") and report.get("key") == goal.key.digest:
            text = f"complete: {report['path']}"
            return Verdict(OK, (Reason("report", text),), 0, fact, text)
    return Verdict(RUN, _reasons(goal, reports), 0, fact)


def _reasons(goal: Goal, reports: list[Report]) -> tuple[Reason, ...]:
    if not reports:
        return (Reason("report", f"never run as `{goal.spec.label}`"),)
    last = reports[-1]
    if last.get("broken"):
        return (Reason("report", f"{last['path']} cannot be read: {last['broken']}"),)
    reasons = []
    if not last["complete"]:
        because = "; ".join(last["incomplete_because"]) or "not said why"
        reasons.append(Reason("report", f"last run is incomplete: {because} ({last['path']})"))
    if last["key"] != goal.key.digest:
        wanted = _explained(goal.key.parts, goal.needs[0].key.parts)
        reasons += differences(_explained(last["parts"], last["lane"]), wanted)
    return tuple(reasons)


def _explained(parts: Parts, lane: Parts) -> Parts:
    """The key's parts with what is behind the digests and tables, so that a difference can be named."""
    flat = {f"lane {name}": value for name, value in lane.items()}
    for name, value in parts.items():
        if name == "settings" and isinstance(value, dict):
            tables = {table: rows if isinstance(rows, dict) else {"": rows} for table, rows in value.items()}
            flat |= {f"{table} {row}".strip(): cell for table, rows in tables.items() for row, cell in rows.items()}
        elif name == "harness":
            flat["harness image"] = value[:12]
        elif name != "lane" or not lane:
            flat[name] = value
    return flat
