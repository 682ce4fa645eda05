"""A staging or an export in the index and in the folder itself, from its first byte to its last: whose it is, and where
it lies.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, TypeVar

from sparkbuild.agent.ledger import folder, index, ownership
from sparkbuild.agent.machine.mounts import recorded_mount

if TYPE_CHECKING:
    from sparkbuild.agent.wire.staging.staged import ClaimRequest

R = TypeVar("R", bound="Mapping[str, object]")


def noted(request: ClaimRequest, dst: str, work: Callable[[], R]) -> R:
    """Do a staging or an export, and have it in the index from its beginning on. To be called under the lock of the
    folder; `work` returns its result. Of a request without an owner, nothing is noted. One that failed before anything
    was written leaves the index as it was.
    """
    owner, store = request.get("owner"), request.get("store", "")
    if owner is None or not store:
        return work()
    before, owned_before = index.entry(store, dst), ownership.read(dst)
    old = before or index.Entry(dst)
    mount, file_system = recorded_mount(dst)
    old = old._replace(adopted=old.adopted and folder.begun(dst), mount=mount, file_system=file_system)
    recipe, block, workspace, key = owner["recipe"], owner["block"], owner["workspace"], request["key"]
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
    total = result.get("total")  # of a staging; an export has no bytes
    named = named._replace(before="", bytes=total if isinstance(total, int) else 0, adopted=since.adopted)
    named = named._replace(staged_at=time.time(), served_at=since.served_at)
    index.write(store, named)
    ownership.write(dst, mine._replace(staged_at=named.staged_at))
    index.forget_eviction(store, dst)
    return result


def adopt(request: ClaimRequest, dst: str) -> None:
    """Note of a folder in the index that files of others were found in it and are kept: it is never evicted."""
    entry = index.entry(request.get("store", ""), dst)
    if entry is not None and request.get("owner") is not None:
        index.write(request["store"], entry._replace(adopted=True))
