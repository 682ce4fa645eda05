"""The state of a lane in words, from what its ranks' facts say, and nothing more than they say. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum, auto
from typing import Any, NamedTuple

import msgspec

from sparkbuild.agent.wire.lanelabels import ALIVE
from sparkbuild.serving.judge import Seen, process_elsewhere

_AWAY = "does not answer"


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


class _Silence(NamedTuple):
    """Why nothing is known of a rank. `away`: its node as a whole does not answer."""

    text: str
    away: bool = False


class LaneState(msgspec.Struct, frozen=True):
    """`main` is one of the states of docs/commands.md, `remarks` what else is true. `record` is the one that it was
    taken from, rank 0's where there is one; `alive`: that rank lives. `nodes`: where it was launched, in rank order.
    """

    phase: Phase
    main: str
    remarks: tuple[str, ...] = ()
    record: dict[str, Any] | None = None
    node: str = ""
    alive: bool = False
    nodes: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """All of it."""
        return "; ".join((self.main, *self.remarks))

    @property
    def over(self) -> bool:
        """Whether nothing of it runs."""
        return self.phase in _OVER


def state(recipe: str, seen: Sequence[Seen], runtime: str, wanted: tuple[str, ...] = ()) -> LaneState:
    """The state of a lane of which some nodes were `seen`. `wanted` are those that the recipe has, in rank order, and
    seen first; none when it cannot be read. It may run on others, where it was launched before they were changed.
    """
    silent = {one.node: text for one in seen if (text := _unknown(one, runtime))}
    living = [one for one in seen if one.alive and one.node not in silent]
    recorded = [one for one in seen if one.record]
    boxes = _unrecorded(seen)
    others = tuple(f"another store's lane of this recipe runs on {one.node}" for one in seen if _has_other(one, recipe))
    others += tuple(process_elsewhere(lane, one.node) for one in seen for lane in _elsewhere(one, recipe))
    others += tuple(f"{one.node}: {text}" for one in seen for text in one.fact.get("unread") or () if recipe in text)
    head = next((one for one in living if _rank(one) == 0), None)
    if head is not None:
        silent = {node: text for node, text in silent.items() if node in (*wanted, *launched(head))}
        return _headed(head, seen, silent, wanted, (*boxes, *_told(silent), *others))
    remarks = (*_told(silent), *others)
    if living:
        return _headless(living, seen, silent, wanted, (*boxes, *remarks))
    if boxes:
        holder = next(one.node for one in seen if _unrecorded([one]))
        main = f"unrecorded ({', '.join(boxes)})"
        return LaneState(Phase.UNRECORDED, main, remarks, node=holder, nodes=wanted)
    # what rank 0's node says counts; as long as no node has a record, each must say that nothing runs
    if silent and (not recorded or (wanted and wanted[0] in silent)):
        ended = [f"rank {_rank(one)} on {one.node} does not run" for one in recorded if one.node not in silent]
        main = f"unknown ({'; '.join(_told(silent))})"
        return LaneState(Phase.UNKNOWN, main, (*ended, *others), node=seen[0].node, nodes=wanted)
    if not recorded:
        return LaneState(Phase.NOT_RUNNING, "not running", remarks, node=seen[0].node, nodes=wanted)
    last = min(recorded, key=lambda one: (_rank(one), -float((one.record or {}).get("launched_at") or 0)))
    return LaneState(*_ended(last), remarks, last.record, last.node, nodes=launched(last))


def _unknown(one: Seen, runtime: str) -> _Silence | None:
    """Why nothing is known of a rank; None when something is."""
    if "unreachable" in one.fact:
        return _Silence(f"{one.node} {_AWAY}", away=True)
    if "alive" not in one.fact:
        problem = one.fact.get("problem") or "it says nothing of the lane"
        return _Silence(f"{one.node} cannot be looked at: {problem}")
    if one.fact.get("docker_problem") and (runtime == "docker" or (one.record or {}).get("container")):
        return _Silence(f"docker on {one.node} cannot be asked: {one.fact['docker_problem']}")
    return None


def launched(one: Seen) -> tuple[str, ...]:
    """The nodes of the launch that a rank's record is of, in rank order."""
    parts = (one.record or {}).get("parts") or {}
    return tuple(parts.get("nodes") or (one.node,))


def _headed(
    head: Seen, seen: Sequence[Seen], silent: dict[str, _Silence], wanted: tuple[str, ...], remarks: tuple[str, ...]
) -> LaneState:
    """Rank 0 lives: do all others of its launch?"""
    nodes = launched(head)
    looked_at = {one.node: one for one in seen}
    wrong = [_wrong(node, rank, looked_at[node], head) for rank, node in enumerate(nodes) if node in looked_at]
    dead = [text for (node, kind, text) in wrong if kind == "dead" and node not in silent]
    other = [text for (node, kind, text) in wrong if kind == "other" and node not in silent]
    told = [*([f"{', '.join(dead)} does not run"] if dead else []), *other]
    phase, main = (Phase.BROKEN, f"broken ({', '.join(told)})") if told else _living(head)
    unseen = [node for node in nodes if node not in looked_at]
    if wanted and nodes != wanted:
        but = f", and {', '.join(unseen)} was not looked at" if unseen else ""
        remarks = (f"launched on {', '.join(nodes)}{but}", *remarks)
    return LaneState(phase, main, remarks, head.record, head.node, alive=True, nodes=nodes)


def _wrong(node: str, rank: int, one: Seen, head: Seen) -> tuple[str, str, str]:
    launch = (head.record or {}).get("launch")
    if one.alive and one.fact.get("again") and one is not head:
        return node, "other", f"rank {_rank(one)} on {node}: {one.fact['again']}"
    if one.alive:
        other = (one.record or {}).get("launch") != launch
        return node, "other" if other else "", f"rank {_rank(one)} on {node} is of another launch"
    if any(box.get("launch") == launch and box["state"] in ALIVE for box in one.fact.get("left") or ()):
        return node, "", ""  # it runs, though no record names it
    return node, "dead", f"rank {rank} on {node}"


def _headless(
    living: list[Seen],
    seen: Sequence[Seen],
    silent: dict[str, _Silence],
    wanted: tuple[str, ...],
    remarks: tuple[str, ...],
) -> LaneState:
    """Ranks live that serve nobody: what of their rank 0?"""
    first = living[0]
    nodes = launched(first)
    head = next((one for one in seen if one.node == nodes[0]), None)
    of = f" of a launch on {', '.join(nodes)}" if wanted and nodes != wanted else ""
    run = tuple(f"rank {_rank(one)}{of} runs on {one.node}" for one in living)
    if head is None:
        phase, main = Phase.UNKNOWN, f"unknown ({', '.join(run)}; {nodes[0]} was not looked at)"
    elif head.node in silent:
        phase, main = Phase.UNKNOWN, f"unknown ({silent[head.node].text})"
        remarks = (*run, *(text for text in remarks if text != silent[head.node].text))
    elif _unrecorded([head]):
        boxes = _unrecorded([head])
        phase, main = Phase.UNRECORDED, f"unrecorded ({', '.join(boxes)})"
        remarks = (*run, *(text for text in remarks if text not in boxes))
    else:
        phase, main = Phase.BROKEN, f"broken (rank 0 on {nodes[0]} does not run)"
        remarks = (*run, *remarks)
    return LaneState(phase, main, remarks, first.record, first.node, alive=True, nodes=nodes)


def _living(head: Seen) -> tuple[Phase, str]:
    record = head.record or {}
    if not record.get("ready"):
        return Phase.STARTING, "starting"
    if not head.fact.get("answers"):
        return Phase.NOT_ANSWERING, f"not answering ({head.fact.get('problem') or 'does not listen'})"
    return Phase.SERVING, "serving" if record.get("served_at") else "serving, gates not passed"


def _ended(last: Seen) -> tuple[Phase, str]:
    record = last.record or {}
    if _rank(last) == 0 and not record.get("ready"):
        return Phase.DID_NOT_START, "did not start"
    return (Phase.STOPPED, "stopped") if record.get("stopped_at") else (Phase.DEAD, "dead (was not stopped)")


def _rank(one: Seen) -> int:
    return int((one.record or {}).get("rank") or 0)


def _told(silent: dict[str, _Silence]) -> list[str]:
    """One text for all nodes that do not answer, then what is wrong with the others."""
    away = [node for node, silence in silent.items() if silence.away]
    texts = [f"{', '.join(away)} {_AWAY if len(away) == 1 else 'do not answer'}"] if away else []
    return texts + [silence.text for silence in silent.values() if not silence.away]


def _unrecorded(seen: Sequence[Seen]) -> list[str]:
    """Containers of the recipe that live, and that no record names."""
    return [
        f"container {box['name']} runs on {one.node} without a record"
        for one in seen
        for box in one.fact.get("left") or ()
        if box["state"] in ALIVE
    ]


def _has_other(one: Seen, recipe: str) -> bool:
    return any(box["recipe"] == recipe for box in one.fact.get("foreign") or ())


def _elsewhere(one: Seen, recipe: str) -> list[dict[str, Any]]:
    return [lane for lane in one.fact.get("elsewhere") or () if lane["recipe"] == recipe]
