"""Which kind handles which scheme, and how the domains, which do not know each other, are put together."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sparkbuild.core.errors import NotReadyError
from sparkbuild.core.goal import Goal
from sparkbuild.core.plan import OK
from sparkbuild.core.run import Kind, Progress, Run
from sparkbuild.images.venv import VenvKind, folder_in_store
from sparkbuild.nodes.artifacts import ArtifactKind
from sparkbuild.serving.kind import LaneKind
from sparkbuild.staging.files import FilesKind

if TYPE_CHECKING:
    from sparkbuild.plugin.session import Session


def kinds(session: Session) -> Mapping[str, Kind]:
    """The kinds of one session, by scheme."""
    root = str(session.root)
    found: dict[str, Kind] = {
        "artifact": ArtifactKind(root),
        "image": VenvKind(root),
        "staged": FilesKind(),
        "lane": LaneKind(root, session.nodes.store, check_gates),
    }
    if any(recipe.spec.bench for recipe in session.workspace.recipes.values()):
        from sparkbuild.bench.kind import BenchKind  # noqa: PLC0415 - a workspace without benches need not load it

        found["report"] = BenchKind(session.root, lambda goal, run: bench_target(session, goal, run))
    return found


def check_gates(gates: Sequence[Any], base_url: str, model_id: str, run: Run) -> list[dict[str, Any]]:
    """Serving's checker: run the recipe's gates; records for the lane, GateError when one fails."""
    import msgspec  # noqa: PLC0415

    from sparkbuild.gates.check import check  # noqa: PLC0415 - costs httpx, only when a lane is checked

    def progress(done: int, total: int) -> None:
        run.report(Progress("gates", done, total, "gates"))

    return [msgspec.to_builtins(result) for result in check(gates, base_url, model_id, run.note, progress)]


def bench_target(session: Session, goal: Goal, run: Run) -> Any:
    """Where and with what a bench runs: the lane's address and the harness image, as they are on the node now."""
    del run
    from sparkbuild.bench.target import BenchTarget  # noqa: PLC0415

    lane, harness = goal.needs
    node = lane.nodes[0]
    fact = session.observer.fact(lane)
    if session.judge(lane).state != OK:
        session.observer.look([lane], again=True)
        fact = session.observer.fact(lane)
    record = fact.get("record")
    if not fact.get("alive") or record is None:
        raise NotReadyError(f"lane {goal.spec.recipe} does not run", next=f"doit serve:{goal.spec.recipe}")
    store = session.nodes.store(node)
    image = os.path.join(store, folder_in_store(harness))
    return BenchTarget(
        base_url=f"http://{record['host']}:{record['port']}",
        model_id=record["model_id"],
        python=os.path.join(image, "bin", "python"),
        files=os.path.join(image, "files"),
        staged={block: os.path.normpath(os.path.join(store, path)) for block, path in lane.spec.staged.items()},
    )
