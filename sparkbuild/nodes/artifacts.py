"""Artifacts: files a lock pins by sha256, fetched once into a node's store and never installed."""

from __future__ import annotations

import os
from typing import Any

import msgspec

from sparkbuild.core.goal import Goal
from sparkbuild.core.key import Key
from sparkbuild.core.plan import OK, RUN, UNKNOWN, Verdict
from sparkbuild.core.reasons import Reason
from sparkbuild.core.run import Run
from sparkbuild.core.state import Made
from sparkbuild.core.uri import Uri


class ArtifactSpec(msgspec.Struct, frozen=True):
    """Where an artifact comes from: a wheel as `name==version`, or a url; one of the two is empty."""

    filename: str
    sha256: str
    wheel: str
    url: str


def path_in_store(spec: ArtifactSpec) -> str:
    """Where the artifact lies, relative to the store of a node."""
    return os.path.join("artifacts", spec.sha256[:2], spec.sha256, os.path.basename(spec.filename))


def artifact_goal(node: str, lock: str, component: str, spec: ArtifactSpec, *, suffix: str = "") -> Goal:
    """The goal of having the artifact on a node. `suffix` tells the tasks of several nodes apart."""
    return Goal(
        task=f"artifact:{lock}:{component}{suffix}",
        uri=Uri("artifact", node, f"{lock}/{component}"),
        key=Key({"sha256": spec.sha256, "filename": spec.filename}),
        doc=f"fetch {spec.wheel or spec.url} as pinned in locks/{lock}.source.lock",
        spec=spec,
        pools=("fetch",),
        transient=True,
    )


class ArtifactKind:
    """How artifacts are looked at and fetched."""

    scheme = "artifact"

    def __init__(self, root: str) -> None:
        self._root = root

    def query(self, goal: Goal) -> dict[str, Any]:
        """What the agent needs to look."""
        spec: ArtifactSpec = goal.spec
        return {"sha256": spec.sha256, "filename": spec.filename}

    def judge(self, goal: Goal, fact: dict[str, Any], last: Made | None) -> Verdict:
        """Present with the right content, or not."""
        if "unreachable" in fact:
            return Verdict(UNKNOWN, (Reason("node", f"{goal.node} does not answer: {fact['unreachable']}"),), None)
        if fact["present"]:
            return Verdict(OK, (), 0, fact)
        text = fact.get("problem") or ("was fetched before, is gone" if last else "not fetched yet")
        return Verdict(RUN, (Reason("content", text),), last.bytes if last else None, fact)

    def apply(self, goal: Goal, verdict: Verdict, run: Run) -> int:
        """Fetch it; returns the bytes."""
        del verdict
        spec: ArtifactSpec = goal.spec
        request = {
            "root": self._root,
            "sha256": spec.sha256,
            "filename": spec.filename,
            "wheel": spec.wheel,
            "url": spec.url,
        }
        return int(run.call(goal.node, "fetch", request)["bytes"])
