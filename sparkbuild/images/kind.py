"""Images on nodes, whatever they are: which kind looks at a goal is told by what goes into it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sparkbuild.core.errors import SparkbuildError
from sparkbuild.core.goal import Goal
from sparkbuild.core.plan import Verdict
from sparkbuild.core.run import Kind, Run
from sparkbuild.core.state import Made
from sparkbuild.images.prebuilt import PrebuiltKind, PrebuiltSpec
from sparkbuild.images.relays import Relays
from sparkbuild.images.sync import SyncKind
from sparkbuild.images.venv import VenvKind, VenvSpec
from sparkbuild.nodes.cluster import Nodes


class ImageKind:
    """All goals of the scheme `image`."""

    scheme = "image"

    def __init__(self, root: str, nodes: Nodes) -> None:
        self._venv = VenvKind(root, lambda node: nodes.place(node).offline)
        relays = Relays(nodes)
        self._docker = SyncKind(nodes, relays)
        self._prebuilt = PrebuiltKind(nodes, relays)

    def query(self, goal: Goal) -> Mapping[str, object]:
        """See core.run.Kind. What is looked at follows from what goes into the image, and so does the fact."""
        kind = self._of(goal)
        return {"scheme": kind.scheme, **kind.query(goal)}

    def judge(self, goal: Goal, fact: Any, last: Made | None) -> Verdict:
        """See core.run.Kind."""
        return self._of(goal).judge(goal, fact, last)

    def preflight(self, goal: Goal, verdict: Verdict) -> SparkbuildError | None:
        """Why making it would fail, as far as that is known before."""
        return self._prebuilt.preflight(goal, verdict) if isinstance(goal.spec, PrebuiltSpec) else None

    def apply(self, goal: Goal, verdict: Verdict, run: Run) -> int:
        """See core.run.Kind."""
        return self._of(goal).apply(goal, verdict, run)

    def _of(self, goal: Goal) -> Kind[Any]:
        if isinstance(goal.spec, PrebuiltSpec):
            return self._prebuilt
        return self._venv if isinstance(goal.spec, VenvSpec) else self._docker
