"""The state of a lane in words, from what its ranks' facts say, and nothing more than they say. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum, auto
from typing import NamedTuple

import msgspec

from sparkbuild.agent.wire.lanelabels import ALIVE
from sparkbuild.agent.wire.records import LaneRecord
from sparkbuild.serving.ranks import NO_RECORD, Seen, Silence, Why, process_elsewhere, silence


class Phase(Enum):
    """Where a lane is in its life; the words for it, with what is wrong, are `LaneState.main`."""

    NOT_RUNNING = auto()
    DID_NOT_START = auto()
    STOPPED = auto()
    DEAD = auto()
    STARTING = auto()
    SERVING = auto()
    NOT_ANSWERING = auto()
    BROKEN = auto()
    UNRECORDED = auto()
    UNKNOWN = auto()


_OVER = frozenset({Phase.NOT_RUNNING, Phase.DID_NOT_START, Phase.STOPPED, Phase.DEAD})


class LaneState(msgspec.Struct, frozen=True):
    """`main` is one of the states of docs/commands.md, `remarks` what else is true. `record` is the one that it was
    taken from, rank 0's where there is one; `alive`: that rank lives. `nodes`: where it was launched, in rank order.
    """

    phase: Phase
    main: str
    remarks: tuple[str, ...] = ()
    record: LaneRecord | None = None
    node: str = ""
    alive: bool = False
    nodes: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """All of it."""
        return "; ".join((self.main, *self.remarks))

    @property
    def recorded(self) -> LaneRecord:
        """Its record, an empty one when there is none."""
        return self.record or NO_RECORD

    @property
    def over(self) -> bool:
        """Whether nothing of it runs."""
        return self.phase in _OVER


class _Beside(NamedTuple):
    """What is true beside the state of a lane: containers of it that no record names, in words, by node; the nodes of
    which nothing is known; and other lanes and records that are in its way, in words.
    """

    boxes: dict[str, list[str]]
    silent: dict[str, Silence]
    others: tuple[str, ...]

    def texts(self, *, told: str = "") -> tuple[str, ...]:
        """All of it; less what the state says already of the node `told`."""
        boxes = [text for node, texts in self.boxes.items() if node != told for text in texts]
        silent = {node: silent for node, silent in self.silent.items() if node != told}
        return (*boxes, *_told(silent), *self.others)


def state(recipe: str, seen: Sequence[Seen], runtime: str, wanted: tuple[str, ...] = ()) -> LaneState:
    """The state of a lane of which some nodes were `seen`. `wanted` are those that the recipe has, in rank order, and
    seen first; none when it cannot be read. It may run on others, where it was launched before they were changed.
    """
    silent = {rank.node: why for rank in seen if (why := silence(rank, runtime))}
    living = [rank for rank in seen if rank.alive and rank.node not in silent]
    recorded = [rank for rank in seen if rank.record]
    boxes = {rank.node: texts for rank in seen if (texts := _unrecorded(rank))}
    beside = _Beside(boxes, silent, _others(recipe, seen))
    head = next((rank for rank in living if _rank(rank) == 0), None)
    if head is not None:
        of_launch = {node: why for node, why in silent.items() if node in (*wanted, *launched(head))}
        return _headed(head, seen, wanted, beside._replace(silent=of_launch))
    if living:
        return _headless(living, seen, wanted, beside)
    remarks = beside._replace(boxes={}).texts()
    if boxes:
        main = f"unrecorded ({', '.join(text for texts in boxes.values() for text in texts)})"
        return LaneState(Phase.UNRECORDED, main, remarks, node=next(iter(boxes)), nodes=wanted)
    # what rank 0's node says counts; as long as no node has a record, each must say that nothing runs
    if silent and (not recorded or (wanted and wanted[0] in silent)):
        ended = [f"rank {_rank(rank)} on {rank.node} does not run" for rank in recorded if rank.node not in silent]
        main = f"unknown ({'; '.join(_told(silent))})"
        return LaneState(Phase.UNKNOWN, main, (*ended, *beside.others), node=seen[0].node, nodes=wanted)
    if not recorded:
        return LaneState(Phase.NOT_RUNNING, "not running", remarks, node=seen[0].node, nodes=wanted)
    last = min(recorded, key=lambda rank: (_rank(rank), -rank.recorded.get("launched_at", 0.0)))
    return LaneState(*_ended(last), remarks, last.record, last.node, nodes=launched(last))


def launched(rank: Seen) -> tuple[str, ...]:
    """The nodes of the launch that a rank's record is of, in rank order."""
    return tuple(rank.launched_on or (rank.node,))


def _headed(head: Seen, seen: Sequence[Seen], wanted: tuple[str, ...], beside: _Beside) -> LaneState:
    """Rank 0 lives: do all others of its launch?"""
    nodes = launched(head)
    looked_at = {rank.node: rank for rank in seen}
    known = [(number, looked_at[node]) for number, node in enumerate(nodes) if node in looked_at]
    wrong = [_wrong(number, rank, head) for number, rank in known if rank.node not in beside.silent]
    dead = [text for is_dead, text in wrong if is_dead]
    told = [
        *([f"{', '.join(dead)} does not run"] if dead else []),
        *(text for is_dead, text in wrong if not is_dead and text),
    ]
    phase, main = (Phase.BROKEN, f"broken ({', '.join(told)})") if told else _living(head)
    unseen = [node for node in nodes if node not in looked_at]
    remarks = beside.texts()
    if wanted and nodes != wanted:
        but = f", and {', '.join(unseen)} was not looked at" if unseen else ""
        remarks = (f"launched on {', '.join(nodes)}{but}", *remarks)
    return LaneState(phase, main, remarks, head.record, head.node, alive=True, nodes=nodes)


def _wrong(number: int, rank: Seen, head: Seen) -> tuple[bool, str]:
    """Whether a rank of the head's launch does not run, and what is wrong with it, "" when nothing is."""
    launch = head.recorded.get("launch")
    place = f"rank {_rank(rank)} on {rank.node}"
    if rank.alive and rank.fact.get("again") and rank is not head:
        return False, f"{place}: {rank.fact['again']}"
    if rank.alive:
        return False, "" if rank.recorded.get("launch") == launch else f"{place} is of another launch"
    if any(box.get("launch") == launch and box["state"] in ALIVE for box in rank.fact.get("left") or ()):
        return False, ""  # it runs, though no record names it
    return True, f"rank {number} on {rank.node}"


def _headless(living: list[Seen], seen: Sequence[Seen], wanted: tuple[str, ...], beside: _Beside) -> LaneState:
    """Ranks live that serve nobody: what of their rank 0?"""
    first = living[0]
    nodes = launched(first)
    head = next((rank for rank in seen if rank.node == nodes[0]), None)
    launch = f" of a launch on {', '.join(nodes)}" if wanted and nodes != wanted else ""
    run = tuple(f"rank {_rank(rank)}{launch} runs on {rank.node}" for rank in living)
    if head is None:
        phase, main = Phase.UNKNOWN, f"unknown ({', '.join(run)}; {nodes[0]} was not looked at)"
        remarks = beside.texts()
    elif head.node in beside.silent:
        phase, main = Phase.UNKNOWN, f"unknown ({_text(head.node, beside.silent[head.node])})"
        remarks = (*run, *beside.texts(told=head.node))
    elif head.node in beside.boxes:
        phase, main = Phase.UNRECORDED, f"unrecorded ({', '.join(beside.boxes[head.node])})"
        remarks = (*run, *beside.texts(told=head.node))
    else:
        phase, main = Phase.BROKEN, f"broken (rank 0 on {nodes[0]} does not run)"
        remarks = (*run, *beside.texts())
    return LaneState(phase, main, remarks, first.record, first.node, alive=True, nodes=nodes)


def _living(head: Seen) -> tuple[Phase, str]:
    if not head.recorded.get("ready"):
        return Phase.STARTING, "starting"
    if not head.fact.get("answers"):
        return Phase.NOT_ANSWERING, f"not answering ({head.fact.get('problem') or 'does not listen'})"
    return Phase.SERVING, "serving" if head.recorded.get("served_at") else "serving, gates not passed"


def _ended(last: Seen) -> tuple[Phase, str]:
    if _rank(last) == 0 and not last.recorded.get("ready"):
        return Phase.DID_NOT_START, "did not start"
    return (Phase.STOPPED, "stopped") if last.recorded.get("stopped_at") else (Phase.DEAD, "dead (was not stopped)")


def _rank(rank: Seen) -> int:
    return rank.recorded.get("rank", 0)


def _told(silent: dict[str, Silence]) -> list[str]:
    """One text for all nodes that do not answer, then what is wrong with the others."""
    away = [node for node, silent_ in silent.items() if silent_.why is Why.AWAY]
    texts = [f"{', '.join(away)} do not answer" if len(away) > 1 else _text(away[0], silent[away[0]])] if away else []
    return texts + [_text(node, why) for node, why in silent.items() if why.why is not Why.AWAY]


def _text(node: str, silent: Silence) -> str:
    if silent.why is Why.AWAY:
        return f"{node} does not answer"
    if silent.why is Why.UNSEEN:
        return f"{node} cannot be looked at: {silent.problem}"
    return f"docker on {node} cannot be asked: {silent.problem}"


def _unrecorded(rank: Seen) -> list[str]:
    living = [box for box in rank.fact.get("left") or () if box["state"] in ALIVE]
    return [f"container {box['name']} runs on {rank.node} without a record" for box in living]


def _others(recipe: str, seen: Sequence[Seen]) -> tuple[str, ...]:
    """Lanes of the recipe that are another store's, and records of it that cannot be read."""
    boxes = [(rank.node, box) for rank in seen for box in rank.fact.get("foreign") or ()]
    nodes = dict.fromkeys(node for node, box in boxes if box["recipe"] == recipe)
    lanes = [(lane, rank.node) for rank in seen for lane in rank.fact.get("elsewhere") or ()]
    unread = [(rank.node, record) for rank in seen for record in rank.fact.get("unread") or ()]
    return (
        *(f"another store's lane of this recipe runs on {node}" for node in nodes),
        *(process_elsewhere(lane, node) for lane, node in lanes if lane["recipe"] == recipe),
        *(f"{node}: {record['text']}" for node, record in unread if record["recipe"] == recipe),
    )
