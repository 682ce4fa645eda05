"""The mounts of a lane's exports: each node is asked for the manifests that staging left there."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping

from sparkbuild.agent.wire.staging.exports import EXPORT, ExportAsk
from sparkbuild.core.goal import Goal
from sparkbuild.core.run import Agent
from sparkbuild.nodes.ask import look_everywhere
from sparkbuild.serving.lane import LaneSpec
from sparkbuild.serving.launch.render import Bind

Manifests = Mapping[str, tuple[Bind, ...]]


class Mounted:
    """What is known is asked once per run and goal, and anew right before a launch."""

    def __init__(self, agent: Callable[[str], Agent]) -> None:
        self._agent = agent
        self._known: dict[str, dict[str, dict[str, tuple[Bind, ...]]]] = {}

    def of(self, goal: Goal, *, again: bool = False) -> Mapping[str, Manifests]:
        """By node and export, the mounts of those exports that are there and are the ones of the goal."""
        spec: LaneSpec = goal.spec
        if not spec.exports or spec.runtime != "docker":
            return {}
        known = None if again else self._known.get(goal.target)
        if known is None:
            known = {node: {} for node in goal.nodes}
            keys = {
                (need.node, need.uri.path.rpartition("/")[2]): need.key.digest
                for need in goal.needs
                if need.uri.scheme == "export"
            }
            for name, export in spec.exports.items():
                query = ExportAsk(dst=export["path"], key="")
                nodes = [node for node in goal.nodes if (node, name) in keys]
                for node, fact in look_everywhere(self._agent, EXPORT, dict.fromkeys(nodes, query)).items():
                    if "mounts" in fact and fact["key"] == keys[node, name]:
                        known[node][name] = tuple(
                            Bind(mount["source"], os.path.normpath(mount["target"]), read_only=mount["read_only"])
                            for mount in fact["mounts"]
                        )
            self._known[goal.target] = known
        return known
