"""Artifacts in this node's store: where they lie, and whether they are what their lock pins."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Any

from sparkbuild.agent.disk.files import read_json, write_json
from sparkbuild.agent.wire.protocol import AgentError

_BLOCK = 4 << 20


def path_of(store: str, sha256: str, filename: str) -> str:
    """Where an artifact lies in a node's store."""
    return os.path.join(store, "artifacts", sha256[:2], sha256, os.path.basename(filename))


def observe(query: dict[str, Any]) -> dict[str, Any]:
    """Query {"store", "sha256", "filename"}; {"present", "bytes", "problem"}.

    The content is hashed once; after that a stamp (inode, size, mtime, ctime) stands for it until one of these moves.
    """
    path = path_of(query["store"], query["sha256"], query["filename"])
    try:
        stat = os.stat(path, follow_symlinks=False)
    except FileNotFoundError:
        return {"present": False, "bytes": 0}
    stamp = stamp_of(stat)
    seen = read_json(f"{path}.stamp")
    if seen is None or seen.get("stamp") != stamp:
        if sha256_of(path) != query["sha256"]:
            return {"present": False, "bytes": stat.st_size, "problem": "its content is not what is pinned"}
        with suppress(OSError):  # a full or read-only disk costs time, not the verdict
            write_json(f"{path}.stamp", {"stamp": stamp})
    return {"present": True, "bytes": stat.st_size}


def sha256_of(path: str) -> str:
    """The sha256 of a file, in hex."""
    import hashlib  # noqa: PLC0415 - a stamp stands for the content on most looks

    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()


def keep_if_right(part: str, sha256: str, title: str, pinned: str) -> None:
    """Remove what was fetched when it is not what is pinned, and raise AgentError, kind "integrity"."""
    found = sha256_of(part)
    if found != sha256:
        os.unlink(part)
        raise AgentError(
            f"what was fetched is not what {pinned} pins",
            kind="integrity",
            where=title,
            found=f"sha256 {found}",
            wanted=f"sha256 {sha256}",
            next=f"find out who changed it before you change its sha256 in {pinned}; nothing was kept",
        )


def stamp_of(stat: os.stat_result) -> list[int]:
    """What tells two states of a file apart without reading it; the ctime cannot be set by hand."""
    return [stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns]
