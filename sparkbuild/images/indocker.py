"""Images in docker, on nodes: those that were built here, and those that others made."""

from __future__ import annotations

from typing import Any

from sparkbuild.core.errors import SparkbuildError
from sparkbuild.core.goal import Goal
from sparkbuild.core.plan import Verdict
from sparkbuild.core.run import Kind
from sparkbuild.images.prebuilt import PrebuiltKind, PrebuiltSpec
from sparkbuild.images.relays import Relays
from sparkbuild.images.sync import SyncKind
from sparkbuild.nodes.cluster import Nodes


class DockerImages:
    """The kinds of both; they share the ways between nodes."""

    def __init__(self, nodes: Nodes) -> None:
        relays = Relays(nodes)
        self._built = SyncKind(nodes, relays)
        self._prebuilt = PrebuiltKind(nodes, relays)

    def of(self, goal: Goal) -> Kind[Any]:
        """Which of them handles a goal."""
        return self._prebuilt if isinstance(goal.spec, PrebuiltSpec) else self._built

    def preflight(self, goal: Goal, verdict: Verdict) -> SparkbuildError | None:
        """Why making it would fail, as far as that is known before."""
        return self._prebuilt.preflight(goal, verdict) if isinstance(goal.spec, PrebuiltSpec) else None
