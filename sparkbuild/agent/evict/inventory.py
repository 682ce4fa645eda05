"""What is staged on this node: every folder of the index, how much removing it would give back, and who uses it."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING, NamedTuple

from sparkbuild.agent.disk import patience, questions
from sparkbuild.agent.disk.files import inside
from sparkbuild.agent.evict.attached import Export, exports, names_of, of
from sparkbuild.agent.lane import records
from sparkbuild.agent.lane.uses import used
from sparkbuild.agent.ledger import folder, index, ledger
from sparkbuild.agent.ledger.draft import Draft
from sparkbuild.agent.ledger.ledger import Ledger, LedgerError, Link, Record
from sparkbuild.agent.wire.layout import OURS

if TYPE_CHECKING:
    from sparkbuild.agent.docker.ours import Shelf
    from sparkbuild.agent.wire.staging.inventory import Holding, InventoryFact as Fact, InventoryQuery


class Contents(NamedTuple):
    """What sparkbuild put into a folder, by its ledger, or by its draft when it has none."""

    ledger: Ledger | None
    files: tuple[Record, ...]
    links: tuple[Link, ...]


def observe(query: InventoryQuery) -> Fact:
    """The folders and exports of the index, or these folders alone."""
    store = query["store"]
    if "dsts" in query:
        asked = {inside(store, dst) for dst in query["dsts"]}
        entries = [index.entry(store, dst) or index.Entry(dst) for dst in sorted(asked)]
    else:
        entries = index.entries(store)
    attached = exports(store)
    made_of = {export.dst: list(export.folders) for export in attached}
    protected = {name for name, record in records.every(store)[0].items() if record.get("protect")}
    shelf = records.shelf_of(query)
    staged = [entry for entry in entries if entry.dst not in made_of]
    looks = [_bounded(store, entry, of(attached, entry.dst), shelf) for entry in staged]
    return {
        "folders": [{**holding, "protect": holding["recipe"] in protected} for holding in looks],
        "exports": [{**entry.told(), "folders": made_of[entry.dst]} for entry in entries if entry.dst in made_of],
    }


def _bounded(store: str, entry: index.Entry, attached: list[Export], shelf: Shelf) -> Holding:
    """As `look`; nothing but its problem of a folder whose disk does not answer: it hides no other."""
    try:
        return patience.bounded(lambda: look(store, entry, attached, shelf), about=entry.dst)
    except patience.SilentError as error:
        return _nothing(entry, f"{error.fields['what']}: {error.fields['found']}")


def _nothing(entry: index.Entry, problem: str = "") -> Holding:
    return {
        **entry.told(),
        "present": False,
        "total": 0,
        "frees": 0,
        "kept": 0,
        "exports": [],
        "device": "",
        "used": "",
        "busy": "",
        "problem": problem,
    }


def look(store: str, entry: index.Entry, attached: list[Export], shelf: Shelf) -> Holding:
    """What a folder holds, and who uses it."""
    fact = _nothing(entry)
    fact["busy"], fact["exports"] = folder.busy(entry.dst), [export.dst for export in attached]
    fact["used"] = used(store, (entry.dst, *fact["exports"]), shelf)
    names = names_of(attached)
    try:
        with questions.asking(entry.dst):
            fact["device"] = str(os.lstat(entry.dst).st_dev)
        has = contents(entry.dst)
    except FileNotFoundError:
        return fact
    except (OSError, LedgerError) as error:
        fact["problem"] = str(getattr(error, "strerror", None) or error)
        return fact
    fact["present"], fact["total"] = has.ledger is not None, sum(record.data for record in has.files)
    for path in (*(f"{entry.dst}/{record.name}" for record in has.files), *_ours(entry.dst)):
        try:
            with questions.asking(path):
                seen = os.lstat(path)
        except OSError:
            continue
        if stat.S_ISREG(seen.st_mode):
            others = seen.st_nlink - 1 - names[seen.st_dev, seen.st_ino]
            fact["kept" if others > 0 else "frees"] += seen.st_blocks * 512
    return fact


def contents(dst: str) -> Contents:
    """What is ours in a folder. Raises LedgerError, and OSError when the folder is no folder or a link."""
    if os.path.islink(dst):
        raise LedgerError(f"{dst} is a symbolic link: what it leads to is not touched")
    recorded = ledger.read(dst)
    if recorded is not None:
        return Contents(recorded, recorded.files, recorded.links)
    draft = Draft(dst)
    return Contents(None, tuple(draft.read().values()), tuple(draft.read_links()))


def _ours(dst: str) -> list[str]:
    try:
        return [f"{dst}/{OURS}/{name}" for name in os.listdir(f"{dst}/{OURS}")]
    except OSError:
        return []
