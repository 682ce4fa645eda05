"""How reports are looked at and made. Cheap to import: what runs a bench is loaded when one runs."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

from sparkbuild.bench.goal import BenchSpec, bench_goal, judge
from sparkbuild.bench.observe import Reports, observe_reports
from sparkbuild.bench.target import BenchTarget, fill
from sparkbuild.core.errors import SparkbuildError
from sparkbuild.core.goal import Goal
from sparkbuild.core.plan import Verdict
from sparkbuild.core.run import Run
from sparkbuild.core.state import Made
from sparkbuild.core.templates.errors import TemplateError
from sparkbuild.workspace.toml.tomlfile import located

__all__ = ["BenchKind", "BenchSpec", "BenchTarget", "bench_goal", "observe_reports"]


class BenchKind:
    """Reports live in the workspace, so no agent is asked: the fact is what `observe` reads there.

    `resolve` says at apply time where the lane and the harness are, and holds the way to them open.
    """

    scheme = "report"

    def __init__(self, root: Path | str, resolve: Callable[[Goal, Run], AbstractContextManager[BenchTarget]]) -> None:
        self._root = Path(root)
        self._resolve = resolve

    def query(self, goal: Goal) -> dict[str, str]:
        """What `observe` needs to look."""
        return {"recipe": goal.spec.recipe, "label": goal.spec.label}

    def observe(self, goal: Goal) -> Reports:
        """The fact: which packages are there."""
        return observe_reports(self._root, goal.spec.recipe, goal.spec.label)

    def judge(self, goal: Goal, fact: Reports, last: Made | None) -> Verdict:  # noqa: ARG002 - reports tell more than the state
        """Is there a complete package with this key; if not, why."""
        return judge(goal, fact)

    def preflight(self, goal: Goal, verdict: Verdict) -> SparkbuildError | None:  # noqa: ARG002 - whatever makes it run
        """Why a bench would fail in its middle, after hours: a template that cannot be filled in."""
        throughput = goal.spec.bench.throughput
        if throughput is None:
            return None
        lane = goal.needs[0].spec
        anywhere = BenchTarget("", lane.model_id, "", "", dict.fromkeys(lane.staged, "/"))
        try:
            fill(throughput.tokenizer, anywhere, f"{goal.spec.folder}/recipe.toml")
        except TemplateError as error:
            return located(error, self._root)
        return None

    def apply(self, goal: Goal, verdict: Verdict, run: Run) -> int:  # noqa: ARG002 - a bench is always run whole
        """Run the bench; returns the bytes of the package. Option `label` names the report otherwise."""
        from sparkbuild.bench import measure, package  # noqa: PLC0415 - only when a bench runs

        label = str(run.options.get("label") or goal.spec.label)
        with self._resolve(goal, run) as target:
            made = measure.measure(goal, target, run, label)
        return package.size(made)
