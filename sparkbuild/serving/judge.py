"""What the facts say of a lane: is the right one running on all of its nodes, ready and checked; if not, why. Pure."""

from __future__ import annotations

import time

from sparkbuild.agent.wire.printable import one_line
from sparkbuild.core.goal import Goal
from sparkbuild.core.plan import OK, RUN, UNKNOWN, Verdict
from sparkbuild.core.reasons import Reason, changed, differences
from sparkbuild.core.state import Made
from sparkbuild.core.units import count, size
from sparkbuild.serving.lane import LaneSpec, launch_parts
from sparkbuild.serving.ranks import LaneSeen, Seen, Why, not_ours, ranks_of, silence, who

_SILENCES = {
    Why.AWAY: "{node} does not answer: {problem}",
    Why.UNSEEN: "{node} could not be looked at: {problem}",
    Why.DOCKER: "docker on {node}: {problem}",
}


def judge(goal: Goal, fact: LaneSeen, last: Made | None) -> Verdict:
    """Is the right lane running, ready and checked; if not, why."""
    seen = ranks_of(goal, fact)
    silent = tuple(_silent(goal, seen))
    if silent:
        return Verdict(UNKNOWN, silent, None, fact)
    reasons = tuple(_reasons(goal, seen, last))
    return Verdict(RUN, reasons, 0, fact) if reasons else Verdict(OK, (), 0, fact, _told(goal, seen))


def _silent(goal: Goal, seen: tuple[Seen, ...]) -> list[Reason]:
    """Nodes of which nothing is known: launching again beside a lane that may run is the worst that could be done."""
    silences = [(rank.node, silent) for rank in seen if (silent := silence(rank, goal.spec.runtime))]
    return [
        Reason("docker" if why is Why.DOCKER else "node", _SILENCES[why].format(node=node, problem=problem))
        for node, (why, problem) in silences
    ]


def _told(goal: Goal, seen: tuple[Seen, ...]) -> str:
    record = seen[0].recorded
    ready, gates, served_at = record.get("ready"), record.get("gates") or (), record.get("served_at")
    if ready is None or served_at is None:  # nothing is ok without them
        return ""
    since = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(served_at))
    where = f" on {', '.join(goal.nodes)}" if len(seen) > 1 else ""
    # no part of the key: what a launch needs is no reason to end what was launched
    later = f"; min_memory = {size(goal.spec.min_memory)} counts at the next launch" if goal.spec.min_memory else ""
    return (
        f"{record['model_id']} at http://{record['host']}:{record['port']}/v1{where} since {since}"
        f" (ready after {ready['seconds']:.1f} s, first token after {ready['ttft']:.2f} s,"
        f" {count(len(gates), 'gate')} passed){later}"
    )


def steps(goal: Goal, fact: LaneSeen, *, force: bool = False) -> tuple[str, ...]:
    """What must be done, in order, of: stop, launch, ready, gates, protect. Pure; nothing when the lane is right."""
    seen = ranks_of(goal, fact)
    head, record = seen[0].fact, seen[0].record
    if not any(rank.alive for rank in seen) or record is None:
        left = any(rank.fact.get("left") for rank in seen) or any(rank.alive for rank in seen)
        return ("stop", "launch", "ready", "gates") if left else ("launch", "ready", "gates")
    if force or _broken(seen) or launch_parts(record["parts"]) != launch_parts(goal.key.parts):
        return ("stop", "launch", "ready", "gates")
    if not record.get("ready") or not head.get("answers") or goal.spec.model_id not in head.get("served_ids", ()):
        return ("ready", "gates")
    if record.get("key") != goal.key.digest or record.get("served_at") is None:
        return ("gates",)
    if bool(record.get("protect")) != goal.spec.protect:
        return ("protect",)
    return ()


def _broken(seen: tuple[Seen, ...]) -> bool:
    """Some ranks live and some do not, or they are of different launches: together they serve nothing."""
    launches = {rank.recorded.get("launch") for rank in seen}
    # one rank that was started again may have its gates run again; of several, the others do not know it any more
    again = len(seen) > 1 and any(rank.alive and rank.fact.get("again") for rank in seen)
    frozen = any(rank.alive and rank.fact.get("frozen") for rank in seen)
    return not all(rank.alive for rank in seen) or len(launches) > 1 or again or frozen


def _reasons(goal: Goal, seen: tuple[Seen, ...], last: Made | None) -> list[Reason]:
    head = seen[0]
    record = head.record
    reasons = list(differences(record["parts"], goal.key.parts)) if record else []
    if not any(rank.alive for rank in seen):
        text = "was served before, its record is gone" if last else "not served yet"
        gone = _gone(seen) if any(rank.record for rank in seen) else Reason("lane", text)
        return [gone, *reasons, *_in_the_way(goal, seen)]
    spec: LaneSpec = goal.spec
    if _broken(seen) or record is None:
        return [*_lost(seen), *reasons, *_protected(goal, seen), *_in_the_way(goal, seen)]
    if launch_parts(record["parts"]) != launch_parts(goal.key.parts):
        return [*reasons, *_protected(goal, seen), *_in_the_way(goal, seen)]
    if not record.get("ready"):
        reasons.append(Reason("ready", f"{who(record)} runs, but was not ready when last looked at"))
    elif not head.fact.get("answers"):
        problem = head.fact.get("problem") or "does not listen"
        reasons.append(Reason("answers", f"{who(record)} runs, but {problem}"))
    elif spec.model_id not in (head.fact.get("served_ids") or ()):
        ids = one_line(", ".join(head.fact.get("served_ids") or ()))
        reasons.append(Reason("model_id", f"model id: {ids} -> {spec.model_id}", ids, spec.model_id))
    elif record.get("served_at") is None and not reasons:
        failed = [gate["id"] for gate in record.get("gates") or () if not gate.get("ok")]
        reasons.append(Reason("gates", f"gates failed: {', '.join(failed)}" if failed else "gates not passed yet"))
    elif not reasons and bool(record.get("protect")) != spec.protect:
        reasons.append(changed("protect", bool(record.get("protect")), spec.protect))
    return reasons


def _lost(seen: tuple[Seen, ...]) -> list[Reason]:
    """Which ranks do not belong to the ones that live."""
    reasons = []
    launches = (rank.recorded.get("launch") for rank in seen if rank.alive)
    launch = next((launch for launch in launches if launch), None)
    for rank in seen:
        place = f"rank {rank.number} on {rank.node}"
        if rank.record is None:
            reasons.append(Reason("rank", f"{place} was never launched"))
        elif not rank.alive:
            reasons.append(Reason("rank", f"{place}: {_ended(rank)}"))
        elif rank.record.get("launch") != launch:
            reasons.append(Reason("rank", f"{place} is of another launch"))
        elif rank.fact.get("again"):
            text = f"{who(rank.record)} runs, but {rank.fact['again']}"
            reasons.append(Reason("rank", f"{place}: {text}" if len(seen) > 1 else text))
    return reasons


def _protected(goal: Goal, seen: tuple[Seen, ...]) -> list[Reason]:
    records = [rank.record for rank in seen if rank.record and rank.alive]
    if not records or not (goal.spec.protect or any(record.get("protect") for record in records)):
        return []
    return [Reason("protect", f"the running lane is protected: doit stop:{goal.spec.recipe} first")]


def _in_the_way(goal: Goal, seen: tuple[Seen, ...]) -> list[Reason]:
    """What a launch would fail of: better said by the plan than by the launch."""
    reasons = []
    for rank in seen:
        place = f" on {rank.node}" if len(seen) > 1 else ""
        holder = rank.fact.get("port_holder")
        holds = holder.get("lane") if holder else None
        # a container of this very lane is named below: a launch removes it
        if holder and rank.number == 0 and not (holder.get("container") and holds == goal.spec.recipe):
            by = f"process {holder['pid']} of {holder['user']}" if holder["pid"] else holder["command"]
            if holder.get("container"):
                by = f"container {holder['container']}"
            if holds:
                by = f"lane {holds} ({by}): doit stop:{holds}"
            reasons.append(Reason("port", f"port {goal.spec.port}{place} is held by {by}"))
        others = [name for name in rank.fact.get("others") or () if name != holds]  # that one is named above
        reasons += [Reason("occupied", f"{rank.node} serves lane {name}: doit stop:{name}") for name in others]
        not_our = not_ours(rank.node, rank.fact.get("foreign"), rank.fact.get("elsewhere"))
        reasons += [Reason("occupied", text) for text in not_our]
        reasons += [Reason("unread", f"{rank.node}: {unread['text']}") for unread in rank.fact.get("unread") or ()]
        if rank.fact.get("stranger"):
            text = f"a container that is not ours has the name sparkbuild-{goal.spec.recipe}{place}"
            reasons.append(Reason("stranger", f"{text}: {rank.fact['stranger']}"))
        for box in rank.fact.get("left") or ():
            text = f"{box['name']} ({box['id'][:12]}, {box['status'] or box['state']})"
            text = f"a container of an earlier launch is left{place} and will be removed: {text}"
            reasons.append(Reason("left", text, remark=True))
    return reasons


def _gone(seen: tuple[Seen, ...]) -> Reason:
    """How the lane ended: as its head says, or the first rank that has something to say."""
    times = (rank.recorded.get("stopped_at") for rank in seen)
    if stopped := [at for at in times if at]:
        when = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(max(stopped)))
        return Reason("lane", f"was stopped at {when}")
    if len(seen) == 1:
        return Reason("lane", _ended(seen[0]))
    told = [f"rank {rank.number} on {rank.node}: {_ended(rank)}" for rank in seen if rank.record]
    return Reason("lane", "; ".join(told))


def _ended(rank: Seen) -> str:
    lines = [line for line in rank.fact.get("last_lines") or () if line.strip()]
    last = f"; last line of its log: {one_line(lines[-1], 160)}" if lines else ""
    state = f" ({rank.fact['state']})" if rank.fact.get("state") else ""
    return f"{who(rank.recorded)} is gone without having been stopped{state}{last}"
