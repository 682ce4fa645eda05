"""Artifacts: files a lock pins by sha256, fetched once into a node's store and never installed."""

from __future__ import annotations

import os

import msgspec

from sparkbuild.agent.wire.store import ARTIFACT, FETCH, ArtifactAbsent, ArtifactAsk, ArtifactFact, FetchAsk
from sparkbuild.core.goal import Goal, Uri
from sparkbuild.core.key import Key
from sparkbuild.core.plan import OK, RUN, Verdict
from sparkbuild.core.reasons import Reason
from sparkbuild.core.run import Run
from sparkbuild.core.state import Made, size_again
from sparkbuild.nodes.cluster import LOCAL, Nodes
from sparkbuild.nodes.unreached import Unreached, unreached


class Origin(msgspec.Struct, frozen=True):
    """A url, and the file of the workspace that says it."""

    url: str
    pinned: str


class ArtifactSpec(msgspec.Struct, frozen=True):
    """Where an artifact comes from: a wheel as `name==version`, or a url; one of the two is empty. `filename` is its
    name in the store, `pinned` the file of the workspace that says all this. `others` are asked in their order when
    the url does not give it. Only sha256 and filename are in its key.
    """

    filename: str
    sha256: str
    wheel: str
    url: str
    pinned: str = "the lock"
    others: tuple[Origin, ...] = ()

    @property
    def origin(self) -> str:
        """Where it comes from, in words."""
        count = len(self.others)
        more = f", or {count} {'other' if count == 1 else 'others'}," if count else ""
        return f"{self.wheel or self.url}{more}"


def path_in_store(spec: ArtifactSpec) -> str:
    """Where the artifact lies, relative to the store of a node."""
    return os.path.join("artifacts", spec.sha256[:2], spec.sha256, os.path.basename(spec.filename))


def artifact_goal(
    node: str, lock: str, component: str, spec: ArtifactSpec, *, suffix: str = "", source: Goal | None = None
) -> Goal:
    """The goal of having the artifact on a node. `suffix` tells the tasks of several nodes apart; `source` is the same
    artifact on the machine that sends it, for a node without internet.
    """
    return Goal(
        task=f"artifact:{lock}:{component}{suffix}",
        uri=Uri("artifact", node, f"{lock}/{component}"),
        key=Key({"sha256": spec.sha256, "filename": spec.filename}),
        doc=f"fetch {spec.origin} as pinned in {spec.pinned}",
        spec=spec,
        needs=(source,) if source else (),
        pools=("fetch",),
        transient=True,
    )


class ArtifactKind:
    """How artifacts are looked at and fetched."""

    scheme: str = ARTIFACT

    def __init__(self, root: str, nodes: Nodes | None = None) -> None:
        self._root = root
        self._nodes = nodes  # None: every node fetches for itself

    def query(self, goal: Goal) -> ArtifactAsk:
        """What the agent needs to look."""
        spec: ArtifactSpec = goal.spec
        return {"sha256": spec.sha256, "filename": spec.filename}

    def judge(self, goal: Goal, fact: ArtifactFact | ArtifactAbsent | Unreached, last: Made | None) -> Verdict:
        """Present with the right content, or not."""
        if "unreachable" in fact:
            return unreached(goal, fact)
        if fact["present"]:
            return Verdict(OK, (), 0, fact)
        text = fact.get("problem") or ("was fetched before, is gone" if last else "not fetched yet")
        spec: ArtifactSpec = goal.spec
        source = (Reason("source", f"from {spec.origin.rstrip(',')}", remark=True),) if spec.url else ()
        return Verdict(RUN, (Reason("content", text), *source), size_again(last, goal.key.digest), fact)

    def apply(self, goal: Goal, verdict: Verdict, run: Run) -> int:
        """Fetch it; returns the bytes. What a node without internet needs, this machine fetches and sends."""
        del verdict
        spec: ArtifactSpec = goal.spec
        if self._nodes is None or not self._nodes.place(goal.node).offline:
            request = FetchAsk(
                root=self._root,
                sha256=spec.sha256,
                filename=spec.filename,
                wheel=spec.wheel,
                url=spec.url,
                pinned=spec.pinned,
                others=[(other.url, other.pinned) for other in spec.others],
            )
            return run.call(goal.node, FETCH, request)["bytes"]
        here = self._nodes.agent(LOCAL)
        run.note(f"{goal.node} is offline: fetched by this machine, which sends it now")
        path, source = path_in_store(spec), os.path.join(here.store, path_in_store(spec))
        return self._nodes.agent(goal.node).put(path, source, spec.sha256, run.passing(f"send to {goal.node}"))
