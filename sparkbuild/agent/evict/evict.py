"""Remove staged data: only what the ledger of a folder in the index names, and never what a running lane uses.

The order keeps every kill harmless: what is known of the files goes into the draft, the ledger goes, the files go, and
the entry of the index goes last. A rerun goes on; a staging that comes first finds what is left by the draft.
"""

from __future__ import annotations

import contextlib
import os
import shlex
from typing import Any

from sparkbuild.agent.disk.files import inside
from sparkbuild.agent.evict import attached
from sparkbuild.agent.evict.inventory import Contents, contents
from sparkbuild.agent.evict.place import Place
from sparkbuild.agent.lane import records
from sparkbuild.agent.lane.uses import used
from sparkbuild.agent.ledger import evicted, folder, index, ledger, mountlist, obstacles, stamps
from sparkbuild.agent.ledger.draft import Draft
from sparkbuild.agent.ledger.ledger import OURS, LedgerError
from sparkbuild.agent.wire.protocol import AgentError, Reporter

_NAMED = 8  # files of others that are named


class _RefusedError(Exception):
    """Why a folder is left as it is."""


def run(request: dict[str, Any], reporter: Reporter) -> dict[str, Any]:
    """Request {"store", "docker", "dsts": [folder, ...], "keep": [folder, ...]: never to be removed, "for": what room
    is made for}.

    Result {"folders": [{"dst", "refused": why, "" when it was removed, "freed": bytes, "files", "left": names of what
    is not ours, at most 8, "others": how many of these}]}, in the order asked for.
    """
    store, keep = request["store"], {inside(request["store"], dst) for dst in request.get("keep") or ()}
    found = []
    for dst in (inside(store, dst) for dst in request["dsts"]):
        nothing: dict[str, Any] = {"dst": dst, "refused": "", "freed": 0, "files": 0, "left": [], "others": 0}
        try:
            found.append(nothing | _evict(request, dst, keep, reporter))
        except _RefusedError as why:
            found.append(nothing | {"refused": str(why)})
        except AgentError as error:
            found.append(nothing | {"refused": f"{error.fields['what']}: {error.fields['found']}"})
    return {"folders": found}


def _evict(request: dict[str, Any], dst: str, keep: set[str], reporter: Reporter) -> dict[str, Any]:
    store = request["store"]
    entry, exported = index.entry(store, dst), attached.of(attached.exports(store), dst)
    if keep & {dst, *(one.dst for one in exported)}:
        raise _RefusedError("it is wanted")
    if entry is None:
        raise _RefusedError("sparkbuild staged nothing there: it is not in the index of this node's store")
    if obstacles.hidden(store, dst) is not None:
        raise _RefusedError(f"its disk is not mounted on {entry.mount}")
    if not os.path.isdir(f"{dst}/{OURS}") and not os.path.islink(dst):
        index.forget(store, dst)
        return {}  # removed by hand
    _refuse_others(entry)
    with contextlib.ExitStack() as locks:
        for one in exported:  # exports first: so does who makes one
            locks.enter_context(folder.locked(one.dst, _busy))
        locks.enter_context(folder.locked(dst, _busy))
        found = used(store, (dst, *(one.dst for one in exported)), records.shelf_of(request))
        if found:
            raise _RefusedError(found)
        try:
            has = contents(dst)
        except LedgerError as error:
            raise _RefusedError(f"its ledger is unreadable: {error}") from error
        if has.ledger is not None and has.ledger.key not in (entry.key, entry.before):
            raise _RefusedError("its ledger is of something else than was staged from here")
        alone = attached.export(dst)
        if alone is not None:
            return _unlink_export(request, alone, reporter)
        done = [_unlink_export(request, one, reporter) for one in exported]
        with Place(dst) as place:
            done.append(_remove(dst, has, place, reporter))
            _forget(request, dst)
            place.close_up()
        return {field: sum((one[field] for one in done[:-1]), done[-1][field]) for field in ("freed", "files")} | {
            "left": [name for one in done for name in one["left"]][:_NAMED],
            "others": sum(one["others"] for one in done),
        }


def _refuse_others(entry: index.Entry) -> None:
    """What is not sparkbuild's own to remove."""
    if os.path.islink(entry.dst):
        raise _RefusedError("it is a symbolic link: what it leads to is not touched")
    if entry.adopted:
        raise _RefusedError(f"its files were there before; by hand: rm -r {shlex.quote(entry.dst)}")


def _forget(request: dict[str, Any], dst: str) -> None:
    """From here on the index knows of the folder only what became of it."""
    evicted.note(request["store"], dst, str(request.get("for") or "something else"))
    index.forget(request["store"], dst)


def _unlink_export(request: dict[str, Any], export: attached.Export, reporter: Reporter) -> dict[str, Any]:
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
    return {"freed": freed, "files": files, "left": left, "others": len(left)}


def _busy(who: str) -> None:
    raise _RefusedError(f"it is being staged by another process ({who})")


def _remove(dst: str, has: Contents, place: Place, reporter: Reporter) -> dict[str, Any]:
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
    left = place.others()
    return {"freed": freed, "files": files, "left": left[:_NAMED], "others": len(left)}
