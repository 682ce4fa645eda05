"""What was seen of the ranks of a lane, one on each of its nodes, and what of it is said in more than one place."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import Enum, auto
from typing import NamedTuple, cast

import msgspec

from sparkbuild.agent.wire.lanes import LANE, LaneAsk, LaneMore
from sparkbuild.agent.wire.records import Box, LaneRecord, ProcessLane
from sparkbuild.core.goal import Goal
from sparkbuild.core.run import Agent
from sparkbuild.nodes.ask import look_everywhere


class RankFact(LaneMore, total=False):
    """A LaneFact; or why nothing is known: its node is `unreachable`, or has a `problem` in looking, and no `alive`."""

    record: LaneRecord | None
    alive: bool
    unreachable: str


class LaneSeen(RankFact, total=False):
    """A lane's fact: that of its node, or on several nodes those of its `ranks` by node."""

    ranks: dict[str, RankFact]


NO_RECORD: LaneRecord = {"parts": {}}


class Seen(msgspec.Struct, frozen=True):
    """One rank as it was seen."""

    number: int
    node: str
    fact: RankFact

    @property
    def record(self) -> LaneRecord | None:
        """The record of its last launch."""
        return self.fact.get("record")

    @property
    def alive(self) -> bool:
        """Does its process or container live."""
        return bool(self.fact.get("alive"))

    @property
    def recorded(self) -> LaneRecord:
        """The same, an empty one when there is none."""
        return self.record or NO_RECORD

    @property
    def launched_on(self) -> list[str]:
        """The nodes of that launch, in rank order; [] when that is not known."""
        return self.recorded["parts"].get("nodes") or []


class Why(Enum):
    """Why nothing is known of a rank: its node does not answer, could not look, or its docker does not say."""

    AWAY = auto()
    UNSEEN = auto()
    DOCKER = auto()


class Silence(NamedTuple):
    """And what was said instead."""

    why: Why
    problem: str


def silence(rank: Seen, runtime: str) -> Silence | None:
    """Why nothing is known of a rank of a lane of that runtime; None when something is."""
    if "unreachable" in rank.fact:
        return Silence(Why.AWAY, rank.fact["unreachable"])
    if "alive" not in rank.fact:
        return Silence(Why.UNSEEN, rank.fact.get("problem") or "it says nothing of the lane")
    problem = rank.fact.get("docker_problem")
    if problem and (runtime == "docker" or rank.recorded.get("container")):
        return Silence(Why.DOCKER, problem)
    return None


def ranks_of(goal: Goal, fact: LaneSeen) -> tuple[Seen, ...]:
    """A lane's fact by rank."""
    if len(goal.nodes) == 1:
        return (Seen(0, goal.nodes[0], fact),)
    return tuple(Seen(rank, node, fact["ranks"][node]) for rank, node in enumerate(goal.nodes))


def fact_of(goal: Goal, ranks: Mapping[str, RankFact]) -> LaneSeen:
    """The other way round."""
    if len(goal.nodes) > 1:
        return {"ranks": {node: ranks[node] for node in goal.nodes}}
    return cast("LaneSeen", ranks[goal.nodes[0]])  # which has no `ranks`


def look(agent: Callable[[str], Agent], nodes: Iterable[str], ask: LaneAsk) -> dict[str, RankFact]:
    """What the nodes say of a lane now."""
    # a LaneFact, an Absent and an Unreached have no key that a RankFact does not have with the same meaning
    return cast("dict[str, RankFact]", look_everywhere(agent, LANE, dict.fromkeys(nodes, ask)))


def who(record: LaneRecord) -> str:
    """What a record names, in words."""
    if record.get("runtime") == "docker":
        return f"container {record['container'][:12]}"
    return f"process {record['pid']}"


def not_ours(node: str, boxes: Iterable[Box] | None, lanes: Iterable[ProcessLane] | None) -> list[str]:
    """What runs on a node of other stores' lanes, as containers and as processes, in words."""
    texts = [_foreign(box, node) for box in boxes or ()]
    return texts + [process_elsewhere(lane, node) for lane in lanes or ()]


def _foreign(box: Box, node: str) -> str:
    by = f", launched by {box['by']}" if box.get("by") else ""
    return (
        f"container {box['name']} ({box['id'][:12]}) on {node} is of lane {box['recipe']} of another store"
        f" ({box['store']}, launch {box['launch']}{by}): only doit stop:{box['recipe']} of that workspace ends it"
    )


def process_elsewhere(lane: ProcessLane, node: str) -> str:
    """A lane of another store that runs as processes, in words: whose it is, and what ends it."""
    ports = f", port {', '.join(map(str, lane['ports']))}" if lane["ports"] else ""
    what = f"process {lane['pid']} of {lane['user'] or 'another user'} on {node}{ports}, is of lane {lane['recipe']}"
    if lane["ours"]:
        return f"{what}, which no record names any more: on {node}, kill {lane['pid']} ends it"
    store = lane["store"] or "one that cannot be seen"
    return f"{what} of another store ({store}): only doit stop:{lane['recipe']} of that workspace ends it"
