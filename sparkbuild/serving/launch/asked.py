"""What the nodes of a launch are asked beside their lanes: what they are, and what keeps the launch from working."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TypedDict, cast

from sparkbuild.agent.wire.engine import DockerFact
from sparkbuild.agent.wire.nodes import NODE, PREFLIGHT, Hca, Interface, NodeAsk, PreflightAsk, Unreachable
from sparkbuild.core.run import Agent
from sparkbuild.nodes.ask import look_everywhere


class NodeSeen(TypedDict, total=False):
    """What of a NodeFact a launch is judged by; or why nothing is known: the node is `unreachable`, or there is a
    `problem` alone. Of a lane of this machine that is a process, nothing is asked.
    """

    host: str
    boot_id: str
    user: str
    uid: int
    driver: str
    interfaces: list[Interface]
    hcas: list[Hca]
    docker: DockerFact
    problems: dict[str, str]
    problem: str
    unreachable: str


class Checked(TypedDict, total=False):
    """A PreflightFact, or why nothing is known, as of NodeSeen; `unreachable` is a text then."""

    missing: list[str]
    devices_missing: list[str]
    not_devices: list[str]
    unknown: dict[str, str]
    unreachable: list[Unreachable] | str
    memory_available: int
    memory_own: int
    ends_with_login: str
    problem: str


def see(agent: Callable[[str], Agent], nodes: Iterable[str], images: list[str]) -> dict[str, NodeSeen]:
    """What the nodes say of themselves now, and of these images."""
    # of a NodeFact, an Absent and an Unreached, each key that a NodeSeen has means the same there
    return cast("dict[str, NodeSeen]", look_everywhere(agent, NODE, dict.fromkeys(nodes, NodeAsk(images=images))))


def check(agent: Callable[[str], Agent], asks: Mapping[str, PreflightAsk]) -> dict[str, Checked]:
    """What the nodes say of what a launch needs of each."""
    return cast("dict[str, Checked]", look_everywhere(agent, PREFLIGHT, asks))  # as above
