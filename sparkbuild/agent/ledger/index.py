"""The index of what is staged on this node: a small file per folder, so that what no recipe wants any more is known.

It is written before the first byte is staged, since an interrupted staging takes room too, and again when all is whole:
by noting. An entry is what allows a folder to be evicted; it is no proof that anything is in it.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from typing import TYPE_CHECKING, NamedTuple, cast

from sparkbuild.agent.disk.files import keep_owner, write_json
from sparkbuild.agent.disk.held import Held
from sparkbuild.agent.ledger.ledger import LedgerError, small_file
from sparkbuild.agent.wire.layout import STAGED_INDEX

if TYPE_CHECKING:
    from sparkbuild.agent.wire.staging import inventory

FORMAT = "sparkbuild-staged/v1"
EVICTED = ".evicted"  # how the name of the record of an eviction ends, see evicted
_LONGEST = 64 << 10  # bytes of an entry that anyone would read


class Entry(NamedTuple):
    """One folder, see wire.inventory.Entry."""

    dst: str
    recipe: str = ""
    block: str = ""
    workspace: str = ""
    key: str = ""
    before: str = ""
    bytes: int = 0
    staged_at: float = 0.0
    served_at: float = 0.0
    adopted: bool = False
    mount: str = ""
    file_system: str = ""

    def told(self) -> inventory.Entry:
        """As an inventory tells of it: its fields are these, by tests/test_wire.py."""
        return cast("inventory.Entry", self._asdict())


def path_of(store: str, dst: str, end: str = ".json") -> str:
    """Where the entry of a folder is, or another record of it."""
    return os.path.join(store, STAGED_INDEX, f"{hashlib.sha256(os.fsencode(dst)).hexdigest()}{end}")


def entries(store: str) -> list[Entry]:
    """All folders of the index, by their paths; what is no entry, or has the name of another one, is left out."""
    try:
        names = sorted(name for name in os.listdir(os.path.join(store, STAGED_INDEX)) if name.endswith(".json"))
    except (FileNotFoundError, NotADirectoryError):
        return []
    read = (_read(os.path.join(store, STAGED_INDEX, name)) for name in names)
    found = [one for one, name in zip(read, names, strict=True) if one and path_of(store, one.dst).endswith(name)]
    return sorted(found, key=lambda one: one.dst)


def entry(store: str, dst: str) -> Entry | None:
    """The entry of one folder, None when sparkbuild staged nothing there from this store."""
    kept = _read(path_of(store, dst))
    return kept if kept is not None and kept.dst == dst else None


def before(store: str, of: str, dst: str) -> str:
    """The folder that a recipe and its block were last staged or exported into, this one first; "" when that is not
    known. A folder that was evicted is none.
    """
    recipe, _, block = of.partition("/")
    same = [entry for entry in entries(store) if (entry.recipe, entry.block) == (recipe, block) and entry.staged_at]
    return max(same, key=lambda entry: (entry.dst == dst, entry.staged_at)).dst if same else ""


def forget(store: str, dst: str) -> None:
    """Take a folder out of the index."""
    _remove(path_of(store, dst))


def forget_eviction(store: str, dst: str) -> None:
    """Remove the record of an eviction of a folder: it is staged again."""
    _remove(path_of(store, dst, EVICTED))


def _remove(path: str) -> None:
    above, name = os.path.split(path)
    with contextlib.suppress(FileNotFoundError), Held(above) as held:
        held.unlink(name)


def write(store: str, new: Entry) -> None:
    """Keep the entry of a folder, instead of the one that was there."""
    above = os.path.join(store, STAGED_INDEX)
    if not os.path.isdir(above):
        os.makedirs(above, exist_ok=True)
        keep_owner(above)
    write_json(path_of(store, new.dst), {"format": FORMAT, **new._asdict()})


def _read(path: str) -> Entry | None:
    """An entry, each field of it as it should be; None for anything else that may lie there."""
    try:
        if os.lstat(path).st_size > _LONGEST:
            return None
        value = json.loads(small_file(path) or b"")
        if value["format"] != FORMAT:
            return None
        fields = [{"adopted": False, "mount": "", "file_system": "", **value}[name] for name in Entry._fields]
    except (OSError, ValueError, KeyError, TypeError, LedgerError, RecursionError):
        return None
    return Entry(*fields) if _are_right(*fields) else None


def _are_right(dst: object, *more: object) -> bool:
    texts, size, times, adopted = (*more[:5], *more[9:]), more[5], more[6:8], more[8]
    return (
        isinstance(dst, str)
        and all(isinstance(text, str) and text.isprintable() for text in (dst, *texts))
        and os.path.isabs(dst)
        and os.path.normpath(dst) == dst
        and os.path.dirname(dst) != dst
        and type(size) is int
        and type(adopted) is bool
        and all(type(at) in (int, float) for at in times)
    )
