"""What stands in the folder of an export, and what forbids to make the export there: seen before anything is staged."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from typing import TYPE_CHECKING

from sparkbuild.agent.disk import patience, questions
from sparkbuild.agent.export import linkset
from sparkbuild.agent.export.linkset import EMPTY, HARD, POINTER, Entry
from sparkbuild.agent.ledger import content, folder, ledger, links, mountlist
from sparkbuild.agent.ledger.ledger import LedgerError, Link
from sparkbuild.agent.wire.layout import OURS
from sparkbuild.agent.wire.protocol import AgentError, config_error

if TYPE_CHECKING:
    from sparkbuild.agent.wire.staging.exports import ExportQuery, Linked
    from sparkbuild.agent.wire.staging.staged import Refusal

_SHOWN = 5
_NEXT_DISK = "give the export a `path`, or the block a `dst`, so that both are on one disk"


def foreseen(query: ExportQuery, dst: str) -> Refusal:
    """The fields of the error that making an export would end with, {} when none is to be seen. While its folders are
    not staged as they are wanted, the hub cache tells of the snapshot.
    """
    store, what = query.get("store", ""), query["what"]
    folders = linkset.folders_of(what, store)
    try:
        check_place(dst, folders)
        there, ours = names(dst) if os.path.isdir(dst) else [], ours_in(dst)
        if all(_key(path) == key for path, key in zip(folders, query["keys"], strict=True)):
            entries = patience.bounded(lambda: linkset.link_set(what, store, dst)).entries
            wrong = [entry for entry in entries.values() if problem(dst, entry)]
            check_strangers(dst, [name for name in there if name not in ours], entries, wrong)
            check_disk(dst, [entry.path for entry in wrong if entry.how == HARD])
        else:
            _check_before(what, store, dst, [name for name in there if name not in ours])
    except AgentError as error:
        return error.fields
    except OSError:
        return {}  # making it tells
    return {}


def _key(path: str) -> str:
    try:
        recorded = ledger.read(path)
    except LedgerError:
        return ""
    return recorded.key if recorded is not None else ""


def _check_before(what: Linked, store: str, dst: str, strangers: list[str]) -> None:
    """What is sure while the folders are not staged: a file that has one name and content is no entry of an export."""
    own = [name for name in strangers if _is_own(f"{dst}/{name}")]
    check_strangers(dst, own, {}, [])
    mirror, *over = linkset.folders_of(what, store)
    if what["kind"] == "composed":
        check_disk(dst, over)
    elif patience.bounded(lambda: linkset.tree_is_linked(what, store)):
        check_disk(dst, [mirror])


def _is_own(path: str) -> bool:
    status = os.lstat(path)
    return stat.S_ISREG(status.st_mode) and status.st_size > 0 and status.st_nlink == 1


def ours_in(dst: str) -> set[str]:
    """The names in an export's folder that we made, or may have made."""
    try:
        manifest = mountlist.read(dst)
    except LedgerError:
        manifest = None
    return {*mountlist.noted(dst), *(mountlist.names(manifest) if manifest else ())}


def check_place(dst: str, folders: Iterable[str]) -> None:
    """Raise AgentError when the export's folder cannot be one, or is not beside those that it is made from."""
    for path in folders:
        if f"{dst}/".startswith(f"{path}/") or f"{path}/".startswith(f"{dst}/"):
            raise config_error(
                "an export and what it is made from are one inside the other",
                where=dst,
                found=path,
                wanted="a folder beside it",
                next="correct `path` of this export",
            )
    blocked = folder.in_the_way(dst)
    if blocked is not None:
        raise config_error(
            "what an export is to be made in cannot be a folder",
            where=dst,
            found=blocked.fields["found"],
            wanted=blocked.fields["wanted"],
            next="correct `path` of this export, or move that away",
        )


def check_strangers(dst: str, strangers: list[str], entries: dict[str, Entry], wrong: list[Entry]) -> None:
    """What we did not make is not removed: the folder may have been meant for something else."""
    spoiled = {entry.name for entry in wrong}
    others = [name for name in strangers if name not in entries or name in spoiled]
    if others:
        more = f" and {len(others) - _SHOWN} more" if len(others) > _SHOWN else ""
        raise config_error(
            "the folder of an export holds what is not of it",
            where=dst,
            found=", ".join(others[:_SHOWN]) + more,
            wanted="a folder of its own",
            next="move them away, or give the export another `path`",
        )


def check_disk(dst: str, paths: Iterable[str]) -> None:
    """Raise AgentError when something that is to have a hard link in the export is on another file system. What is not
    there yet will be where the folder above it is.
    """
    here = _device(dst)
    for path in paths:
        if _device(path) != here:
            raise other_disk(path, dst)


def _device(path: str) -> int:
    while not os.path.lexists(path):
        path = os.path.dirname(path)
    return os.stat(path).st_dev if os.path.isdir(path) else os.lstat(path).st_dev


def other_disk(path: str, dst: str) -> AgentError:
    """The error for a hard link that the file system cannot make."""
    return config_error(
        "a hard link cannot be made: the export and what is staged are on different file systems",
        where=dst,
        found=f"{path} is on another one",
        wanted="both on one file system, by the same mount",
        next=_NEXT_DISK,
    )


def names(dst: str) -> list[str]:
    """Everything in an export that is no folder, links to folders too, without what is kept for ourselves."""
    files, folders = [], [""]
    while folders:
        above = folders.pop()
        with questions.asking(f"{dst}/{above}"), os.scandir(f"{dst}/{above}") as inner:
            for entry in inner:
                name = f"{above}{entry.name}"
                if name == OURS:
                    continue
                if entry.is_dir(follow_symlinks=False):
                    folders.append(f"{name}/")
                else:
                    files.append(name)
    return sorted(files)


def problem(dst: str, entry: Entry) -> str:
    """What is wrong with one name of an export, "" when nothing is."""
    if entry.how == POINTER:
        return links.problem(dst, Link(entry.name, entry.path))
    status, text = content.standing(f"{dst}/{entry.name}")
    if status is None:
        return f"{entry.name} {text}"
    if entry.how == EMPTY:
        right = not status.st_size and status.st_nlink == 1
        return "" if right else f"{entry.name} is no empty file of its own, and one is to be bound onto it"
    try:
        with questions.asking(entry.path):
            staged = os.lstat(entry.path)
    except (FileNotFoundError, NotADirectoryError):
        return f"{entry.name}: the staged file {entry.path} is missing"
    return "" if os.path.samestat(status, staged) else f"{entry.name} is not the file {entry.path}"
