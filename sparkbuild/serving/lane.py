"""Lanes: a recipe running on a cluster. The goal, and what the facts say of it."""

from __future__ import annotations

import time
from typing import Any

import msgspec

from sparkbuild.core.goal import Goal, Input
from sparkbuild.core.key import Key
from sparkbuild.core.plan import OK, RUN, UNKNOWN, Verdict
from sparkbuild.core.reasons import Reason, changed, differences
from sparkbuild.core.state import Made
from sparkbuild.core.uri import Uri

# What can change without starting the engine again: these parts are only checked against the running lane.
CHECKED_PARTS = frozenset({"gates"})


class LaneSpec(msgspec.Struct, frozen=True):
    """How one recipe is served. `command` and `env` values are templates; `staged` maps block ids to folders on the
    node (relative to its store unless absolute); `image` is the image's folder in the store. Times in seconds.
    """

    recipe: str
    folder: str
    command: tuple[str, ...]
    env: dict[str, str]
    secrets: tuple[str, ...]
    port: int
    model_id: str
    ready_timeout: float
    stop_grace: float
    protect: bool
    image: str
    staged: dict[str, str]
    lock: str
    gates: tuple[Any, ...]
    host: str = "127.0.0.1"


def lane_goal(
    cluster: str,
    nodes: tuple[str, ...],
    spec: LaneSpec,
    *,
    image: Goal,
    staged: dict[str, Goal],
    inputs: tuple[Input, ...],
) -> Goal:
    """The goal of the recipe being served by the cluster."""
    parts: dict[str, Any] = {
        "runtime": "process",
        "image": image.key.short,
        "staged": {block: goal.key.short for block, goal in staged.items()},
        "command": list(spec.command),
        "env": dict(spec.env),
        "secrets": list(spec.secrets),
        "port": spec.port,
        "model_id": spec.model_id,
        "files": {item.path.removeprefix(f"{spec.folder}/"): item.sha256 for item in inputs},
        "gates": [msgspec.to_builtins(gate) for gate in spec.gates],
    }
    return Goal(
        task=f"serve:{spec.recipe}",
        uri=Uri("lane", cluster, spec.recipe),
        key=Key(parts),
        doc=f"serve {spec.model_id} on {cluster}, port {spec.port}",
        spec=spec,
        needs=(image, *staged.values()),
        inputs=inputs,
        pools=nodes,
        hosts=nodes,
    )


def launch_parts(parts: dict[str, Any]) -> dict[str, Any]:
    """The parts that decide what process runs."""
    return {name: value for name, value in parts.items() if name not in CHECKED_PARTS}


def judge(goal: Goal, fact: dict[str, Any], last: Made | None) -> Verdict:
    """Is the right lane running, ready and checked; if not, why."""
    if "unreachable" in fact:
        return Verdict(UNKNOWN, (Reason("node", f"{goal.nodes[0]} does not answer: {fact['unreachable']}"),), None)
    reasons = tuple(_reasons(goal, fact, last))
    return Verdict(RUN, reasons, 0, fact) if reasons else Verdict(OK, (), 0, fact, _told(fact["record"]))


def _told(record: dict[str, Any]) -> str:
    ready, gates = record["ready"], record.get("gates") or ()
    since = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(record["served_at"]))
    return (
        f"{record['model_id']} at http://{record['host']}:{record['port']}/v1 since {since}"
        f" (ready after {ready['seconds']:.1f} s, first token after {ready['ttft']:.2f} s, {len(gates)} gates passed)"
    )


def steps(goal: Goal, fact: dict[str, Any], *, force: bool = False) -> tuple[str, ...]:
    """What must be done, in order, of: stop, launch, ready, gates, protect. Pure; nothing when the lane is right."""
    record = fact.get("record")
    if not fact.get("alive") or record is None:
        return ("launch", "ready", "gates")
    if force or launch_parts(record["parts"]) != launch_parts(goal.key.parts):
        return ("stop", "launch", "ready", "gates")
    if not record.get("ready") or not fact.get("answers") or goal.spec.model_id not in fact.get("served_ids", ()):
        return ("ready", "gates")
    if not _gated(record, goal):
        return ("gates",)
    if bool(record.get("protect")) != goal.spec.protect:
        return ("protect",)
    return ()


def _gated(record: dict[str, Any], goal: Goal) -> bool:
    return record.get("key") == goal.key.digest and record.get("served_at") is not None


def _reasons(goal: Goal, fact: dict[str, Any], last: Made | None) -> list[Reason]:
    record = fact.get("record")
    if record is None:
        text = "was served before, its record is gone" if last else "not served yet"
        return [Reason("lane", text), *_port_taken(goal, fact)]
    if not fact["alive"]:
        return [_gone(record, fact), *differences(record["parts"], goal.key.parts), *_port_taken(goal, fact)]
    spec: LaneSpec = goal.spec
    found = list(differences(record["parts"], goal.key.parts))
    if launch_parts(record["parts"]) != launch_parts(goal.key.parts):
        if record.get("protect") or spec.protect:
            found.append(Reason("protect", f"the running lane is protected: doit stop:{spec.recipe} first"))
        return [*found, *_port_taken(goal, fact)]
    if not record.get("ready"):
        found.append(Reason("ready", f"process {record['pid']} runs, but was not ready when last looked at"))
    elif not fact["answers"]:
        found.append(Reason("answers", f"process {record['pid']} runs, but {fact.get('problem') or 'does not listen'}"))
    elif spec.model_id not in fact["served_ids"]:
        ids = ", ".join(fact["served_ids"])
        found.append(Reason("model_id", f"model id: {ids} -> {spec.model_id}", ids, spec.model_id))
    elif record.get("served_at") is None and not found:
        failed = [gate["id"] for gate in record.get("gates") or () if not gate.get("ok")]
        found.append(Reason("gates", f"gates failed: {', '.join(failed)}" if failed else "gates not passed yet"))
    elif not found and bool(record.get("protect")) != spec.protect:
        found.append(changed("protect", bool(record.get("protect")), spec.protect))
    return found


def _port_taken(goal: Goal, fact: dict[str, Any]) -> tuple[Reason, ...]:
    """A launch would fail: better said by the plan than by the launch."""
    holder = fact.get("port_holder")
    if not holder:
        return ()
    who = f"process {holder['pid']} of {holder['user']}" if holder["pid"] else "a process of another user"
    if holder.get("lane"):
        who = f"lane {holder['lane']} ({who}): doit stop:{holder['lane']}"
    return (Reason("port", f"port {goal.spec.port} is held by {who}"),)


def _gone(record: dict[str, Any], fact: dict[str, Any]) -> Reason:
    if record.get("stopped_at"):
        when = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(record["stopped_at"]))
        return Reason("lane", f"was stopped at {when}")
    lines = [line for line in fact.get("last_lines") or () if line.strip()]
    last = f"; last line of its log: {lines[-1].strip()[:160]}" if lines else ""
    return Reason("lane", f"process {record['pid']} is gone without having been stopped{last}")
