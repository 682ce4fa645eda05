"""Which running lanes of this node use a folder: what they read is not linked, replaced or removed under them."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from sparkbuild.agent import lanes, procs
from sparkbuild.agent.protocol import AgentError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sparkbuild.agent.boxes import Shelf
    from sparkbuild.agent.records import LaneRecord


def users(store: str, path: str, shelf: Shelf | None = None) -> list[str]:
    """The recipes whose lanes run and use `path`: it, a folder above it, or something in it is among what their
    launches named (`uses` of the record, absolute paths of argv). A container counts as running while docker does not
    say otherwise, unless the node was booted since. `shelf`: the containers of this node, docker's usual ones if None.
    """
    found = []
    for recipe in lanes.names(store):
        record = lanes.record(store, recipe)
        if record is not None and _uses(record, os.path.normpath(path)) and _may_run(record, shelf):
            found.append(recipe)
    return found


def refuse(store: str, paths: Iterable[str], what: str, shelf: Shelf | None = None) -> None:
    """Raise AgentError, kind "config", when a running lane uses one of the paths; `what` is what would be done."""
    for path in paths:
        found = users(store, path, shelf)
        if found:
            raise AgentError(
                f"{what} is refused while a lane uses it",
                kind="config",
                where=path,
                found=f"lane {', '.join(found)} runs and uses it: its files would change under it",
                wanted="nothing that runs on these files",
                next=", ".join(f"doit stop:{recipe}" for recipe in found),
            )


def _uses(record: LaneRecord, path: str) -> bool:
    found = record.get("uses", []) + _named(record.get("argv", []))
    named = [os.path.normpath(one) for one in found]
    return any(_is_in(path, one) or _is_in(one, path) for one in named)


def _named(argv: list[str]) -> list[str]:
    """Absolute paths of a command line: a word of its own, or what follows `=`."""
    words = [part for word in argv for part in (word, word.partition("=")[2])]
    return [word for word in words if word.startswith("/") and word.strip("/")]


def _is_in(path: str, folder: str) -> bool:
    return path == folder or path.startswith(f"{folder.rstrip('/')}/")


def _may_run(record: LaneRecord, shelf: Shelf | None) -> bool:
    if not lanes.in_docker(record):
        return lanes.alive(record)
    if record.get("stopped_at") is not None or record.get("boot_id") != procs.boot_id():
        return False
    shelf = shelf or lanes.shelf_of({})
    return bool(shelf.problem) or lanes.alive(record, shelf)
