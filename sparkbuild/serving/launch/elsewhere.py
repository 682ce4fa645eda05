"""Ranks of a lane on nodes that its recipe has no more: they are stopped before it is launched anew, or it is not."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from sparkbuild.core.errors import NodeError
from sparkbuild.core.goal import Goal
from sparkbuild.serving.ranks import RankFact


class Elsewhere(msgspec.Struct, frozen=True):
    """What was seen of the lane on other nodes, by node. `gone`: those that config.toml has no more."""

    facts: Mapping[str, RankFact]
    gone: tuple[str, ...] = ()

    @property
    def runs(self) -> tuple[str, ...]:
        """The nodes on which something is to be stopped."""
        return tuple(node for node, fact in self.facts.items() if fact.get("alive") or fact.get("left"))

    def refusals(self, goal: Goal) -> list[str]:
        """Why nothing may be launched: a rank that cannot be stopped from here, or must not be."""
        recipe = goal.spec.recipe
        reasons = [text_of_gone(recipe, node) for node in self.gone]
        for node, fact in self.facts.items():
            where = f"{node}, which lane {recipe} was launched on and its cluster {goal.node} has no more,"
            if "unreachable" in fact:
                reasons.append(f"{where} does not answer: {fact['unreachable']}")
            elif "alive" not in fact or fact.get("docker_problem"):
                reasons.append(f"{where} cannot be looked at: {fact.get('docker_problem') or fact.get('problem')}")
            elif fact["alive"] and (goal.spec.protect or ((record := fact.get("record")) and record.get("protect"))):
                reasons.append(f"the lane {recipe} that runs on {node} is protected: doit stop:{recipe} first")
        return reasons


def reason_of(node: str, *, known: bool) -> str:
    """What the plan says of such a node; it was not asked."""
    if known:
        return f"it was launched on {node} as well, which is none of its nodes any more: what runs there is stopped"
    return f"it was launched on {node} as well, which config.toml does not have any more"


def text_of_gone(recipe: str, node: str) -> str:
    """What to do about a node that cannot be reached by its name any more."""
    return (
        f"lane {recipe} was launched on {node} as well, and config.toml has no node {node}: put it back and run"
        f" doit stop:{recipe}, or end it there (docker stop sparkbuild-{recipe}) and run doit stop:{recipe} here"
    )


def left_behind(recipe: str, gone: tuple[str, ...]) -> NodeError:
    """After a stop: what could not be reached."""
    nodes = ", ".join(gone)
    return NodeError(
        f"lane {recipe} may still run on {nodes}",
        found=f"it was launched there, and config.toml has no node {nodes} any more",
        wanted="all nodes",
        next=f"put it back into config.toml and run doit stop:{recipe}, or there: docker stop sparkbuild-{recipe};"
        f" it is not asked about again",
    )
