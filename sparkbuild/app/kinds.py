"""Which kind handles which scheme, and how the domains, which do not know each other, are put together."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import msgspec

from sparkbuild.agent.wire.records import Gate
from sparkbuild.core.goal import Goal
from sparkbuild.core.pools import Pools
from sparkbuild.core.run import Kind, Progress, Run
from sparkbuild.images.archive import ArchiveKind
from sparkbuild.images.kind import ImageKind
from sparkbuild.images.prune import PruneKind
from sparkbuild.nodes.cluster import Nodes
from sparkbuild.serving.launch.kind import LaneKind
from sparkbuild.staging.exports import ExportKind
from sparkbuild.staging.staged import StagedKind
from sparkbuild.upstream.artifacts import ArtifactKind
from sparkbuild.upstream.sources import SourceKind

if TYPE_CHECKING:
    from sparkbuild.bench.target import BenchTarget


def kinds(
    root: str,
    nodes: Nodes,
    pools: Pools,
    target: Callable[[Goal, Run], AbstractContextManager[BenchTarget]] | None,
    holders: Callable[[Goal], list[tuple[str, str]]] = lambda _goal: [],
    *,
    forced: Callable[[Goal], bool] = lambda _goal: False,
) -> Mapping[str, Kind[Any]]:
    """The kinds by scheme. `nodes` are the ways to the nodes, `pools` bound what runs at once; `target` is what a bench
    must know, if there are any; `holders` are other folders that have what a goal stages, `forced` says that it is
    staged though it looks right.
    """
    found: dict[str, Kind[Any]] = {
        "artifact": ArtifactKind(root, nodes),
        "source": SourceKind(root, nodes),
        "archive": ArchiveKind(root, nodes),
        "image": ImageKind(root, nodes),
        "pruned": PruneKind(),
        "staged": StagedKind(pools, nodes, holders, root, forced),
        "export": ExportKind(root),
        "lane": LaneKind(root, nodes, check_gates),
    }
    if target is not None:
        from sparkbuild.bench.kind import BenchKind  # noqa: PLC0415 - a workspace without benches need not load it

        found["report"] = BenchKind(root, target)
    return found


def check_gates(gates: Sequence[Any], base_url: str, model_id: str, run: Run) -> list[Gate]:
    """Serving's checker: run the recipe's gates; records for the lane, GateError when one fails."""
    from sparkbuild.gates.check import check  # noqa: PLC0415 - only when a lane is checked

    def progress(done: int, total: int) -> None:
        run.report(Progress("gates", done, total, "gates"))

    return [msgspec.to_builtins(result) for result in check(gates, base_url, model_id, run.note, progress)]
