"""What the facts say of a lane: is the right one running on all of its nodes, ready and checked; if not, why. Pure."""

from __future__ import annotations

import time
from typing import Any

import msgspec

from sparkbuild.agent.wire.printable import one_line
from sparkbuild.core.goal import Goal
from sparkbuild.core.plan import OK, RUN, UNKNOWN, Verdict
from sparkbuild.core.reasons import Reason, changed, differences
from sparkbuild.core.state import Made
from sparkbuild.core.units import count, size
from sparkbuild.serving.lane import LaneSpec, launch_parts

Fact = dict[str, Any]


class Seen(msgspec.Struct, frozen=True):
    """One rank as it was seen."""

    rank: int
    node: str
    fact: Fact

    @property
    def record(self) -> dict[str, Any] | None:
        """The record of its last launch."""
        return self.fact.get("record")

    @property
    def alive(self) -> bool:
        """Does its process or container live."""
        return bool(self.fact.get("alive"))


def ranks_of(goal: Goal, fact: Fact) -> tuple[Seen, ...]:
    """A lane's fact by rank. On a cluster of one node it is that node's own."""
    if len(goal.nodes) == 1:
        return (Seen(0, goal.nodes[0], fact),)
    return tuple(Seen(rank, node, fact["ranks"][node]) for rank, node in enumerate(goal.nodes))


def who(record: dict[str, Any]) -> str:
    """What a record names, in words."""
    if record.get("runtime") == "docker":
        return f"container {record['container'][:12]}"
    return f"process {record['pid']}"


def foreign(box: Fact, node: str) -> str:
    """A container of another store, in words: whose it is."""
    by = f", launched by {box['by']}" if box.get("by") else ""
    return (
        f"container {box['name']} ({box['id'][:12]}) on {node} is of lane {box['recipe']} of another store"
        f" ({box['store']}, launch {box['launch']}{by}): only doit stop:{box['recipe']} of that workspace ends it"
    )


def process_elsewhere(lane: Fact, node: str) -> str:
    """A lane of another store that runs as processes, in words: whose it is, and what ends it."""
    ports = f", port {', '.join(map(str, lane['ports']))}" if lane["ports"] else ""
    what = f"process {lane['pid']} of {lane['user'] or 'another user'} on {node}{ports}, is of lane {lane['recipe']}"
    if lane["ours"]:
        return f"{what}, which no record names any more: on {node}, kill {lane['pid']} ends it"
    store = lane["store"] or "one that cannot be seen"
    return f"{what} of another store ({store}): only doit stop:{lane['recipe']} of that workspace ends it"


def judge(goal: Goal, fact: Fact, last: Made | None) -> Verdict:
    """Is the right lane running, ready and checked; if not, why."""
    seen = ranks_of(goal, fact)
    silent = tuple(_silent(goal, seen))
    if silent:
        return Verdict(UNKNOWN, silent, None, fact)
    reasons = tuple(_reasons(goal, seen, last))
    return Verdict(RUN, reasons, 0, fact) if reasons else Verdict(OK, (), 0, fact, _told(goal, seen))


def _silent(goal: Goal, seen: tuple[Seen, ...]) -> list[Reason]:
    """Nodes of which nothing is known: launching again beside a lane that may run is the worst that could be done."""
    found = []
    for one in seen:
        if "unreachable" in one.fact:
            found.append(Reason("node", f"{one.node} does not answer: {one.fact['unreachable']}"))
        elif "alive" not in one.fact:
            problem = one.fact.get("problem") or "it says nothing of the lane"
            found.append(Reason("node", f"{one.node} could not be looked at: {problem}"))
        elif one.fact.get("docker_problem") and (goal.spec.runtime == "docker" or (one.record or {}).get("container")):
            found.append(Reason("docker", f"docker on {one.node}: {one.fact['docker_problem']}"))
    return found


def _told(goal: Goal, seen: tuple[Seen, ...]) -> str:
    record = seen[0].record or {}
    ready, gates = record["ready"], record.get("gates") or ()
    since = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(record["served_at"]))
    where = f" on {', '.join(goal.nodes)}" if len(seen) > 1 else ""
    # no part of the key: what a launch needs is no reason to end what was launched
    later = f"; min_memory = {size(goal.spec.min_memory)} counts at the next launch" if goal.spec.min_memory else ""
    return (
        f"{record['model_id']} at http://{record['host']}:{record['port']}/v1{where} since {since}"
        f" (ready after {ready['seconds']:.1f} s, first token after {ready['ttft']:.2f} s,"
        f" {count(len(gates), 'gate')} passed){later}"
    )


def steps(goal: Goal, fact: Fact, *, force: bool = False) -> tuple[str, ...]:
    """What must be done, in order, of: stop, launch, ready, gates, protect. Pure; nothing when the lane is right."""
    seen = ranks_of(goal, fact)
    head, record = seen[0].fact, seen[0].record
    if not any(one.alive for one in seen) or record is None:
        left = any(one.fact.get("left") for one in seen) or any(one.alive for one in seen)
        return ("stop", "launch", "ready", "gates") if left else ("launch", "ready", "gates")
    if force or _broken(seen) or launch_parts(record["parts"]) != launch_parts(goal.key.parts):
        return ("stop", "launch", "ready", "gates")
    if not record.get("ready") or not head.get("answers") or goal.spec.model_id not in head.get("served_ids", ()):
        return ("ready", "gates")
    if not _gated(record, goal):
        return ("gates",)
    if bool(record.get("protect")) != goal.spec.protect:
        return ("protect",)
    return ()


def _gated(record: dict[str, Any], goal: Goal) -> bool:
    return record.get("key") == goal.key.digest and record.get("served_at") is not None


def _broken(seen: tuple[Seen, ...]) -> bool:
    """Some ranks live and some do not, or they are of different launches: together they serve nothing."""
    launches = {(one.record or {}).get("launch") for one in seen}
    # one rank that was started again may have its gates run again; of several, the others do not know it any more
    again = bool(_again(seen)) and len(seen) > 1
    frozen = any(one.alive and one.fact.get("frozen") for one in seen)
    return not all(one.alive for one in seen) or len(launches) > 1 or again or frozen


def _again(seen: tuple[Seen, ...]) -> list[str]:
    return [one.fact["again"] for one in seen if one.alive and one.fact.get("again")]


def _reasons(goal: Goal, seen: tuple[Seen, ...], last: Made | None) -> list[Reason]:
    head = seen[0]
    record = head.record
    if not any(one.alive for one in seen):
        if not any(one.record for one in seen):
            text = "was served before, its record is gone" if last else "not served yet"
            found = [Reason("lane", text)]
        else:
            found = [_gone(seen), *(differences(record["parts"], goal.key.parts) if record else ())]
        return [*found, *_in_the_way(goal, seen)]
    spec: LaneSpec = goal.spec
    if _broken(seen) or record is None:
        found = [*_lost(seen), *(differences(record["parts"], goal.key.parts) if record else ())]
        return [*found, *_protected(goal, seen), *_in_the_way(goal, seen)]
    found = list(differences(record["parts"], goal.key.parts))
    if launch_parts(record["parts"]) != launch_parts(goal.key.parts):
        return [*found, *_protected(goal, seen), *_in_the_way(goal, seen)]
    if not record.get("ready"):
        found.append(Reason("ready", f"{who(record)} runs, but was not ready when last looked at"))
    elif not head.fact.get("answers"):
        problem = head.fact.get("problem") or "does not listen"
        found.append(Reason("answers", f"{who(record)} runs, but {problem}"))
    elif spec.model_id not in (head.fact.get("served_ids") or ()):
        ids = one_line(", ".join(head.fact.get("served_ids") or ()))
        found.append(Reason("model_id", f"model id: {ids} -> {spec.model_id}", ids, spec.model_id))
    elif record.get("served_at") is None and not found:
        failed = [gate["id"] for gate in record.get("gates") or () if not gate.get("ok")]
        found.append(Reason("gates", f"gates failed: {', '.join(failed)}" if failed else "gates not passed yet"))
    elif not found and bool(record.get("protect")) != spec.protect:
        found.append(changed("protect", bool(record.get("protect")), spec.protect))
    return found


def _lost(seen: tuple[Seen, ...]) -> list[Reason]:
    """Which ranks do not belong to the ones that live."""
    found = []
    launch = next((one.record["launch"] for one in seen if one.alive and one.record and one.record.get("launch")), None)
    for one in seen:
        place = f"rank {one.rank} on {one.node}"
        if one.record is None:
            found.append(Reason("rank", f"{place} was never launched"))
        elif not one.alive:
            found.append(Reason("rank", f"{place}: {_ended(one)}"))
        elif one.record.get("launch") != launch:
            found.append(Reason("rank", f"{place} is of another launch"))
        elif one.fact.get("again"):
            text = f"{who(one.record)} runs, but {one.fact['again']}"
            found.append(Reason("rank", f"{place}: {text}" if len(seen) > 1 else text))
    return found


def _protected(goal: Goal, seen: tuple[Seen, ...]) -> list[Reason]:
    records = [one.record for one in seen if one.record and one.alive]
    if not records or not (goal.spec.protect or any(record.get("protect") for record in records)):
        return []
    return [Reason("protect", f"the running lane is protected: doit stop:{goal.spec.recipe} first")]


def _in_the_way(goal: Goal, seen: tuple[Seen, ...]) -> list[Reason]:
    """What a launch would fail of: better said by the plan than by the launch."""
    found = []
    for one in seen:
        place = f" on {one.node}" if len(seen) > 1 else ""
        holder = one.fact.get("port_holder") if one.rank == 0 else None
        if holder and holder.get("container") and holder.get("lane") == goal.spec.recipe:
            holder = None  # it is named below: a launch removes it
        if holder:
            by = f"process {holder['pid']} of {holder['user']}" if holder["pid"] else holder["command"]
            if holder.get("container"):
                by = f"container {holder['container']}"
            if holder.get("lane"):
                by = f"lane {holder['lane']} ({by}): doit stop:{holder['lane']}"
            found.append(Reason("port", f"port {goal.spec.port}{place} is held by {by}"))
        found += [Reason("occupied", f"{one.node} serves lane {other}: doit stop:{other}") for other in _others(one)]
        found += [Reason("occupied", foreign(box, one.node)) for box in one.fact.get("foreign") or ()]
        elsewhere = one.fact.get("elsewhere") or ()
        found += [Reason("occupied", process_elsewhere(lane, one.node)) for lane in elsewhere]
        found += [Reason("unread", f"{one.node}: {text}") for text in one.fact.get("unread") or ()]
        if one.fact.get("stranger"):
            text = f"a container that is not ours has the name sparkbuild-{goal.spec.recipe}{place}"
            found.append(Reason("stranger", f"{text}: {one.fact['stranger']}"))
        for box in one.fact.get("left") or ():
            text = f"{box['name']} ({box['id'][:12]}, {box['status'] or box['state']})"
            text = f"a container of an earlier launch is left{place} and will be removed: {text}"
            found.append(Reason("left", text, remark=True))
    return found


def _others(one: Seen) -> list[str]:
    """Lanes that hold the node; one that also holds the port was named already."""
    holder = (one.fact.get("port_holder") or {}).get("lane")
    return [name for name in one.fact.get("others") or () if name != holder]


def _gone(seen: tuple[Seen, ...]) -> Reason:
    """How the lane ended: as its head says, or the first rank that has something to say."""
    stopped = [one.record["stopped_at"] for one in seen if one.record and one.record.get("stopped_at")]
    if stopped:
        when = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(max(stopped)))
        return Reason("lane", f"was stopped at {when}")
    if len(seen) == 1:
        return Reason("lane", _ended(seen[0]))
    told = [f"rank {one.rank} on {one.node}: {_ended(one)}" for one in seen if one.record]
    return Reason("lane", "; ".join(told))


def _ended(one: Seen) -> str:
    lines = [line for line in one.fact.get("last_lines") or () if line.strip()]
    last = f"; last line of its log: {one_line(lines[-1], 160)}" if lines else ""
    state = f" ({one.fact['state']})" if one.fact.get("state") else ""
    record = one.record or {}
    return f"{who(record)} is gone without having been stopped{state}{last}"
