"""What is seen of a lane on this node: its record, its process or container, its port, and whether it answers."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, cast

from sparkbuild.agent.docker.ours import is_frozen, not_serving
from sparkbuild.agent.lane import ports, records
from sparkbuild.agent.lane.answers import answers
from sparkbuild.agent.lane.ending import log_end, of_container, of_process
from sparkbuild.agent.lane.marked import unrecorded, wants
from sparkbuild.agent.lane.records import in_docker
from sparkbuild.agent.machine import listener, procs
from sparkbuild.agent.wire.lanelabels import CREATED, is_alive, is_of_another

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sparkbuild.agent.docker.ours import Shelf
    from sparkbuild.agent.wire.lanes import LaneAsk, LaneFact
    from sparkbuild.agent.wire.records import Box, Holder, LaneRecord
    from sparkbuild.agent.wire.verbs import Placed

    class Query(LaneAsk, Placed, total=False):
        """With what all looks of one moment share."""

        glance: procs.Glance
        shelf: Shelf


_ENDING = 0.2  # seconds between the end of a process and that of its sockets, at most
_LAST_LINES = 15


def observe(query: Query) -> LaneFact:
    """See LANE. Docker is asked when the record or the query is about a container, or another lane may be in one."""
    store, recipe = query["store"], query["recipe"]
    glance = query.get("glance") or procs.Glance()
    by_recipe, closed = records.every(store)
    record = by_recipe.get(recipe) or records.record(store, recipe)
    fact: LaneFact = {"record": record, "alive": False, "listening": False, "answers": False, "port_holder": None}
    fact["now"] = time.time()
    shelf = None
    if in_docker(record) or query.get("runtime") == "docker":
        shelf = query.get("shelf") or records.shelf_of(query)
        _see_containers(fact, store, recipe, shelf)
    port = query.get("port") or (record.get("port", 0) if record else 0)
    if record is not None and records.alive(record, shelf):
        pids = _see_living(fact, record, glance)
        if port != record["port"]:
            fact["port_holder"] = _other_holder(query, port, glance, pids, by_recipe)
    else:
        if record is not None:
            fact["last_lines"] = log_end(store, query.get("docker", ""), record, _LAST_LINES)
            fact["state"] = _how_it_ended(fact, record, query)
        ours = records.members(record) if record is not None and glance.inodes(port) else set()
        fact["port_holder"] = _other_holder(query, port, glance, ours, by_recipe)
    fact["others"], foreign = _others(query, by_recipe, shelf)
    if foreign:
        fact["foreign"] = foreign
    elsewhere = unrecorded(store, {known.get("log", "") for known in by_recipe.values()}, glance)
    # without GPUs, engines on other ports do not disturb each other
    elsewhere = [lane for lane in elsewhere if lane["ours"] or lane["gpus"] or (port and wants(lane, port, glance))]
    if elsewhere:
        fact["elsewhere"] = elsewhere
    if closed:
        fact["unread"] = [unread.row for unread in closed]
    return fact


def _see_living(fact: LaneFact, record: LaneRecord, glance: procs.Glance) -> set[int]:
    """Does what lives listen and answer; gives its processes, as far as we see them."""
    fact["alive"] = True
    inodes = glance.inodes(record["port"]) if record["port"] else set()
    # the processes of a container may be hidden from us; its port was free when it was launched
    pids = set() if in_docker(record) else glance.session_of(record["pid"])
    fact["listening"] = bool(inodes) and (in_docker(record) or procs.owns_socket(pids, inodes) is not None)
    if fact.get("again"):
        fact["problem"] = fact["again"]
    elif fact["listening"]:
        fact.update(cast("LaneFact", answers(record, listener.addresses(record["port"], glance))))
    return pids


def _how_it_ended(fact: LaneFact, record: LaneRecord, query: Query) -> str:
    state = fact.get("state", "")
    if record.get("stopped_at") is not None or (in_docker(record) and not state):
        return state
    if in_docker(record):
        return of_container(record["container"], state, query.get("docker", ""))
    is_of_this_boot = record.get("boot_id") == procs.boot_id()
    return of_process(record, query["store"]) if is_of_this_boot else "this node was booted since"


def _see_containers(fact: LaneFact, store: str, recipe: str, shelf: Shelf) -> None:
    record = fact["record"]
    recorded = record.get("container", "") if record else ""
    box = shelf.box(recorded)
    fact["docker_problem"] = shelf.problem
    fact["state"] = box["status"] or box["state"] if box else ""
    if box is not None and is_alive(box):
        fact["again"] = not_serving(shelf.state(box), record)
        fact["frozen"] = is_frozen(shelf.state(box))
    # one that was only created holds its name; dead ones are kept for their logs
    others = [other for other in shelf.of(recipe) if other["id"] != recorded]
    left = [other for other in others if is_alive(other) or other["state"] == CREATED]
    fact["left"] = [other for other in left if not is_of_another(other["store"], store)]
    fact["stranger"] = "" if shelf.problem or is_alive(box) else shelf.stranger(recipe)


def _others(query: Query, by_recipe: Mapping[str, LaneRecord], shelf: Shelf | None) -> tuple[list[str], list[Box]]:
    """Other lanes that hold this node, by whatever they run in; and the containers of those of another store, be it of
    the same recipe: this store's operator cannot stop them.
    """
    store, recipe = query["store"], query["recipe"]
    others = {name: record for name, record in by_recipe.items() if name != recipe}
    names = {name for name, record in others.items() if not in_docker(record) and records.alive(record)}
    foreign: list[Box] = []
    in_boxes = any(in_docker(record) and record.get("stopped_at") is None for record in others.values())
    if shelf is None and (in_boxes or os.access(query.get("docker", ""), os.R_OK | os.W_OK)):
        shelf = query.get("shelf") or records.shelf_of(query)
    if shelf is not None:
        living = [box for box in shelf.boxes if is_alive(box)]
        foreign = [box for box in living if is_of_another(box["store"], store)]
        names |= {box["recipe"] for box in living if box not in foreign and box["recipe"] != recipe}
    return sorted(names), foreign


def _other_holder(
    query: Query, port: int, glance: procs.Glance, ours: set[int], by_recipe: Mapping[str, LaneRecord]
) -> Holder | None:
    """Who holds the port and is none of our processes, or will once it listens."""
    holder = procs.holder(port, glance) if port else None
    if holder is not None and not holder["pid"]:  # another user's, or one that is ending just now
        time.sleep(_ENDING)
        holder = procs.holder(port)
    if holder is None:
        return ports.launched_on(by_recipe, query["recipe"], port) if port else None
    return None if holder["pid"] in ours else ports.named(query["store"], holder, port, query.get("docker", ""))
