"""Runs one small bench as a process of its own, so that a test can kill it: ROOT URL MODEL PYTHON WEIGHTS."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import msgspec

from sparkbuild.bench.goal import judge
from sparkbuild.bench.kind import BenchKind, BenchTarget
from sparkbuild.core.goal import Goal
from sparkbuild.core.interrupt import handling
from sparkbuild.core.run import Agent, Progress, Run
from sparkbuild.workspace.shapes.schema import Bench
from tests.bench.examples import BENCH, goal
from tests.engine import ROOT

SMALL = msgspec.structs.replace(
    BENCH,
    throughput=msgspec.structs.replace(
        BENCH.throughput, tokenizer="{{ staged.weights }}/SmolLM2-135M-Instruct.Q4_1.gguf", concurrency=(1, 2)
    ),
)


def no_agent(_node: str) -> Agent:
    """A bench asks no node's agent."""
    raise AssertionError


def workspace(root: Path) -> None:
    """A workspace with the demo recipe."""
    folder = root / "recipes/demo"
    folder.mkdir(parents=True)
    for name in ("recipe.toml", "chat.jinja"):
        (folder / name).write_bytes((ROOT / "recipes/demo" / name).read_bytes())


def target(url: str, model: str, python: str, weights: str) -> BenchTarget:
    """Where and with what."""
    return BenchTarget(url, model, python, str(ROOT / "images/harness"), {"weights": weights})


def bench(root: Path, where: BenchTarget, settings: Bench = SMALL, steps: list[Progress] | None = None) -> Any:
    """Run it; returns the verdict afterwards."""
    wanted = goal(settings)
    kind = BenchKind(root, lambda _goal, _run: nullcontext(where))
    report = (lambda _progress: None) if steps is None else steps.append
    run = Run(root=root, log=root / "run.log", agent=no_agent, report=report)
    assert kind.apply(wanted, kind.judge(wanted, kind.observe(wanted), None), run) > 0
    return kind.judge(wanted, kind.observe(wanted), None)


def reports(root: Path, wanted: Goal | None = None) -> list[dict[str, Any]]:
    """What is there now."""
    wanted = wanted or goal(SMALL)
    verdict = judge(wanted, BenchKind(root, lambda _goal, _run: None).observe(wanted))  # type: ignore[arg-type, return-value]
    return list(verdict.fact["reports"])


if __name__ == "__main__":
    with handling():
        bench(Path(sys.argv[1]), target(*sys.argv[2:6]))
