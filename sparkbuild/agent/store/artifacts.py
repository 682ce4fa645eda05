"""Artifacts in this node's store: where they lie, and whether they are what their lock pins."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from sparkbuild.agent.store.kept import is_right, sha256_of
from sparkbuild.agent.wire.protocol import integrity_error

if TYPE_CHECKING:
    from sparkbuild.agent.wire.store import ArtifactAbsent, ArtifactFact, ArtifactQuery


def path_of(store: str, sha256: str, filename: str) -> str:
    """Where an artifact lies in a node's store."""
    return os.path.join(store, "artifacts", sha256[:2], sha256, os.path.basename(filename))


def observe(query: ArtifactQuery) -> ArtifactFact | ArtifactAbsent:
    """Whether an artifact is there."""
    path = path_of(query["store"], query["sha256"], query["filename"])
    try:
        stat = os.stat(path, follow_symlinks=False)
    except FileNotFoundError:
        return {"present": False, "bytes": 0}
    if not is_right(path, stat, lambda: sha256_of(path) == query["sha256"]):
        return {"present": False, "bytes": stat.st_size, "problem": "its content is not what is pinned"}
    return {"present": True, "bytes": stat.st_size}


def keep_if_right(part: str, sha256: str, title: str, pinned: str) -> None:
    """Remove what was fetched when it is not what is pinned, and raise AgentError, kind "integrity"."""
    fetched = sha256_of(part)
    if fetched != sha256:
        os.unlink(part)
        raise integrity_error(
            f"what was fetched is not what {pinned} pins",
            where=title,
            found=f"sha256 {fetched}",
            wanted=f"sha256 {sha256}",
            next=f"find out who changed it before you change its sha256 in {pinned}; nothing was kept",
        )
