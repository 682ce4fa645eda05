"""Assembled docker images in this node's store: where their archives lie, and whether they are what was written."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING, Any, cast

from sparkbuild.agent.artifacts import sha256_of, stamp_of
from sparkbuild.agent.files import read_json, write_json

if TYPE_CHECKING:
    from sparkbuild.agent.records import ArchiveReceipt

RECEIPT_FORMAT = "sparkbuild-archive/v1"


def folder_of(store: str, name: str, short_key: str) -> str:
    """Where an archive lies, with its receipt."""
    return os.path.join(store, "archives", name, short_key)


def archive_of(folder: str) -> str:
    """The archive in its folder: what `docker load` takes."""
    return os.path.join(folder, "image.tar")


def observe(query: dict[str, Any]) -> dict[str, Any]:
    """Query {"store", "name", "key"}; {"present", "bytes", "layers", "problem", "other"}.

    The content is hashed once; after that a stamp stands for it, as for artifacts. `other` is the newest archive of the
    name with another key.
    """
    folder = folder_of(query["store"], query["name"], query["key"][:12])
    receipt = read_receipt(folder)
    if receipt is None or receipt["key"] != query["key"]:
        return {"present": False, "other": _other(query["store"], query["name"], query["key"])}
    path = archive_of(folder)
    try:
        stat = os.stat(path, follow_symlinks=False)
    except FileNotFoundError:
        return {"present": False, "problem": "its archive was removed", "bytes": receipt["bytes"]}
    stamp = stamp_of(stat)
    seen = read_json(f"{path}.stamp")
    if seen is None or seen.get("stamp") != stamp:
        if stat.st_size != receipt["bytes"] or sha256_of(path) != receipt["sha256"]:
            return {"present": False, "problem": "its archive is not what was written", "bytes": receipt["bytes"]}
        with suppress(OSError):
            write_json(f"{path}.stamp", {"stamp": stamp})
    return {"present": True, "bytes": receipt["bytes"], "layers": receipt["layers"]}


def read_receipt(folder: str) -> ArchiveReceipt | None:
    """An archive's receipt; None when the folder holds no finished one."""
    receipt = read_json(os.path.join(folder, "receipt.json"))
    return None if receipt is None or receipt.get("format") != RECEIPT_FORMAT else cast("ArchiveReceipt", receipt)


def _other(store: str, name: str, key: str) -> dict[str, Any] | None:
    base = os.path.dirname(folder_of(store, name, "x"))
    folders = [os.path.join(base, entry) for entry in os.listdir(base)] if os.path.isdir(base) else []
    receipts = [receipt for folder in folders if (receipt := read_receipt(folder)) and receipt["key"] != key]
    return {"parts": max(receipts, key=lambda receipt: receipt["at"])["parts"]} if receipts else None
