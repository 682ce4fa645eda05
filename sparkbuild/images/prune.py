"""Old images of ours on a node: those beyond the newest few go, as a step of its own, unless a container uses them."""

from __future__ import annotations

from typing import Any

import msgspec

from sparkbuild.core.goal import Goal
from sparkbuild.core.key import Key
from sparkbuild.core.plan import OK, RUN, UNKNOWN, Verdict
from sparkbuild.core.reasons import Reason
from sparkbuild.core.run import Run
from sparkbuild.core.state import Made
from sparkbuild.core.uri import Uri
from sparkbuild.images.docker import reference
from sparkbuild.images.sync import unasked


class PruneSpec(msgspec.Struct, frozen=True):
    """`wanted` is the image's reference now; it is one of the `keep`."""

    name: str
    wanted: str
    keep: int


def prune_goal(sync: Goal, keep: int) -> Goal:
    """The goal of having no more than `keep` images of a name on a node; `sync` is that of having the newest there."""
    name, node = sync.spec.name, sync.node
    return Goal(
        task=f"prune:{name}:{node}",
        uri=Uri("pruned", node, name),
        key=Key({"keep": keep, "image": sync.key.digest}),
        doc=f"remove docker images of {name} on {node} beyond {keep}, unless a container uses them",
        spec=PruneSpec(name, reference(name, sync.key), keep),
        pools=(node,),
    )


class PruneKind:
    """How old images are looked at and removed."""

    scheme = "pruned"

    def query(self, goal: Goal) -> dict[str, Any]:
        """What the agent needs to look."""
        spec: PruneSpec = goal.spec
        return {"name": spec.name, "reference": spec.wanted, "keep": spec.keep}

    def judge(self, goal: Goal, fact: dict[str, Any], last: Made | None) -> Verdict:
        """None too many, or which would go."""
        del last
        unknown = unasked(goal, fact)
        if unknown is not None:
            return unknown
        if "old" not in fact:
            return Verdict(UNKNOWN, (Reason("docker", str(fact.get("problem"))),), None, fact)
        if fact["old"]:
            texts = (f"removes {old['reference']}, {old['bytes'] / 1e6:.1f} MB" for old in fact["old"])
            return Verdict(RUN, tuple(Reason("image", text) for text in texts), 0, fact)
        used = "; ".join(f"{name} is used by {', '.join(boxes)}" for name, boxes in fact["used"].items())
        return Verdict(OK, (), 0, fact, used or "no old images of ours")

    def apply(self, goal: Goal, verdict: Verdict, run: Run) -> int:
        """Remove them; nothing moves."""
        del verdict
        run.call(goal.node, "prune", self.query(goal))
        return 0
