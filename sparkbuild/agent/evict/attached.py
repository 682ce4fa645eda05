"""Exports made of a staged folder: while one holds a file by another name, removing the folder frees nothing."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from functools import partial
from typing import NamedTuple

from sparkbuild.agent.disk import patience
from sparkbuild.agent.ledger import index, mountlist
from sparkbuild.agent.ledger.ledger import LedgerError


class Export(NamedTuple):
    """An export of the index: `folders` are the staged folders that it is made of, `inodes` how many names it gives to
    which file, `names` what is ours in it, with the text of each that is a symbolic link ("": a file).
    """

    dst: str
    folders: tuple[str, ...]
    inodes: dict[tuple[int, int], int]
    names: dict[str, str]


def exports(store: str) -> list[Export]:
    """The exports that this node's index knows, and whose disks answer."""
    found = []
    for entry in index.entries(store):
        with suppress(patience.SilentError):  # the names that it gives to files count for nothing now
            found.append(patience.bounded(partial(export, entry.dst), about=entry.dst))
    return [one for one in found if one is not None]


def export(dst: str) -> Export | None:
    """The export in a folder, by its manifest; None when there is none, or it cannot be read. Of one whose making or
    removal was interrupted, only the names are known.
    """
    try:
        manifest = mountlist.read(dst)
        if manifest is None:
            left = mountlist.noted(dst)
            return Export(dst, (), {}, dict.fromkeys(left, "")) if left else None
        inodes = Counter((int(one["dev"]), int(one["ino"])) for one in manifest["files"])
        names = {**dict.fromkeys(mountlist.names(manifest), ""), **_texts(manifest)}
        return Export(dst, tuple(str(one["folder"]) for one in manifest["sources"]), inodes, names)
    except (LedgerError, OSError, KeyError, TypeError, ValueError, OverflowError):
        return None


def _texts(manifest: mountlist.Manifest) -> dict[str, str]:
    return {pointer["name"]: pointer["text"] for pointer in manifest["pointers"]}


def of(found: list[Export], dst: str) -> list[Export]:
    """Those of the exports that are made of one staged folder, in the order in which they are locked."""
    return sorted((one for one in found if dst in one.folders), key=lambda one: one.dst)


def names_of(found: list[Export]) -> Counter[tuple[int, int]]:
    """How many names the exports give to each file, by device and inode."""
    total: Counter[tuple[int, int]] = Counter()
    for one in found:
        total.update(one.inodes)
    return total
