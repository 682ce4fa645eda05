"""What is seen of a lane on this node: its record, its process, its port, and whether it answers as the right model."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any, cast

from sparkbuild.agent import procs
from sparkbuild.agent.files import read_json, write_json

if TYPE_CHECKING:
    from sparkbuild.agent.records import LaneFact, LaneRecord

LANE_FORMAT = "sparkbuild-lane/v1"
ANSWER_TIMEOUT = 2.0  # seconds; a healthy engine answers /health in milliseconds even under load


def folder(store: str, recipe: str) -> str:
    """Where a recipe's lane keeps its record and logs."""
    return os.path.join(store, "lanes", recipe)


def record(store: str, recipe: str) -> LaneRecord | None:
    """The record of the last launch, None when there was none."""
    found = read_json(os.path.join(folder(store, recipe), "lane.json"))
    if found is None or found.get("format") != LANE_FORMAT:
        return None
    return cast("LaneRecord", found)


def alive(found: LaneRecord) -> bool:
    """True when the very process of the record lives."""
    return procs.is_same(found.get("pid", 0), found.get("start_ticks", -1), found.get("boot_id", ""))


def write(store: str, found: LaneRecord) -> None:
    """Write a lane's record."""
    path = os.path.join(folder(store, found["recipe"]), "lane.json")
    write_json(path, cast("dict[str, Any]", found), mode=0o600)


def mark(log: str) -> str:
    """What stands in the environment of every process of the launch that has this log, and of no other."""
    return f"SPARKBUILD_LANE={log}"


def members(found: LaneRecord) -> set[int]:
    """The lane's living processes: the session that the recorded process leads, and what this launch started outside
    of it. Once that process is gone, its number may lead another's session, so only the mark counts.
    """
    if found.get("boot_id") != procs.boot_id():
        return set()
    pids = procs.marked(mark(found["log"]))
    if alive(found):
        pids |= procs.session_of(found["pid"])
    return {pid for pid in pids if procs.start_ticks(pid) is not None}


def lane_of(store: str, pid: int) -> str:
    """The lane of this store that a process belongs to, "" when none."""
    try:
        names = os.listdir(os.path.join(store, "lanes")) if pid else []
    except OSError:
        return ""
    for name in names:
        found = record(store, name)
        if found is not None and pid in members(found):
            return name
    return ""


def runs(store: str, recipe: str) -> bool:
    """True when the lane's process lives."""
    found = record(store, recipe)
    return found is not None and alive(found)


def observe(query: dict[str, Any]) -> dict[str, Any]:
    """Query {"store", "recipe", "port", "glance"?}; a LaneFact."""
    store, recipe = query["store"], query["recipe"]
    glance: procs.Glance = query.get("glance") or procs.Glance()
    found = record(store, recipe)
    fact: LaneFact = {"record": found, "alive": False, "listening": False, "answers": False, "port_holder": None}
    port = query.get("port") or (found or {}).get("port", 0)
    if found is not None and alive(found):
        fact["alive"] = True
        inodes = glance.inodes(found["port"])
        pids = glance.session_of(found["pid"])
        fact["listening"] = bool(inodes) and procs.owns_socket(pids, inodes) is not None
        if fact["listening"]:
            fact.update(_answers(found))
        if port != found["port"]:
            fact["port_holder"] = _foreign(store, port, glance, pids)
    else:
        if found is not None:
            fact["last_lines"] = last_lines(os.path.join(store, found["log"]), 15)
        ours = members(found) if found is not None and glance.inodes(port) else set()
        fact["port_holder"] = _foreign(store, port, glance, ours)
    return dict(fact)


def _foreign(store: str, port: int, glance: procs.Glance, ours: set[int]) -> dict[str, Any] | None:
    holder = procs.holder(port, glance)
    if holder is None or holder["pid"] in ours:
        return None
    return {**holder, "lane": lane_of(store, holder["pid"])}


def _answers(found: LaneRecord) -> LaneFact:
    """Ask /health and /v1/models of the lane itself."""
    try:
        status, _ = get(found["host"], found["port"], "/health")
        if status != 200:
            return {"answers": False, "problem": f"/health answers {status}"}
        status, body = get(found["host"], found["port"], "/v1/models")
        ids = [str(entry.get("id")) for entry in json.loads(body)["data"]] if status == 200 else []
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        return {"answers": False, "problem": f"no answer on port {found['port']}: {str(error) or type(error).__name__}"}
    return {"answers": True, "served_ids": ids}


def get(host: str, port: int, path: str, timeout: float = ANSWER_TIMEOUT) -> tuple[int, bytes]:
    """A bare HTTP/1.0 GET; (status, body). http.client would double the agent's start-up time."""
    import socket  # noqa: PLC0415 - most looks ask no lane

    with socket.create_connection((host, port), timeout=timeout) as connection:
        connection.sendall(f"GET {path} HTTP/1.0\r\nHost: {host}\r\nAccept: application/json\r\n\r\n".encode())
        data = bytearray()
        length = None
        while length is None or len(data) < length:
            block = connection.recv(65536)
            if not block:
                break
            data += block
            if len(data) > 4 << 20:
                raise ValueError("answer larger than 4 MiB")
            end = data.find(b"\r\n\r\n")
            if length is None and end >= 0:
                for line in bytes(data[:end]).split(b"\r\n")[1:]:
                    name, _, value = line.partition(b":")
                    if name.strip().lower() == b"content-length":
                        length = end + 4 + int(value)
    head, _, body = bytes(data).partition(b"\r\n\r\n")
    return int(head.split(None, 2)[1]), body


def last_lines(path: str, count: int) -> list[str]:
    """The last lines of a log, at most 64 KiB of it."""
    try:
        with open(path, "rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - 65536))
            return file.read().decode(errors="replace").splitlines()[-count:]
    except OSError:
        return []
