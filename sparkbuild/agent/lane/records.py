"""The records of this node's lanes: one owner of reading, writing and changing them, and what they name that lives."""

from __future__ import annotations

import os
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, cast

from sparkbuild.agent.disk.files import read_json, write_json
from sparkbuild.agent.disk.held import locking
from sparkbuild.agent.disk.lock import take
from sparkbuild.agent.lane import unread
from sparkbuild.agent.lane.marked import MARK
from sparkbuild.agent.lane.unread import Unread
from sparkbuild.agent.machine import procs
from sparkbuild.agent.wire.lanelabels import is_alive

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from sparkbuild.agent.docker.ours import Shelf
    from sparkbuild.agent.wire.records import LaneRecord

LANE_FORMAT = "sparkbuild-lane/v1"


def folder(store: str, recipe: str) -> str:
    """Where a recipe's lane keeps its record and logs."""
    return os.path.join(store, "lanes", recipe)


def read(store: str, recipe: str) -> LaneRecord | Unread | None:
    """The last launch's record, its shape looked at; None when there was none, or why it cannot be read."""
    path = _path(store, recipe)
    try:
        content = unread.foreign(store, recipe, path) or read_json(path)
    except PermissionError:
        return unread.closed(recipe, path)
    except OSError as error:
        return Unread(recipe, path, error.strerror or str(error))
    if isinstance(content, Unread):
        return content
    if content is None:
        return Unread(recipe, path, "it holds no table") if os.path.lexists(path) else None
    if content.get("format") != LANE_FORMAT:
        return Unread(recipe, path, "it is of another version of sparkbuild")
    why = unread.wrong(content)
    return Unread(recipe, path, why) if why else cast("LaneRecord", content)


def record(store: str, recipe: str) -> LaneRecord | None:
    """The last launch's record, None when there is none to be read; AgentError for one that is another user's."""
    last = read(store, recipe)
    if isinstance(last, Unread):
        if last.user:
            raise last.error()
        return None
    return last


def every(store: str) -> tuple[dict[str, LaneRecord], list[Unread]]:
    """All records of this store by recipe, and those that cannot be read."""
    seen = {name: read(store, name) for name in names(store)}
    closed = [last for last in seen.values() if isinstance(last, Unread)]
    return {name: last for name, last in seen.items() if last and not isinstance(last, Unread)}, closed


def names(store: str) -> list[str]:
    """All recipes that were ever launched on this node."""
    try:
        return sorted(os.listdir(os.path.join(store, "lanes")))
    except OSError:
        return []


def write(store: str, new: LaneRecord) -> None:
    """Write the record of a launch in the place of the last one."""
    with _alone(store, new["recipe"]):
        _write(store, new)


def change(store: str, recipe: str, launch: str | None, edit: Callable[[LaneRecord], LaneRecord]) -> LaneRecord | None:
    """Change the record of that launch (None: of the last one, whichever it is); None when another one is recorded.

    It is read, changed and written while nobody else does any of that: a stop takes as long as its grace, and what is
    noted meanwhile must not be lost of it, nor a new launch of what is noted late.
    """
    if not os.path.isdir(folder(store, recipe)):
        return None
    with _alone(store, recipe):
        last = record(store, recipe)
        if last is None or launch not in {None, last.get("launch", "")}:
            return None
        changed = edit(last)
        if changed is not last:  # a full disk takes nothing, and there may be nothing to write
            _write(store, changed)
    return changed


@contextmanager
def _alone(store: str, recipe: str) -> Iterator[None]:
    """For the moment of a change. Another lock than that of launch and stop, which hold theirs while engines end."""
    fd = locking(os.path.join(folder(store, recipe), "record.lock"))
    try:
        take(fd)
        yield
    finally:
        os.close(fd)


def _path(store: str, recipe: str) -> str:
    return os.path.join(folder(store, recipe), "lane.json")


def _write(store: str, new: LaneRecord) -> None:
    write_json(_path(store, new["recipe"]), dict(new), mode=0o600)


def in_docker(launched: LaneRecord | None) -> bool:
    """True when the launch made a container."""
    return launched is not None and launched.get("runtime") == "docker"


def shelf_of(request: Mapping[str, object]) -> Shelf:
    """The containers of this node's lanes, by the docker socket that a request names."""
    from sparkbuild.agent.docker.ours import Shelf  # noqa: PLC0415 - 2 ms; lanes that are processes need no docker

    return Shelf(str(request.get("docker") or "/var/run/docker.sock"))


def alive(launched: LaneRecord, shelf: Shelf | None = None) -> bool:
    """True when the very process or container of the record lives."""
    if in_docker(launched):
        return is_alive((shelf or shelf_of({})).box(launched["container"]))
    return procs.is_same(launched.get("pid", 0), launched.get("start_ticks", -1), launched.get("boot_id", ""))


def uptime() -> float:
    """Seconds since this machine was started: a clock that nobody sets, and that counts while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def age(launched: LaneRecord) -> float | None:
    """Seconds since the launch, by this machine's own clock and no other's; None when it was of another boot."""
    if "launched_uptime" not in launched or launched.get("boot_id") != procs.boot_id():
        return None
    return max(0.0, uptime() - launched["launched_uptime"])


def mark(log: str) -> str:
    """What stands in the environment of every process of the launch that has this log, and of no other."""
    return f"{MARK}={log}"


def members(launched: LaneRecord) -> set[int]:
    """The lane's living processes: the session that the recorded process leads, and what this launch started outside
    of it. Once that process is gone, its number may lead another's session, so only the mark counts. A container's
    are docker's business.
    """
    if in_docker(launched) or launched.get("boot_id") != procs.boot_id():
        return set()
    pids = procs.marked(mark(launched["log"]))
    if alive(launched):
        pids |= procs.session_of(launched["pid"])
    return {pid for pid in pids if procs.start_ticks(pid) is not None}


def lane_of(store: str, pid: int) -> str:
    """The lane of this store that a process belongs to, "" when none."""
    by_recipe = every(store)[0] if pid else {}
    return next((name for name, launched in by_recipe.items() if pid in members(launched)), "")


def runs(store: str, recipe: str) -> bool:
    """True when the lane is to be asked for an answer: its process lives, or it is in a container and may."""
    last = read(store, recipe)
    return last is not None and not isinstance(last, Unread) and (in_docker(last) or alive(last))
