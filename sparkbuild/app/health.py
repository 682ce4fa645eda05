"""What the facts of a cluster's nodes say of its health: who holds them, what is wrong, what differs. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypedDict

from sparkbuild.agent.wire.lanelabels import ALIVE, BY, CREATED, RECIPE, STORE, is_of_another
from sparkbuild.core import units
from sparkbuild.core.errors import SparkbuildError
from sparkbuild.nodes.machines import same_machine

SKEW = 2.0  # seconds a clock may be off; logs of several nodes are read together, and tokens have dates
_HOLDING = ALIVE | {CREATED}  # a container that was only created holds its name
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


class _NodeHealth(TypedDict):
    node: str
    online: bool
    states: list[str]
    problems: list[str]
    where: str
    found: str
    next: str


class NodeHealth(_NodeHealth, total=False):
    """One node, as `--json` prints it. `problems` are sentences about what is wrong there; `where`, `found` and `next`
    those of an error. The figures are of a node that answers: bytes, and seconds that its clock is ahead.
    """

    memory_available: int
    memory_total: int
    disk_free: int | None
    disk_total: int | None
    clock_skew: float
    docker: str
    arch: str


class Difference(TypedDict):
    """What differs between nodes: nodes by value. `fatal`: they do not work together."""

    part: str
    fatal: bool
    values: dict[str, list[str]]


class ClusterHealth(TypedDict):
    """One cluster, as `--json` prints it; nodes in rank order."""

    cluster: str
    online: int
    total: int
    ok: bool
    nodes: list[NodeHealth]
    differences: list[Difference]


def cluster(name: str, looks: Sequence[Look], every: Sequence[Look] = ()) -> ClusterHealth:
    """The health of one cluster. `every`: all nodes that were looked at, for lanes that have ranks on others."""
    nodes = [row(look) for look in looks]
    for one in nodes:
        one["problems"] += lonely(one["node"], every or looks)
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


def row(look: Look) -> NodeHealth:
    """The health of one node."""
    if look.error is not None or look.fact is None or "host" not in look.fact:
        fact = look.fact or {}
        error = look.error or SparkbuildError(str(fact.get("problem") or "no answer"))
        what = error.what.partition("\n")[0]
        return NodeHealth(
            node=look.node, online=False, states=[], problems=[what],
            where=error.where, found=error.found, next=error.next,
        )  # fmt: skip
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
        "node": look.node,
        "online": True,
        "states": states,
        "problems": problems,
        "where": "",
        "found": "",
        "next": "",
        "memory_available": fact["memory"]["available"],
        "memory_total": fact["memory"]["total"],
        "disk_free": disk.get("free"),
        "disk_total": disk.get("total"),
        "clock_skew": round(skew, 3) if abs(skew) > unsure else 0.0,
        "docker": docker["version"],
        "arch": fact["arch"],
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
            if lane.get("again"):
                problems.append(f"{lane['recipe']} runs, but {lane['again']}: doit serve:{lane['recipe']}")
        elif lane["alive"] is None and not lane["stopped_at"]:
            unsure = True
            problems.append(f"whether {lane['recipe']} runs is not known: docker does not answer")
        elif lane["ready"] and not lane["stopped_at"]:
            problems.append(f"{lane['recipe']} is dead (was not stopped): doit logs {lane['recipe']}")
    held, wrong = _held(fact, store)
    states, problems = states + held, problems + wrong
    for lane in fact.get("elsewhere") or ():
        states.append(f"held by process {lane['pid']} of {lane['user'] or 'another user'}{_ports(lane)}, {_of(lane)}")
        if lane["ours"]:
            problems.append(f"process {lane['pid']} is of lane {lane['recipe']}, and no record names it any more")
    problems += [record["text"] for record in fact.get("unread") or ()]
    # a lane that runs as a process holds the node, whatever else docker may not say
    if docker["problem"] and (unsure or (asked and not states) or docker["present"]):
        states.append(_UNASKED)
    ours = {port for lane in fact.get("elsewhere") or () for port in lane["ports"]}
    strangers = {port: who for port, who in (fact.get("strangers") or {}).items() if int(port) not in ours}
    if not states and strangers:
        states = [f"perhaps held: {who} listens on port {port}" for port, who in strangers.items()]
    return states or ["free"], problems


def lonely(node: str, looks: Sequence[Look]) -> list[str]:
    """What is wrong with the ranks on a node, by what the other nodes of their launch say: some live and some do not. A
    launch of which nothing lives is told by its rank 0.
    """
    facts = {look.node: look.fact for look in looks if look.error is None and look.fact and "lanes" in look.fact}
    found = []
    for lane in (facts.get(node) or {}).get("lanes") or ():
        if lane["stopped_at"] or lane["alive"] is None or not lane.get("launch"):
            continue
        ranks = {name: _rank_of(lane, facts[name]) for name in lane["nodes"] if name in facts}
        living = [name for name, other in ranks.items() if other and other["alive"]]
        gone = [name for name, other in ranks.items() if other is None or other["alive"] is False]
        mend = f"doit stop:{lane['recipe']}, doit serve:{lane['recipe']}"
        if not lane["alive"] and lane["rank"] and living:
            found.append(f"rank {lane['rank']} of {lane['recipe']} is dead, and the lane runs on {living[0]}: {mend}")
        elif lane["alive"] and lane["rank"] and lane["nodes"] and lane["nodes"][0] in gone:
            found.append(f"rank {lane['rank']} of {lane['recipe']} runs without rank 0 on {lane['nodes'][0]}: {mend}")
        elif lane["alive"] and not lane["rank"] and gone:
            found.append(f"{lane['recipe']} is broken: its rank on {', '.join(gone)} does not run: {mend}")
    return found


def _rank_of(lane: Mapping[str, Any], fact: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The lane's rank on another node: None when there is none of the same launch."""
    same = (one for one in fact["lanes"] if one["recipe"] == lane["recipe"] and one.get("launch") == lane["launch"])
    return next(same, None)


def _ports(lane: Mapping[str, Any]) -> str:
    return f" on port {', '.join(map(str, lane['ports']))}" if lane["ports"] else ""


def _of(lane: Mapping[str, Any]) -> str:
    whose = "without a record" if lane["ours"] else f"of another store ({lane['store'] or 'which cannot be seen'})"
    return f"lane {lane['recipe']} {whose}, since {units.when(lane['since'])}"


def _held(fact: Mapping[str, Any], store: str) -> tuple[list[str], list[str]]:
    """As `occupancy`, of the containers that no record of this store names."""
    states, problems = [], []
    known = {lane["container"] for lane in fact["lanes"]}
    for box in fact["docker"]["containers"]:
        if box["ours"] and box["state"] in _HOLDING and box["id"] not in known:
            recipe = box["labels"].get(RECIPE, "?")
            if box["state"] in ALIVE:
                states.append(f"held by container {box['name']}{_owner(box, store)}")
            if _owner(box, store):
                continue  # another user's, and no leftover
            problems.append(f"leftover of ours: container {box['name']} ({box['status']}): doit stop:{recipe}")
        elif box["gpu"] and not box["ours"] and box["state"] in ALIVE:
            problems.append(f"container {box['name']} ({box['image']}) uses the GPU and is not ours")
    return states, problems


def _owner(box: Mapping[str, Any], store: str) -> str:
    """Whose a lane's container is, when it is of another store; "" when it is of this one."""
    other = box["labels"].get(STORE, "")
    if not store or not is_of_another(other, store):
        return ""
    by = box["labels"].get(BY, "")
    return f" of another store ({other}{f', launched by {by}' if by else ''})"


def clock(look: Look) -> tuple[float, float]:
    """How far a node's clock is ahead of ours, and how unsure that is: half of the round trip, in seconds."""
    time = float((look.fact or {}).get("time") or 0.0)
    return time - (look.began + look.ended) / 2, (look.ended - look.began) / 2


def differences(looks: Sequence[Look]) -> list[Difference]:
    """What differs between the nodes that answer, part by part."""
    differing: list[Difference] = []
    for part in _PARTS:
        values: dict[str, list[str]] = {}
        for look in looks:
            value = _part(part, look.fact) if look.error is None and look.fact else None
            if value is not None:
                values.setdefault(value, []).append(look.node)
        if len(values) > 1:
            differing.append({"part": part, "fatal": part in _FATAL, "values": values})
    return differing


def lines(found: ClusterHealth) -> list[str]:
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
        for name, field in (("where", node["where"]), ("found", node["found"]), ("next", node["next"])):
            told += [f"{'':<{len(lead)}}  {name + ':':<7}{text}" for text in field.splitlines()]
    for one in found["differences"]:
        values = "; ".join(f"{value or 'none'} on {', '.join(nodes)}" for value, nodes in one["values"].items())
        told.append(f"  {'!' if one['fatal'] else '-'} {one['part']} differs: {values}")
    return told


def _state(node: NodeHealth) -> str:
    return "; ".join(node["states"])


def _figures(node: NodeHealth) -> str:
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
    if lane.get("again"):
        return f"held by {lane['recipe']}, which is not serving"
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
