"""A manifest and goals for tables."""

from __future__ import annotations

from typing import Any

from sparkbuild.bench.goal import bench_goal, settings
from sparkbuild.bench.manifest import FORMAT, Cell, Manifest, Pool, Program, Scores, Speed
from sparkbuild.core.goal import Goal, Input, Uri
from sparkbuild.core.key import Key
from sparkbuild.workspace.shapes.schema import Bench, Throughput, ToolEval

BENCH = Bench(
    image="harness",
    label="demo",
    tool_eval=ToolEval(scenarios=("TC-11", "TC-12"), max_turns=2, backend_kwargs={"max_tokens": 48}),
    throughput=Throughput(tokenizer="{{ staged.weights }}/x.gguf", prompt=(64,), generate=(8,), runs=1),
)


def goal(bench: Bench = BENCH, lane: dict[str, Any] | None = None, harness: str = "h1", label: str = "") -> Goal:
    """A report goal on a lane with these key parts."""
    image = Goal("image:llamacpp", Uri("image", "local", "llamacpp"), Key({"i": 1}), "")
    staged = Goal("stage:demo", Uri("staged", "local", "demo/weights"), Key({"s": 1}), "")
    lane_goal = Goal(
        "serve:demo",
        Uri("lane", "local", "demo"),
        Key(lane or {"port": 1, "model_id": "m"}),
        "",
        needs=(image, staged),
        inputs=(Input("recipes/demo/chat.jinja", "0"), Input("elsewhere/x", "0")),
        pools=("node:local",),
    )
    harness_goal = Goal("image:harness", Uri("image", "local", "harness"), Key({"h": harness}), "")
    return bench_goal("demo", "local", bench, lane_goal, harness_goal, locks={"demo": "abc"}, label=label)


def manifest(**changes: Any) -> Manifest:
    """A complete manifest of `goal()`."""
    wanted = goal()
    values: dict[str, Any] = {
        "format": FORMAT,
        "recipe": "demo",
        "cluster": "local",
        "label": "demo",
        "started": "2026-01-02T03:04:05Z",
        "finished": "2026-01-02T03:14:05Z",
        "complete": True,
        "incomplete_because": (),
        "key": wanted.key.digest,
        "parts": wanted.key.parts,
        "lane": wanted.needs[0].key.parts,
        "lane_key": wanted.needs[0].key.digest,
        "locks": {"demo": "abc"},
        "images": {},
        "staged": {},
        "settings": settings(BENCH),
        "settings_fingerprint": Key(settings(BENCH)).digest,
        "harness": {"tool-eval-bench": Program("3.0.0", "3.0.0"), "llama-benchy": Program("0.4.0", "0.4.0")},
        "scores": Scores(
            Pool(2, 4, "aa"), points=2, final_score=50, completion_rate=100, passed=1, partial=0, failed=1
        ),
        "speed": Speed((Cell(64, 8, 0, 1, 100.0, 50.0, 10.0, 1),), failed=0),
    }
    return Manifest(**{**values, **changes})
