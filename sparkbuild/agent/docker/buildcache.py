"""BuildKit's cache in this node's docker: how much of it nothing has used for a while, and removing that."""

from __future__ import annotations

import json
import time
from datetime import datetime
from typing import TYPE_CHECKING, cast

from sparkbuild.agent.docker.changes import DockerWork
from sparkbuild.agent.docker.engine import Dockerd, DockerdError, quote

if TYPE_CHECKING:
    from sparkbuild.agent.docker.answers import CacheRow, CacheUse, Pruned

UNUSED = 7 * 24 * 3600.0  # seconds without a use: what the builds of a week share stays


def unused_bytes(engine: Dockerd) -> int:
    """Bytes of the cache that may go; 0 also where docker does not tell that in time."""
    try:
        use = cast("CacheUse", engine.get("/system/df?type=build-cache"))
    except DockerdError:  # before 23, docker counts all of its disk for that, which may take minutes
        return 0
    return sum(row.get("Size") or 0 for row in use.get("BuildCache") or () if _may_go(row))


def prune(engine: DockerWork) -> int:
    """Remove it; the bytes that docker says are free by that."""
    filters = json.dumps({"until": [f"{int(UNUSED)}s"]})
    done = cast("Pruned", engine.post(f"/build/prune?all=1&filters={quote(filters)}"))
    return done.get("SpaceReclaimed") or 0


def _may_go(row: CacheRow) -> bool:
    used = _seconds(str(row.get("LastUsedAt") or row.get("CreatedAt") or ""))
    # what images share with the cache stays when the cache goes, and frees nothing
    return not row.get("InUse") and not row.get("Shared") and 0 < used < time.time() - UNUSED


def _seconds(text: str) -> float:
    """Unix seconds of docker's times, whose fractions have up to nine digits; 0 when it is none."""
    try:
        return datetime.fromisoformat(f"{text[:19]}+00:00").timestamp()
    except ValueError:
        return 0.0
