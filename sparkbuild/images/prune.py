"""Old images of ours on a node: of each name, those beyond the newest few go, as a step of its own, unless a container
uses them.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from sparkbuild.agent.wire.dockerimages import PRUNE, PRUNED, PrunedAsk, PrunedFact
from sparkbuild.core.goal import Goal, Uri
from sparkbuild.core.key import Key
from sparkbuild.core.plan import OK, RUN, UNKNOWN, Verdict
from sparkbuild.core.reasons import Reason
from sparkbuild.core.run import Run
from sparkbuild.core.state import Made
from sparkbuild.images.docker import unasked
from sparkbuild.nodes.unreached import Unreached, unreached

SERVED, BUILT, UNUSED = "served", "built", "unused"  # what a node's docker is for: recipes, builds of images, nothing


class PruneSpec(msgspec.Struct, frozen=True):
    """`wanted` are the references that the workspace's images have now: they stay, and are among the `keep` of their
    name. Of the `spared` names nothing goes, since nobody can say what is wanted of them; nor, without `prebuilt`, of
    images of a registry. `use` is one of the above; `builds`: images are built there, and BuildKit's cache grows.
    """

    keep: int
    wanted: tuple[str, ...] = ()
    spared: tuple[str, ...] = ()
    use: str = SERVED
    prebuilt: bool = True
    builds: bool = False


def prune_goal(node: str, spec: PruneSpec, *, asked_for: bool = False) -> Goal:
    """The goal of having no more than `keep` images of each name in a node's docker. `asked_for`: only by name."""
    wanted, spared = sorted(spec.wanted), sorted(spec.spared)
    return Goal(
        task=f"prune:{node}",
        uri=Uri("pruned", node, "images"),
        key=Key({"keep": spec.keep, "images": wanted, "spared": spared, "prebuilt": spec.prebuilt}),
        doc=f"remove docker images of ours on {node} beyond {spec.keep} of a name, unless a container uses them",
        spec=spec,
        pools=(node,),
        transient=asked_for,
    )


class PruneKind:
    """How old images are looked at and removed."""

    scheme: str = PRUNED

    def query(self, goal: Goal) -> PrunedAsk:
        """What the agent needs to look."""
        spec: PruneSpec = goal.spec
        return {
            "keep": spec.keep,
            "wanted": list(spec.wanted),
            "spared": list(spec.spared),
            "prebuilt": spec.prebuilt,
            "builds": spec.builds,
        }

    def judge(self, goal: Goal, fact: PrunedFact | Unreached, last: Made | None) -> Verdict:
        """None too many, or which would go. A node without docker is passed over, unless a recipe needs it there."""
        del last
        spec: PruneSpec = goal.spec
        if "unreachable" in fact:
            return msgspec.structs.replace(unreached(goal, fact), bytes=0)
        if "silent" in fact and (spec.use == UNUSED or (spec.use == BUILT and fact.get("absent"))):
            return Verdict(OK, (), 0, fact, f"passed over: {fact['silent']}")
        unknown = unasked(goal, fact)
        if unknown is not None:
            return msgspec.structs.replace(unknown, bytes=0)
        if "old" not in fact:
            return Verdict(UNKNOWN, (Reason("docker", str(fact.get("problem"))),), 0, fact)
        texts = [f"removes {old['reference']}, {old['bytes'] / 1e6:.1f} MB" for old in fact["old"]]
        if cache := fact.get("cache", 0):
            texts.append(f"removes docker's build cache that nothing used for 7 days, about {cache / 1e6:.1f} MB")
        if texts:
            return Verdict(RUN, tuple(Reason("image", text) for text in texts), 0, fact)
        return Verdict(OK, (), 0, fact, "; ".join(_stays(fact)) or "no old images of ours")

    def apply(self, goal: Goal, verdict: Verdict, run: Run) -> int:
        """Remove them; nothing moves."""
        del verdict
        done = run.call(goal.node, PRUNE, self.query(goal))
        if done["freed"]:
            run.tell(f"docker's build cache on {goal.node}: {done['freed'] / 1e6:.1f} MB are free again")
        return 0


def _stays(fact: PrunedFact) -> Iterator[str]:
    for name, boxes in fact.get("used", {}).items():
        yield f"{name} is used by {', '.join(boxes)}"
    for name in fact.get("spared", ()):
        yield f"all of {name} stay: images/{name}/image.toml cannot be read"
