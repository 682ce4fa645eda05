"""Which running lanes of this node use a folder: what they read is not linked, replaced or removed under them."""

from __future__ import annotations

import contextlib
import os
import time
from typing import TYPE_CHECKING

from sparkbuild.agent.disk.files import is_in
from sparkbuild.agent.lane import records
from sparkbuild.agent.ledger import index
from sparkbuild.agent.machine import procs
from sparkbuild.agent.wire.protocol import config_error

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sparkbuild.agent.docker.ours import Shelf
    from sparkbuild.agent.wire.records import LaneRecord
    from sparkbuild.agent.wire.verbs import Placed

    class Request(Placed):
        """Of a verb about a lane."""

        recipe: str


def users(store: str, path: str, shelf: Shelf | None = None) -> list[str]:
    """The recipes whose lanes run and use `path`: it, a folder above it, or something in it is among what their
    launches named (`uses` of the record, absolute paths of argv). A container counts as running while docker does not
    say otherwise, unless the node was booted since. `shelf`: the containers of this node, docker's usual ones if None.
    """
    by_recipe, closed = records.every(store)
    place = os.path.normpath(path)
    ours = [name for name, record in by_recipe.items() if _uses(record, place) and _may_run(record, shelf)]
    # what another user's lane uses is not to be read; that it is in a container, its mounts tell
    return ours + [unread.recipe for unread in closed if unread.may_run]


def used(store: str, paths: Iterable[str], shelf: Shelf) -> str:
    """Why none of the paths may be removed: a lane of this store uses one, or a container has one mounted; or ""."""
    paths = tuple(paths)
    lanes_of = sorted({lane for path in paths for lane in users(store, path, shelf)})
    if lanes_of:
        return f"lane {', '.join(lanes_of)} runs and uses it"
    if shelf.mounts_problem:
        return f"a container may have it mounted: {shelf.mounts_problem}"
    holders = sorted({name for path in paths for name in _mounted(path, shelf)})
    return f"container {', '.join(holders)} runs and has it mounted" if holders else ""


def _mounted(path: str, shelf: Shelf) -> list[str]:
    """The running containers that have some of it mounted. One that has the whole machine mounted only watches it."""
    places = {os.path.normpath(path), os.path.realpath(path)}

    def holds(source: str) -> bool:
        return source != "/" and any(is_in(place, source) or is_in(source, place) for place in places)

    return [name for name, sources in shelf.mounts.items() if any(map(holds, sources))]


def refuse(store: str, paths: Iterable[str], what: str, shelf: Shelf | None = None) -> None:
    """Raise AgentError, kind "config", when a running lane uses one of the paths; `what` is what would be done."""
    for path in paths:
        lanes = users(store, path, shelf)
        if lanes:
            raise config_error(
                f"{what} is refused while a lane uses it",
                where=path,
                found=f"lane {', '.join(lanes)} runs and uses it: its files would change under it",
                wanted="nothing that runs on these files",
                next=", ".join(f"doit stop:{recipe}" for recipe in lanes),
            )


def note_served(request: Request) -> None:
    """Note which folders the recipe's lane uses, known while it runs: once launched or ready, before a stop."""
    entries = index.entries(request["store"])
    if not entries:
        return
    shelf = records.shelf_of(request)
    used = [entry for entry in entries if request["recipe"] in users(request["store"], entry.dst, shelf)]
    with contextlib.suppress(OSError):  # only a hint for what to remove first: no lane fails of it
        for entry in used:
            index.write(request["store"], entry._replace(served_at=time.time()))


def _uses(record: LaneRecord, path: str) -> bool:
    paths = map(os.path.normpath, record.get("uses", []) + _named(record.get("argv", [])))
    return any(is_in(path, used) or is_in(used, path) for used in paths)


def _named(argv: list[str]) -> list[str]:
    """Absolute paths of a command line: a word of its own, or what follows `=`."""
    words = [part for word in argv for part in (word, word.partition("=")[2])]
    return [word for word in words if word.startswith("/") and word.strip("/")]


def _may_run(record: LaneRecord, shelf: Shelf | None) -> bool:
    if not records.in_docker(record):
        return records.alive(record)
    if record.get("stopped_at") is not None or record.get("boot_id") != procs.boot_id():
        return False
    shelf = shelf or records.shelf_of({})
    return bool(shelf.problem) or records.alive(record, shelf)
