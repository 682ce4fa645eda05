"""Remove staged data: only what the ledger of a folder in the index names, and never what a running lane uses.

The order keeps every kill harmless: what is known of the files goes into the draft, the ledger goes, the files go, and
the entry of the index goes last. A rerun goes on; a staging that comes first finds what is left by the draft.
"""

from __future__ import annotations

import contextlib
import os
import shlex
from typing import TYPE_CHECKING

from sparkbuild.agent.disk.files import inside
from sparkbuild.agent.evict import attached
from sparkbuild.agent.evict.inventory import Contents, contents
from sparkbuild.agent.evict.place import Place
from sparkbuild.agent.lane import records
from sparkbuild.agent.lane.uses import used
from sparkbuild.agent.ledger import evicted, folder, index, ledger, mountlist, obstacles, stamps
from sparkbuild.agent.ledger.draft import Draft
from sparkbuild.agent.ledger.ledger import LedgerError
from sparkbuild.agent.wire.layout import OURS
from sparkbuild.agent.wire.protocol import AgentError, Reporter

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sparkbuild.agent.wire.staging.inventory import Eviction, EvictRequest, EvictResult, Removed

_NAMED = 8  # files of others that are named


class _RefusedError(Exception):
    """Why a folder is left as it is."""


def run(request: EvictRequest, reporter: Reporter) -> EvictResult:
    """One folder after the other; one that is refused keeps no other from going."""
    store, keep = request["store"], {inside(request["store"], dst) for dst in request.get("keep", ())}
    folders: list[Eviction] = []
    for dst in (inside(store, dst) for dst in request["dsts"]):
        removed, refused = _removed(), ""
        try:
            removed = _evict(request, dst, keep, reporter)
        except _RefusedError as why:
            refused = str(why)
        except AgentError as error:
            refused = f"{error.fields['what']}: {error.fields['found']}"
        folders.append({"dst": dst, "refused": refused, **removed})
    return {"folders": folders}


def _removed(freed: int = 0, files: int = 0, left: Sequence[str] = ()) -> Removed:
    return {"freed": freed, "files": files, "left": list(left[:_NAMED]), "others": len(left)}


def _evict(request: EvictRequest, dst: str, keep: set[str], reporter: Reporter) -> Removed:
    store = request["store"]
    entry, exported = index.entry(store, dst), attached.of(attached.exports(store), dst)
    if keep & {dst, *(export.dst for export in exported)}:
        raise _RefusedError("it is wanted")
    if entry is None:
        raise _RefusedError("sparkbuild staged nothing there: it is not in the index of this node's store")
    if obstacles.hidden(store, dst) is not None:
        raise _RefusedError(f"its disk is not mounted on {entry.mount}")
    if not os.path.isdir(f"{dst}/{OURS}") and not os.path.islink(dst):
        index.forget(store, dst)
        return _removed()  # by hand, before
    _refuse_others(entry)
    with contextlib.ExitStack() as locks:
        for export in exported:  # exports first: so does who makes one
            locks.enter_context(folder.locked(export.dst, _busy))
        locks.enter_context(folder.locked(dst, _busy))
        user = used(store, (dst, *(export.dst for export in exported)), records.shelf_of(request))
        if user:
            raise _RefusedError(user)
        try:
            has = contents(dst)
        except LedgerError as error:
            raise _RefusedError(f"its ledger is unreadable: {error}") from error
        if has.ledger is not None and has.ledger.key not in (entry.key, entry.before):
            raise _RefusedError("its ledger is of something else than was staged from here")
        alone = attached.export(dst)
        if alone is not None:
            return _unlink_export(request, alone, reporter)
        removed = [_unlink_export(request, export, reporter) for export in exported]
        with Place(dst) as place:
            removed.append(_remove(dst, has, place, reporter))
            _forget(request, dst)
            place.close_up()
        return {
            "freed": sum(each["freed"] for each in removed),
            "files": sum(each["files"] for each in removed),
            "left": [name for each in removed for name in each["left"]][:_NAMED],
            "others": sum(each["others"] for each in removed),
        }


def _refuse_others(entry: index.Entry) -> None:
    """What is not sparkbuild's own to remove."""
    if os.path.islink(entry.dst):
        raise _RefusedError("it is a symbolic link: what it leads to is not touched")
    if entry.adopted:
        raise _RefusedError(f"its files were there before; by hand: rm -r {shlex.quote(entry.dst)}")


def _forget(request: EvictRequest, dst: str) -> None:
    """From here on the index knows of the folder only what became of it."""
    evicted.note(request["store"], dst, request.get("for") or "something else")
    index.forget(request["store"], dst)


def _unlink_export(request: EvictRequest, export: attached.Export, reporter: Reporter) -> Removed:
    """Remove the names that an export has. Its manifest goes first."""
    mountlist.withdraw(export.dst, list(export.names))
    with Place(export.dst) as place:
        freed = files = 0
        for name, text in export.names.items():
            size = place.unlink_name(name, export.inodes)
            freed, files = freed + (size or 0), files + (size is not None)
            files += place.unlink_link(name, text)
        reporter.log(f"removed {files} name{'' if files == 1 else 's'} of the export {export.dst}")
        freed += place.unlink_ours()
        left = [f"{export.dst}/{name}" for name in place.others()]
        _forget(request, export.dst)
        place.close_up()
    return _removed(freed, files, left)


def _busy(who: str) -> None:
    raise _RefusedError(f"it is being staged by another process ({who})")


def _remove(dst: str, has: Contents, place: Place, reporter: Reporter) -> Removed:
    if has.ledger is not None:
        Draft(dst).start(list(has.files), has.links)
        ledger.withdraw(place.held)
    total, freed, files = sum(record.data for record in has.files), 0, 0
    proven = stamps.proven(dst)
    for link in has.links:
        files += place.unlink_link(link.name, link.text)
    for record in has.files:
        size = place.unlink_file(record, proven.get(record.name))
        freed, files = freed + (size or 0), files + (size is not None)
        reporter.progress("evict", freed, total)
    reporter.log(f"removed {files} file{'' if files == 1 else 's'} of {dst}")
    freed += place.unlink_ours()
    return _removed(freed, files, place.others())
