"""A staging or an export in the index and in the folder itself, from its first byte to its last: whose it is, and where
it lies.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from sparkbuild.agent.ledger import folder, index, ownership
from sparkbuild.agent.machine.mounts import recorded_mount


def noted(request: dict[str, Any], dst: str, work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Do a staging or an export, and have it in the index from its beginning on. To be called under the lock of the
    folder; `work` returns its result. Without {"owner": {"recipe", "block", "workspace"}} in the request, nothing is
    noted. One that failed before anything was written leaves the index as it was.
    """
    owner, store = request.get("owner"), str(request.get("store") or "")
    if not isinstance(owner, dict) or not store:
        return work()
    before, owned_before = index.entry(store, dst), ownership.read(dst)
    old = before or index.Entry(dst)
    mount, file_system = recorded_mount(dst)
    old = old._replace(adopted=old.adopted and folder.begun(dst), mount=mount, file_system=file_system)
    recipe, block, workspace = (str(owner.get(field) or "") for field in ("recipe", "block", "workspace"))
    key = str(request["key"])
    named = old._replace(recipe=recipe, block=block, workspace=workspace, key=key)
    index.write(store, named._replace(before=old.key if old.key != key else old.before))
    mine = ownership.Owner(dst, recipe, block, workspace, key, owned_before.staged_at if owned_before else 0.0)
    try:
        ownership.write(dst, mine)
        result = work()
    except BaseException:
        if not folder.begun(dst):
            index.write(store, before) if before else index.forget(store, dst)
            ownership.write(dst, owned_before)
        raise
    since = index.entry(store, dst) or old  # a lane may have been served from it meanwhile
    named = named._replace(
        before="", bytes=int(result.get("total", 0)), staged_at=time.time(), served_at=since.served_at
    )
    named = named._replace(adopted=since.adopted)
    index.write(store, named)
    ownership.write(dst, mine._replace(staged_at=named.staged_at))
    index.forget_eviction(store, dst)
    return result


def adopt(request: dict[str, Any], dst: str) -> None:
    """Note of a folder in the index that files of others were found in it and are kept: it is never evicted."""
    found = index.entry(str(request.get("store") or ""), dst)
    if found is not None and isinstance(request.get("owner"), dict):
        index.write(str(request["store"]), found._replace(adopted=True))
