"""What is seen of a lane on this node: its record, its process or container, its port, and whether it answers."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from sparkbuild.agent.disk.files import read_json, write_json
from sparkbuild.agent.lane import unread
from sparkbuild.agent.lane.marked import MARK, unrecorded, wants
from sparkbuild.agent.machine import listener, procs
from sparkbuild.agent.wire.lanelabels import CREATED
from sparkbuild.agent.wire.printable import one_line

if TYPE_CHECKING:
    from sparkbuild.agent.docker.ours import Shelf
    from sparkbuild.agent.lane.unread import Unread
    from sparkbuild.agent.wire.records import Box, LaneFact, LaneRecord

LANE_FORMAT = "sparkbuild-lane/v1"
ANSWER_TIMEOUT = 2.0  # seconds for a whole answer; a healthy engine gives /health in milliseconds even under load
ENDING = 0.2  # seconds between the end of a process and that of its sockets, at most
MOST_BYTES, MOST_IDS = 1 << 20, 100  # of a list of models


def folder(store: str, recipe: str) -> str:
    """Where a recipe's lane keeps its record and logs."""
    return os.path.join(store, "lanes", recipe)


def read(store: str, recipe: str) -> LaneRecord | Unread | None:
    """The record of the last launch, None when there was none, or why it cannot be read. Its shape is looked at here:
    who reads a record elsewhere may rely on it.
    """
    path = os.path.join(folder(store, recipe), "lane.json")
    try:
        found = unread.foreign(store, recipe, path) or read_json(path)
    except PermissionError:
        return unread.closed(recipe, path)
    except OSError as error:
        return unread.Unread(recipe, path, error.strerror or str(error))
    if isinstance(found, unread.Unread):
        return found
    if found is None:
        return unread.Unread(recipe, path, "it holds no table") if os.path.lexists(path) else None
    if found.get("format") != LANE_FORMAT:
        return unread.Unread(recipe, path, "it is of another version of sparkbuild")
    why = unread.wrong(found)
    return unread.Unread(recipe, path, why) if why else cast("LaneRecord", found)


def record(store: str, recipe: str) -> LaneRecord | None:
    """The record of the last launch, None when there was none, or what stands there is no record: a launch writes
    another. Raises AgentError for one that is another user's.
    """
    found = read(store, recipe)
    if isinstance(found, unread.Unread):
        if found.user:
            raise found.error()
        return None
    return found


def every(store: str) -> tuple[dict[str, LaneRecord], list[Unread]]:
    """All records of this store by recipe, and those that cannot be read."""
    seen = {name: read(store, name) for name in names(store)}
    closed = [found for found in seen.values() if isinstance(found, unread.Unread)]
    return {name: found for name, found in seen.items() if found and not isinstance(found, unread.Unread)}, closed


def names(store: str) -> list[str]:
    """All recipes that were ever launched on this node."""
    try:
        return sorted(os.listdir(os.path.join(store, "lanes")))
    except OSError:
        return []


def in_docker(found: LaneRecord | None) -> bool:
    """True when the launch made a container."""
    return found is not None and found.get("runtime") == "docker"


def shelf_of(request: Mapping[str, object]) -> Shelf:
    """The containers of this node's lanes, by the docker socket that a request names."""
    from sparkbuild.agent.docker.ours import Shelf  # noqa: PLC0415 - lanes that are processes need no docker

    return Shelf(str(request.get("docker") or "/var/run/docker.sock"))


def alive(found: LaneRecord, shelf: Shelf | None = None) -> bool:
    """True when the very process or container of the record lives."""
    if in_docker(found):
        from sparkbuild.agent.docker.ours import is_alive  # noqa: PLC0415 - as above

        return is_alive((shelf or shelf_of({})).box(found["container"]))
    return procs.is_same(found.get("pid", 0), found.get("start_ticks", -1), found.get("boot_id", ""))


def uptime() -> float:
    """Seconds since this machine was started: a clock that nobody sets, and that counts while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def age(found: LaneRecord) -> float | None:
    """Seconds since the launch, by this machine's own clock and no other's; None when it was of another boot."""
    if "launched_uptime" not in found or found.get("boot_id") != procs.boot_id():
        return None
    return max(0.0, uptime() - found["launched_uptime"])


def write(store: str, found: LaneRecord) -> None:
    """Write a lane's record."""
    path = os.path.join(folder(store, found["recipe"]), "lane.json")
    write_json(path, cast("dict[str, Any]", found), mode=0o600)


def mark(log: str) -> str:
    """What stands in the environment of every process of the launch that has this log, and of no other."""
    return f"{MARK}={log}"


def members(found: LaneRecord) -> set[int]:
    """The lane's living processes: the session that the recorded process leads, and what this launch started outside
    of it. Once that process is gone, its number may lead another's session, so only the mark counts. A container's
    are docker's business.
    """
    if in_docker(found) or found.get("boot_id") != procs.boot_id():
        return set()
    pids = procs.marked(mark(found["log"]))
    if alive(found):
        pids |= procs.session_of(found["pid"])
    return {pid for pid in pids if procs.start_ticks(pid) is not None}


def lane_of(store: str, pid: int) -> str:
    """The lane of this store that a process belongs to, "" when none."""
    records = every(store)[0] if pid else {}
    return next((name for name, found in records.items() if pid in members(found)), "")


def runs(store: str, recipe: str) -> bool:
    """True when the lane is to be asked for an answer: its process lives, or it is in a container and may."""
    found = read(store, recipe)
    return found is not None and not isinstance(found, unread.Unread) and (in_docker(found) or alive(found))


def observe(query: dict[str, Any]) -> dict[str, Any]:
    """Query {"store", "docker", "recipe", "port", "runtime", "glance"?, "shelf"?}; a LaneFact.

    Docker is only asked when the record or the query is about a container, or another lane may be in one.
    """
    store, recipe = query["store"], query["recipe"]
    glance: procs.Glance = query.get("glance") or procs.Glance()
    records, closed = every(store)
    found = records.get(recipe) or record(store, recipe)
    fact: LaneFact = {"record": found, "alive": False, "listening": False, "answers": False, "port_holder": None}
    fact["now"] = time.time()
    shelf = None
    if in_docker(found) or query.get("runtime") == "docker":
        shelf = query.get("shelf") or shelf_of(query)
        _contained(fact, store, recipe, shelf)
    port = query.get("port") or (found or {}).get("port", 0)
    if found is not None and alive(found, shelf):
        fact["alive"] = True
        inodes = glance.inodes(found["port"]) if found["port"] else set()
        # the processes of a container may be hidden from us; its port was free when it was launched
        pids = set() if in_docker(found) else glance.session_of(found["pid"])
        fact["listening"] = bool(inodes) and (in_docker(found) or procs.owns_socket(pids, inodes) is not None)
        if fact.get("again"):
            fact["problem"] = fact["again"]
        elif fact["listening"]:
            fact.update(_answers(found, listener.addresses(found["port"], glance)))
        if port != found["port"]:
            fact["port_holder"] = _foreign(query, port, glance, pids, records)
    else:
        if found is not None:
            fact["last_lines"] = log_end(store, found, query, 15)
            fact["state"] = _how_it_ended(fact, found, query)
        ours = members(found) if found is not None and glance.inodes(port) else set()
        fact["port_holder"] = _foreign(query, port, glance, ours, records)
    fact["others"], foreign = _others(query, records, shelf)
    if foreign:
        fact["foreign"] = foreign
    elsewhere = unrecorded(store, {one.get("log", "") for one in records.values()}, glance)
    # without GPUs, engines on other ports do not disturb each other
    elsewhere = [one for one in elsewhere if one["ours"] or one["gpus"] or (port and wants(one, port, glance))]
    if elsewhere:
        fact["elsewhere"] = elsewhere
    if closed:
        fact["unread"] = [one.text for one in closed]
        fact["others_unread"] = [one.text for one in closed if one.recipe != recipe and one.may_run]
    return dict(fact)


def _how_it_ended(fact: LaneFact, found: LaneRecord, query: dict[str, Any]) -> str:
    from sparkbuild.agent.lane.ending import of_container, of_process  # noqa: PLC0415 - most lanes live, or were stopped

    state = fact.get("state", "")
    if found.get("stopped_at") is not None:
        return state
    if not in_docker(found):
        return (
            of_process(found, query["store"])
            if found.get("boot_id") == procs.boot_id()
            else "this node was booted since"
        )
    return of_container(found["container"], state, str(query.get("docker") or "")) if state else state


def _contained(fact: LaneFact, store: str, recipe: str, shelf: Shelf) -> None:
    """What docker knows of the recipe's containers."""
    from sparkbuild.agent.docker.ours import (  # noqa: PLC0415 - only for lanes in containers
        is_alive,
        is_frozen,
        is_of_another,
        not_serving,
    )

    named = (fact["record"] or {}).get("container", "")
    box = shelf.box(named)
    fact["docker_problem"] = shelf.problem
    fact["state"] = box["status"] or box["state"] if box else ""
    if box is not None and is_alive(box):
        fact["again"] = not_serving(shelf.state(box), fact["record"] or {})
        fact["frozen"] = is_frozen(shelf.state(box))
    # one that was only created holds its name; dead ones are kept for their logs
    left = [one for one in shelf.of(recipe) if one["id"] != named and (is_alive(one) or one["state"] == CREATED)]
    fact["left"] = [one for one in left if not is_of_another(one, store)]
    fact["stranger"] = "" if shelf.problem or is_alive(box) else shelf.stranger(recipe)


def _others(query: dict[str, Any], records: dict[str, LaneRecord], shelf: Shelf | None) -> tuple[list[str], list[Box]]:
    """Other lanes that hold this node: a node serves one. Docker is asked wherever we may: whatever this lane runs in,
    others may be in containers. The second are those that were launched from another store, of the same recipe even:
    this store's operator cannot stop them.
    """
    from sparkbuild.agent.docker.ours import is_alive, is_of_another  # noqa: PLC0415 - 1 ms, once per look

    store, recipe = query["store"], query["recipe"]
    others = {name: one for name, one in records.items() if name != recipe}
    found = {name for name, one in others.items() if not in_docker(one) and alive(one)}
    foreign: list[Box] = []
    in_boxes = any(in_docker(one) and one.get("stopped_at") is None for one in others.values())
    if shelf is None and (in_boxes or os.access(str(query.get("docker") or ""), os.R_OK | os.W_OK)):
        shelf = query.get("shelf") or shelf_of(query)
    if shelf is not None:
        living = [box for box in shelf.boxes if is_alive(box)]
        foreign = [box for box in living if is_of_another(box, store)]
        found |= {box["recipe"] for box in living if box not in foreign and box["recipe"] != recipe}
    return sorted(found), foreign


def _foreign(
    query: dict[str, Any], port: int, glance: procs.Glance, ours: set[int], records: dict[str, LaneRecord]
) -> dict[str, Any] | None:
    holder = procs.holder(port, glance) if port else None
    if holder is not None and not holder["pid"]:  # another user's, or one that is ending just now
        time.sleep(ENDING)
        holder = procs.holder(port)
    if holder is None:
        return launched_on(records, query["recipe"], port) if port else None
    return None if holder["pid"] in ours else named(query["store"], holder, port, str(query.get("docker") or ""))


def launched_on(records: dict[str, LaneRecord], recipe: str, port: int) -> dict[str, Any] | None:
    """Another lane of this store that was launched on a port, lives and does not listen yet, as `named` tells a holder.
    A container is told as what holds its node.
    """
    for name, one in records.items():
        if name != recipe and one["port"] == port and not in_docker(one) and alive(one):
            pid = one["pid"]
            user = procs.user(pid)
            return {"pid": pid, "command": procs.command(pid), "user": user, "lane": name, "container": ""}
    return None


def named(store: str, holder: dict[str, Any], port: int, socket: str) -> dict[str, Any]:
    """Who holds a port, with its `lane`, and its `container` when it is in one: "" where there is none of ours."""
    from sparkbuild.agent.lane.ports import container_of  # noqa: PLC0415 - a port is free, most often

    found = {**holder, "lane": lane_of(store, holder["pid"]), "container": ""}
    return found if found["lane"] else found | container_of(store, holder, port, socket)


def _answers(found: LaneRecord, hosts: list[str]) -> LaneFact:
    """Ask /health and /v1/models of the lane itself, where it listens: `host` of the record is what others call this
    node, which may be a name that only they know. An engine without the first is asked the second.
    """
    try:
        host = next((one for one in hosts if _connects(one, found["port"])), found["host"]) if hosts[1:] else hosts[0]
        place = (host, found["port"])
        status, _ = get(place, "/health")
        if status not in {200, 404}:
            return {"answers": False, "problem": f"/health answers {status}"}
        status, body = get(place, "/v1/models")
        if status != 200:
            return {"answers": False, "problem": f"/v1/models answers {status}"}
        ids = [str(entry["id"]) for entry in json.loads(body)["data"]][:MOST_IDS]
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        text = one_line(str(getattr(error, "strerror", None) or error), 200)
        return {"answers": False, "problem": f"no answer on port {found['port']}: {text or type(error).__name__}"}
    return {"answers": True, "served_ids": ids}


def _connects(host: str, port: int) -> bool:
    import socket  # noqa: PLC0415 - most looks ask no lane

    try:
        socket.create_connection((host, port), timeout=ANSWER_TIMEOUT).close()
    except OSError:
        return False
    return True


def get(place: tuple[str, int], path: str, timeout: float = ANSWER_TIMEOUT) -> tuple[int, bytes]:
    """GET, (status, body); the timeout is for all of it, however slowly it comes. Errors as of Answer: OSError,
    ValueError.
    """
    from sparkbuild.agent.docker.unixhttp import Answer  # noqa: PLC0415 - most looks ask no lane

    with Answer(place, path, timeout) as answer:
        return answer.status, answer.body(MOST_BYTES)


def log_end(store: str, found: LaneRecord, request: dict[str, Any], count: int) -> list[str]:
    """The last lines of a rank's log, wherever it is kept."""
    if not in_docker(found):
        return last_lines(os.path.join(store, found["log"]), count)
    from sparkbuild.agent.docker.engine import Dockerd, DockerdError  # noqa: PLC0415 - only for containers

    try:
        return list(Dockerd(str(request.get("docker") or "/var/run/docker.sock")).logs(found["container"], tail=count))
    except DockerdError:
        return []


def last_lines(path: str, count: int) -> list[str]:
    """The last lines of a log, at most 64 KiB of it."""
    try:
        with open(path, "rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - 65536))
            return file.read().decode(errors="replace").splitlines()[-count:]
    except OSError:
        return []
