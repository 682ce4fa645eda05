"""Images on nodes, whatever they are: which kind looks at a goal is told by what goes into it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from sparkbuild.core.errors import SparkbuildError
from sparkbuild.core.goal import Goal
from sparkbuild.core.plan import Verdict
from sparkbuild.core.run import Kind, Run
from sparkbuild.core.state import Made
from sparkbuild.images.venv import VenvKind, VenvSpec
from sparkbuild.nodes.cluster import Nodes

if TYPE_CHECKING:
    from sparkbuild.images.indocker import DockerImages


class ImageKind:
    """All goals of the scheme `image`."""

    scheme = "image"

    def __init__(self, root: str, nodes: Nodes) -> None:
        self._nodes = nodes
        self._venv = VenvKind(root, lambda node: nodes.place(node).offline)

    @cached_property
    def _docker(self) -> DockerImages:
        from sparkbuild.images.indocker import DockerImages  # noqa: PLC0415 - 8 ms: registries, logins, relays

        return DockerImages(self._nodes)

    def query(self, goal: Goal) -> Mapping[str, object]:
        """See core.run.Kind. What is looked at follows from what goes into the image, and so does the fact."""
        kind = self._of(goal)
        return {"scheme": kind.scheme, **kind.query(goal)}

    def judge(self, goal: Goal, fact: Any, last: Made | None) -> Verdict:
        """See core.run.Kind."""
        return self._of(goal).judge(goal, fact, last)

    def preflight(self, goal: Goal, verdict: Verdict) -> SparkbuildError | None:
        """Why making it would fail, as far as that is known before."""
        return None if isinstance(goal.spec, VenvSpec) else self._docker.preflight(goal, verdict)

    def apply(self, goal: Goal, verdict: Verdict, run: Run) -> int:
        """See core.run.Kind."""
        return self._of(goal).apply(goal, verdict, run)

    def _of(self, goal: Goal) -> Kind[Any]:
        return self._venv if isinstance(goal.spec, VenvSpec) else self._docker.of(goal)
