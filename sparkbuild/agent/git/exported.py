"""Exported git sources in this node's store: where they lie, and whether they are what was exported."""

from __future__ import annotations

import os
from typing import Any

from sparkbuild.agent.disk.files import read_json
from sparkbuild.agent.store.kept import is_right, sha256_of

RECEIPT = "receipt.json"
ARCHIVE = "source.tar"


def folder_of(store: str, key: str) -> str:
    """Where the source of that key lies; `source.tar`, and `receipt.json`, written last."""
    return os.path.join(store, "sources", key[:2], key)


def observe(query: dict[str, Any]) -> dict[str, Any]:
    """Query {"store", "key", "pins": [[commit, unix seconds or 0], ...]}; {"present", "bytes", "problem", "files",
    "content", "time", "sha256"}. No network. `pins` are the source's own and those of its submodules.

    `content` is the git tree of what is in the archive, submodules and patches included. The archive is hashed once;
    after that a stamp stands for its content.
    """
    folder = folder_of(query["store"], query["key"])
    receipt = read_json(os.path.join(folder, RECEIPT))
    if receipt is None:
        return {"present": False, "bytes": 0}
    path = os.path.join(folder, ARCHIVE)
    try:
        stat = os.stat(path, follow_symlinks=False)
    except FileNotFoundError:
        return {"present": False, "bytes": 0, "problem": "it was exported, and the archive is gone"}
    if problem := _unchecked(query.get("pins") or [], receipt.get("pins") or []):
        return {"present": False, "bytes": stat.st_size, "problem": problem}
    is_of_key = receipt.get("key") == query["key"]
    if not is_right(path, stat, lambda: is_of_key and sha256_of(path) == receipt.get("sha256")):
        return {"present": False, "bytes": stat.st_size, "problem": "its content is not what was exported"}
    told = {name: receipt.get(name) for name in ("files", "content", "time", "sha256")}
    return {"present": True, "bytes": stat.st_size, **told}


def _unchecked(locked: list[list[Any]], checked: list[list[Any]]) -> str:
    """What of the locked commits was not seen to be true when the archive was made, "" when all was. The key has their
    trees alone, and a wrong commit or time beside the right tree would pass here and be refused by a new machine.
    """
    times = dict(map(tuple, checked))
    for commit, time in locked:
        if commit not in times:
            return f"it was exported from another commit, and what {commit[:12]} is was not looked at"
        if time and times[commit] != time:
            return f"commit {commit[:12]} is of {times[commit]}, and the lock says {time}"
    return ""
