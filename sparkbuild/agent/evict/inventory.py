"""What is staged on this node: every folder of the index, how much removing it would give back, and who uses it."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING, Any, NamedTuple

from sparkbuild.agent.disk import patience, questions
from sparkbuild.agent.disk.files import inside
from sparkbuild.agent.evict.attached import Export, exports, names_of, of
from sparkbuild.agent.lane import records
from sparkbuild.agent.lane.uses import used
from sparkbuild.agent.ledger import folder, index, ledger
from sparkbuild.agent.ledger.draft import Draft
from sparkbuild.agent.ledger.ledger import OURS, Ledger, LedgerError, Link, Record

if TYPE_CHECKING:
    from sparkbuild.agent.docker.ours import Shelf


class Contents(NamedTuple):
    """What sparkbuild put into a folder, by its ledger, or by its draft when it has none."""

    ledger: Ledger | None
    files: tuple[Record, ...]
    links: tuple[Link, ...]


def observe(query: dict[str, Any]) -> dict[str, Any]:
    """Query {"store", "docker", "dsts"?: [folder]}; {"folders": [see `look`], "exports": [{the fields of an
    index.Entry, "folders": what it is made of}]} of the index, or of these alone. An export goes with these folders.
    """
    store = query["store"]
    if "dsts" in query:
        asked = {inside(store, dst) for dst in query["dsts"]}
        found = [index.entry(store, dst) or index.Entry(dst) for dst in sorted(asked)]
    else:
        found = index.entries(store)
    attached = exports(store)
    alone = {one.dst for one in attached}
    protected = {name for name, found in records.every(store)[0].items() if found.get("protect")}
    shelf = records.shelf_of(query)
    looks = [_bounded(query["store"], one, of(attached, one.dst), shelf) for one in found if one.dst not in alone]
    made = {one.dst: list(one.folders) for one in attached}
    return {
        "folders": [{**one, "protect": one["recipe"] in protected} for one in looks],
        "exports": [{**one._asdict(), "folders": made[one.dst]} for one in found if one.dst in made],
    }


def _bounded(store: str, entry: index.Entry, attached: list[Export], shelf: Shelf) -> dict[str, Any]:
    """As `look`; nothing but its problem of a folder whose disk does not answer: it hides no other."""
    try:
        return patience.bounded(lambda: look(store, entry, attached, shelf), about=entry.dst)
    except patience.SilentError as error:
        fact: dict[str, Any] = {**entry._asdict(), "present": False, "total": 0}
        fact |= {"frees": 0, "kept": 0, "device": "", "busy": "", "exports": [], "used": ""}
        return fact | {"problem": f"{error.fields['what']}: {error.fields['found']}"}


def look(store: str, entry: index.Entry, attached: list[Export], shelf: Shelf) -> dict[str, Any]:
    """{the fields of an index.Entry, "present": it has a ledger, "total": bytes of data by it, "frees":
    bytes that the disk gets back when it goes with its exports, "kept": bytes of files that have other names still,
    "exports": their folders, "device", "used": which lane or container uses any of these now, "busy": who stages into
    it, "problem"}.
    """
    fact: dict[str, Any] = {**entry._asdict(), "present": False, "total": 0}
    fact |= {"frees": 0, "kept": 0, "device": "", "problem": "", "busy": folder.busy(entry.dst)}
    fact["exports"] = [one.dst for one in attached]
    fact["used"] = used(store, (entry.dst, *fact["exports"]), shelf)
    names = names_of(attached)
    try:
        with questions.asking(entry.dst):
            fact["device"] = str(os.lstat(entry.dst).st_dev)
        has = contents(entry.dst)
    except FileNotFoundError:
        return fact
    except (OSError, LedgerError) as error:
        return fact | {"problem": str(getattr(error, "strerror", None) or error)}
    fact |= {"present": has.ledger is not None, "total": sum(record.data for record in has.files)}
    for path in (*(f"{entry.dst}/{record.name}" for record in has.files), *_ours(entry.dst)):
        try:
            with questions.asking(path):
                found = os.lstat(path)
        except OSError:
            continue
        if stat.S_ISREG(found.st_mode):
            others = found.st_nlink - 1 - names[found.st_dev, found.st_ino]
            fact["kept" if others > 0 else "frees"] += found.st_blocks * 512
    return fact


def contents(dst: str) -> Contents:
    """What is ours in a folder. Raises LedgerError, and OSError when the folder is no folder or a link."""
    if os.path.islink(dst):
        raise LedgerError(f"{dst} is a symbolic link: what it leads to is not touched")
    made = ledger.read(dst)
    if made is not None:
        return Contents(made, made.files, made.links)
    draft = Draft(dst)
    return Contents(None, tuple(draft.read().values()), tuple(draft.read_links()))


def _ours(dst: str) -> list[str]:
    try:
        return [f"{dst}/{OURS}/{name}" for name in os.listdir(f"{dst}/{OURS}")]
    except OSError:
        return []
