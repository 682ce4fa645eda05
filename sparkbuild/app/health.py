"""What the facts of a cluster's nodes say of its health: who holds them, what is wrong, what differs. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sparkbuild.core import units
from sparkbuild.core.errors import SparkbuildError
from sparkbuild.nodes.machines import same_machine
from sparkbuild.serving.container import store_id

SKEW = 2.0  # seconds a clock may be off; logs of several nodes are read together, and tokens have dates
_LIVING = frozenset({"running", "paused", "restarting"})
_HOLDING = _LIVING | {"created"}  # a container that was only created holds its name
_PARTS = ("arch", "driver", "kernel", "os", "docker", "python")
_UNASKED = "unknown (docker cannot be asked)"
_FATAL = frozenset({"arch", "driver"})  # ranks that differ in these do not work together


@dataclass(frozen=True)
class Look:
    """A node's answer, or the error instead of one. `began` and `ended` are unix seconds of this machine's clock;
    `store` is the path whose disk was asked for, `docker` whether a recipe needs docker there.
    """

    node: str
    fact: Mapping[str, Any] | None
    error: SparkbuildError | None = None
    began: float = 0.0
    ended: float = 0.0
    store: str = ""
    docker: bool = False


def cluster(name: str, looks: Sequence[Look]) -> dict[str, Any]:
    """The health of one cluster, as `--json` prints it; nodes in rank order."""
    nodes = [row(look) for look in looks]
    for node, first in same_machine({look.node: look.fact or {} for look in looks}).items():
        next(one for one in nodes if one["node"] == node)["problems"].append(f"it is the same machine as {first}")
    differs = differences(looks)
    wrong = any(node["problems"] for node in nodes) or any(one["fatal"] for one in differs)
    return {
        "cluster": name,
        "online": sum(node["online"] for node in nodes),
        "total": len(nodes),
        "ok": not wrong,
        "nodes": nodes,
        "differences": differs,
    }


def row(look: Look) -> dict[str, Any]:
    """One node. `problems` are sentences about what is wrong there; `where`, `found` and `next` those of an error."""
    found: dict[str, Any] = {"node": look.node, "online": False, "states": [], "problems": []}
    found |= {"where": "", "found": "", "next": ""}
    if look.error is not None or look.fact is None or "host" not in look.fact:
        error = look.error or SparkbuildError(str((look.fact or {}).get("problem") or "no answer"))
        what = error.what.partition("\n")[0]
        return {**found, "problems": [what], **{name: getattr(error, name) for name in ("where", "found", "next")}}
    fact = look.fact
    docker, disk = fact["docker"], fact["disks"].get(look.store) or {}
    states, problems = occupancy(fact, asked=look.docker, store=look.store)
    skew, unsure = clock(look)
    if abs(skew) - unsure > SKEW:
        problems.append(f"its clock is {abs(skew):.1f} s {'ahead of' if skew > 0 else 'behind'} this machine's")
    if docker["problem"] and (look.docker or docker["present"]):
        problems.append(docker["problem"])
    problems += _disk(look.store, disk)
    problems += [f"{name} cannot be looked at: {text}" for name, text in fact["problems"].items()]
    return {
        **found,
        "online": True,
        "states": states,
        "problems": problems,
        "memory_available": fact["memory"]["available"],
        "memory_total": fact["memory"]["total"],
        "disk_free": disk.get("free"),
        "disk_total": disk.get("total"),
        "clock_skew": round(skew, 3) if abs(skew) > unsure else 0.0,
        "docker": docker["version"],
    }


def occupancy(fact: Mapping[str, Any], *, asked: bool = False, store: str = "") -> tuple[list[str], list[str]]:
    """Who holds a node, and what of it should not be: lanes that run, leftovers of ours, strangers on the GPU. `asked`:
    a recipe needs docker there, so that a node is not free for want of an answer. `store` is ours on that node.
    """
    states, problems, unsure = [], [], False
    docker = fact["docker"]
    for lane in fact["lanes"]:
        if lane["alive"]:
            states.append(_lane(lane))
        elif lane["alive"] is None and not lane["stopped_at"]:
            unsure = True
            problems.append(f"whether {lane['recipe']} runs is not known: docker does not answer")
        elif lane["ready"] and not lane["stopped_at"]:
            problems.append(f"{lane['recipe']} is dead (was not stopped): doit logs {lane['recipe']}")
    held, wrong = _held(fact, store)
    states, problems = states + held, problems + wrong
    if docker["problem"] and (unsure or asked or docker["present"]):
        states.append(_UNASKED)
    return states or ["free"], problems


def _held(fact: Mapping[str, Any], store: str) -> tuple[list[str], list[str]]:
    """As `occupancy`, of the containers that no record of this store names."""
    states, problems = [], []
    known = {lane["container"] for lane in fact["lanes"]}
    for box in fact["docker"]["containers"]:
        if box["ours"] and box["state"] in _HOLDING and box["id"] not in known:
            recipe = box["labels"].get("sparkbuild.recipe", "?")
            if box["state"] in _LIVING:
                states.append(f"held by container {box['name']}{_owner(box, store)}")
            if _owner(box, store):
                continue  # another user's, and no leftover
            problems.append(f"leftover of ours: container {box['name']} ({box['status']}): doit stop:{recipe}")
        elif box["gpu"] and not box["ours"] and box["state"] in _LIVING:
            problems.append(f"container {box['name']} ({box['image']}) uses the GPU and is not ours")
    return states, problems


def _owner(box: Mapping[str, Any], store: str) -> str:
    """Whose a lane's container is, when it is of another store; "" when it is of this one."""
    other = box["labels"].get("sparkbuild.store", "")
    if not store or other in {"", store_id(store)}:
        return ""
    by = box["labels"].get("sparkbuild.by", "")
    return f" of another store ({other}{f', launched by {by}' if by else ''})"


def clock(look: Look) -> tuple[float, float]:
    """How far a node's clock is ahead of ours, and how unsure that is: half of the round trip, in seconds."""
    time = float((look.fact or {}).get("time") or 0.0)
    return time - (look.began + look.ended) / 2, (look.ended - look.began) / 2


def differences(looks: Sequence[Look]) -> list[dict[str, Any]]:
    """What differs between the nodes that answer, part by part: {"part", "fatal", "values": {value: nodes}}."""
    found = []
    for part in _PARTS:
        values: dict[str, list[str]] = {}
        for look in looks:
            value = _part(part, look.fact) if look.error is None and look.fact else None
            if value is not None:
                values.setdefault(value, []).append(look.node)
        if len(values) > 1:
            found.append({"part": part, "fatal": part in _FATAL, "values": values})
    return found


def lines(found: Mapping[str, Any]) -> list[str]:
    """A cluster's health as people read it. What is wrong has a `!` in front."""
    told = [f"{found['cluster']}: {found['online']}/{found['total']} online"]
    names = max((len(node["node"]) for node in found["nodes"]), default=0)
    states = max((len(_state(node)) for node in found["nodes"] if node["online"]), default=0)
    for node in found["nodes"]:
        lead = f"  {node['node']:<{names}}  "
        if not node["online"]:
            told.append(f"{lead}offline")
        else:
            told.append(f"{lead}{_state(node):<{states}}  {_figures(node)}".rstrip())
        told += [f"{'':<{len(lead)}}! {text}" for text in node["problems"]]
        for name in ("where", "found", "next"):
            told += [f"{'':<{len(lead)}}  {name + ':':<7}{text}" for text in node[name].splitlines()]
    for one in found["differences"]:
        values = "; ".join(f"{value or 'none'} on {', '.join(nodes)}" for value, nodes in one["values"].items())
        told.append(f"  {'!' if one['fatal'] else '-'} {one['part']} differs: {values}")
    return told


def _state(node: Mapping[str, Any]) -> str:
    return "; ".join(node["states"])


def _figures(node: Mapping[str, Any]) -> str:
    disk = node["disk_free"]
    pieces = [
        f"memory {units.size(node['memory_available'])} of {units.size(node['memory_total'])}",
        f"disk {units.size(disk)} free" if disk is not None else "",
        f"clock {node['clock_skew']:+.1f} s",
        f"docker {node['docker']}" if node["docker"] else "" if _UNASKED in node["states"] else "no docker",
    ]
    return ", ".join(piece for piece in pieces if piece)


def _lane(lane: Mapping[str, Any]) -> str:
    if lane["rank"]:  # what is served and ready is known on rank 0
        return f"rank {lane['rank']} of {lane['recipe']} since {units.when(lane['launched_at'])}"
    if lane["served_at"]:
        return f"serving {lane['recipe']} since {units.when(lane['served_at'])}"
    gates = ", gates not passed" if lane["ready"] else ""
    return f"{'serving' if lane['ready'] else 'starting'} {lane['recipe']}{gates}"


def _disk(store: str, disk: Mapping[str, Any]) -> list[str]:
    if disk.get("problem"):
        return [f"{store}: {disk['problem']}"]
    if disk.get("read_only"):
        return [f"{store} is on a file system that is read-only ({disk['mount']})"]
    if disk and disk["free"] * 100 < disk["total"]:
        return [f"the disk of {store} is full: {units.size(disk['free'])} of {units.size(disk['total'])} free"]
    return []


def _part(part: str, fact: Mapping[str, Any]) -> str | None:
    """What a node has of a part; None where that is not known."""
    if "host" not in fact:
        return None
    if part == "docker":
        return str(fact["docker"]["version"]) if fact["docker"]["present"] else None
    if part == "os":
        return f"{fact['os']} {fact['os_version']}".strip()
    return str(fact[part])
