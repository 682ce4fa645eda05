"""Exported git sources in this node's store: where they lie, and whether they are what was exported."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, cast

from sparkbuild.agent.disk.files import read_json
from sparkbuild.agent.store.kept import is_right, sha256_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sparkbuild.agent.wire.receipts import SourceReceipt
    from sparkbuild.agent.wire.store import Pin, SourceAbsent, SourceFact, SourceQuery

FORMAT = "sparkbuild-source/1"
RECEIPT = "receipt.json"
ARCHIVE = "source.tar"


def folder_of(store: str, key: str) -> str:
    """Where the source of that key lies; `source.tar`, and `receipt.json`, written last."""
    return os.path.join(store, "sources", key[:2], key)


def observe(query: SourceQuery) -> SourceFact | SourceAbsent:
    """Whether the archive is there; no network. It is hashed once; after that a stamp stands for its content."""
    folder = folder_of(query["store"], query["key"])
    receipt = read_receipt(folder)
    if receipt is None:
        return {"present": False, "bytes": 0}
    path = os.path.join(folder, ARCHIVE)
    try:
        stat = os.stat(path, follow_symlinks=False)
    except FileNotFoundError:
        return {"present": False, "bytes": 0, "problem": "it was exported, and the archive is gone"}
    if problem := _unchecked(query["pins"], receipt.get("pins", [])):
        return {"present": False, "bytes": stat.st_size, "problem": problem}
    is_of_key, sha256 = receipt["key"] == query["key"], receipt["sha256"]
    if not is_right(path, stat, lambda: is_of_key and sha256_of(path) == sha256):
        return {"present": False, "bytes": stat.st_size, "problem": "its content is not what was exported"}
    return {
        "present": True,
        "bytes": stat.st_size,
        "files": receipt["files"],
        "content": receipt["content"],
        "time": receipt["time"],
        "sha256": receipt["sha256"],
    }


def read_receipt(folder: str) -> SourceReceipt | None:
    """A source's receipt; None when the folder holds no finished one."""
    receipt = read_json(os.path.join(folder, RECEIPT))
    return cast("SourceReceipt", receipt) if receipt is not None and _is_receipt(receipt) else None


def _is_receipt(receipt: Mapping[str, object]) -> bool:
    """Whether it has what is read of it, each of its kind."""
    pins = receipt.get("pins", [])
    return (
        all(isinstance(receipt.get(name), str) for name in ("key", "content", "sha256"))
        and all(type(receipt.get(name)) is int for name in ("files", "time"))
        and isinstance(pins, list)
        and all(isinstance(pin, list) and list(map(type, pin)) == [str, int] for pin in pins)
    )


def _unchecked(locked: list[Pin], checked: list[Pin]) -> str:
    """What of the locked commits was not seen to be true when the archive was made, "" when all was. The key has their
    trees alone, and a wrong commit or time beside the right tree would pass here and be refused by a new machine.
    """
    times = dict(checked)
    for commit, time in locked:
        if commit not in times:
            return f"it was exported from another commit, and what {commit[:12]} is was not looked at"
        if time and times[commit] != time:
            return f"commit {commit[:12]} is of {times[commit]}, and the lock says {time}"
    return ""
