"""What an export shall hold, by the ledgers of the staged folders it is made from: hard links, links, empty files.

A "tree" is the snapshot of a mirror as regular files; what was not staged is bound from the source, onto an empty file.
A "composed" folder is the snapshot as symbolic links, with the files of other staged folders as hard links over them.
"""

from __future__ import annotations

import os
from contextlib import closing
from typing import TYPE_CHECKING, NamedTuple

from sparkbuild.agent.disk import questions
from sparkbuild.agent.disk.files import inside
from sparkbuild.agent.disk.globs import matching, unmatched
from sparkbuild.agent.hub import links, repository
from sparkbuild.agent.ledger import ledger, stamps
from sparkbuild.agent.ledger.ledger import Ledger, Record
from sparkbuild.agent.source import safetensors, shards, sparsecopy
from sparkbuild.agent.source.source import FileSource
from sparkbuild.agent.wire import words
from sparkbuild.agent.wire.protocol import AgentError, config_error, integrity_error

if TYPE_CHECKING:
    from sparkbuild.agent.wire.staging.exports import Linked, Mount, Snapshot, Tree

HARD, POINTER, EMPTY = "hard", "pointer", "empty"


class Entry(NamedTuple):
    """One name of an export. `path` is the staged file it is a hard link of, the text of a pointer (a symbolic link),
    or the file that a launch binds onto an empty one. `folder`: the staged folder that `path` is in, "" for none.
    """

    name: str
    how: str
    path: str
    folder: str = ""


class Staged(NamedTuple):
    """A staged folder, whole by its ledger. `stamp` is that of the ledger's file: while it is the same, so is all that
    the ledger says.
    """

    path: str
    ledger: Ledger
    stamp: stamps.Stamp


class LinkSet(NamedTuple):
    """`entries` by name; `mounts` as in the manifest."""

    commit: str
    entries: dict[str, Entry]
    mounts: list[Mount]
    folders: list[Staged]


def folders_of(what: Linked, store: str) -> list[str]:
    """The staged folders that an export is made from, the mirror first."""
    over = what["over"] if what["kind"] == "composed" else ()
    return [inside(store, path) for path in (what["mirror"], *over)]


def cache_of(what: Linked) -> str:
    """The hub cache that files are bound from, "" when none are."""
    return what["source"]["cache"] if what["kind"] == "tree" and what.get("binds") else ""


def link_set(what: Linked, store: str, dst: str, bound: dict[str, str] | None = None) -> LinkSet:
    """Relative paths are inside `store`. `bound`: the files to bind, by name, when they are known; else the source's
    folders are listed.

    Raises AgentError, kind "config" for what is asked wrongly, "integrity" for a source that is not whole.
    """
    mirror, *over = (staged(path) for path in folders_of(what, store))
    commit = _commit(mirror)
    snapshot = _snapshot(mirror, commit)
    if not snapshot:
        raise config_error("an export is made from the mirror of a hub repository", where=mirror.path)
    if what["kind"] == "tree":
        by_name = _tree(what, store, mirror, snapshot, bound)
    else:
        by_name = {name: Entry(name, POINTER, f"{mirror.path}/{file}") for name, file in snapshot.items()}
        by_name |= _over(over)
        _refuse_indexed(by_name, dst)
    _refuse_both(by_name, dst)
    mounts: list[Mount] = [{"source": dst, "target": what["target"], "read_only": True}]
    above = what["target"].rstrip("/")
    mounts += [
        {"source": entry.path, "target": f"{above}/{entry.name}", "read_only": True}
        for entry in by_name.values()
        if entry.how == EMPTY
    ]
    return LinkSet(commit, by_name, mounts, [mirror, *over])


def staged(path: str) -> Staged:
    """A folder that was staged. Raises AgentError when it is not whole."""
    stamp = ledger_stamp(path)
    try:
        recorded = ledger.read(path) if stamp is not None else None
    except ledger.LedgerError as error:
        raise integrity_error("its ledger is unreadable", where=path, found=str(error)) from error
    if stamp is None or recorded is None:
        raise integrity_error(
            "an export is made from a folder that is not staged",
            where=path,
            found="no ledger: never staged, removed, or a staging was interrupted",
            next="doit stage",
        )
    return Staged(path, recorded, stamp)


def ledger_stamp(path: str) -> stamps.Stamp | None:
    """The stamp of a staged folder's ledger, None when it has none."""
    try:
        with questions.asking(path):
            return stamps.of(os.lstat(ledger.path_of(path)))
    except (FileNotFoundError, NotADirectoryError):
        return None


def _commit(mirror: Staged) -> str:
    return str(mirror.ledger.about.get("commit") or "")


def _snapshot(mirror: Staged, commit: str) -> dict[str, str]:
    """Each path of the snapshot and the file with its bytes, relative to the mirror's folder."""
    top = f"snapshots/{commit}/"
    files = {
        link.name[len(top) :]: os.path.normpath(os.path.join(os.path.dirname(link.name), link.text))
        for link in mirror.ledger.links
        if link.name.startswith(top)
    }
    files |= {file.name[len(top) :]: file.name for file in mirror.ledger.files if file.name.startswith(top)}
    return dict(sorted(files.items()))


class _Subtree(NamedTuple):
    """The part of a snapshot that a tree shows: `above` is "" or a folder with its "/"."""

    commit: str
    above: str
    globs: list[str]

    def name(self, path: str) -> str:
        """What a path of the snapshot is called in the export; "" when it is not in it."""
        return path[len(self.above) :] if path.startswith(self.above) else ""


def _tree(
    what: Tree, store: str, mirror: Staged, snapshot: dict[str, str], bound: dict[str, str] | None
) -> dict[str, Entry]:
    part = _part(what, _commit(mirror))
    by_name = {
        name: Entry(name, HARD, f"{mirror.path}/{file}", mirror.path)
        for path, file in snapshot.items()
        if (name := part.name(path))
    }
    if bound is None:
        bound = _bound(what["source"], store, part, set(by_name)) if part.globs else {}
    by_name |= {name: Entry(name, EMPTY, path) for name, path in bound.items()}
    if not by_name:
        raise _nothing_in(part, f"{mirror.path}/snapshots/{part.commit}", list(snapshot))
    return dict(sorted(by_name.items()))


def tree_is_linked(what: Tree, store: str) -> bool:
    """Whether a tree will have hard links, by the hub cache alone: its mirror is not staged yet. True where the cache
    does not say: the staging of the mirror tells why. Raises AgentError when `subtree` or `binds` match nothing.
    """
    source = what["source"]
    try:
        place = repository.find(inside(store, source["cache"]), source["repo"])
        commit, _ = repository.resolve(place, source["repo"], source["revision"])
        paths = [entry.path for entry in repository.entries(place, commit)]
    except (AgentError, OSError):
        return True
    part, where = _part(what, commit), f"{place.path}/snapshots/{commit}"
    _refuse_idle(part, where, paths)
    inner = [path for path in paths if part.name(path)]
    if not inner:
        raise _nothing_in(part, where, paths)
    return not all(matching(path, part.globs) for path in inner)


def _part(what: Tree, commit: str) -> _Subtree:
    folder = what.get("subtree", "").strip("/")
    return _Subtree(commit, f"{folder}/" if folder else "", list(what.get("binds", ())))


def _nothing_in(part: _Subtree, where: str, paths: list[str]) -> AgentError:
    return config_error(
        "nothing of the snapshot is in this subtree",
        where=where,
        found=f"{words.files(len(paths))}: {words.shown(paths)}",
        wanted=f"files in {part.above}",
        next="correct `subtree` of this export",
    )


def _refuse_idle(part: _Subtree, where: str, paths: list[str]) -> None:
    if idle := unmatched(part.globs, paths):
        raise config_error(
            f"nothing of the snapshot matches {', '.join(map(repr, idle))} of `binds`",
            where=where,
            found=f"{words.files(len(paths))}: {words.shown(paths)}",
            next="correct `binds` of this export",
        )


def _bound(source: Snapshot, store: str, part: _Subtree, there: set[str]) -> dict[str, str]:
    """The files at the source that are wanted and not in the mirror: name -> the regular file with its bytes."""
    place = repository.find(inside(store, source["cache"]), source["repo"])
    entries = repository.entries(place, part.commit)
    if not entries:
        raise integrity_error(
            "the source has not the commit that was mirrored, so its files cannot be bound",
            where=f"{place.path}/snapshots/{part.commit}",
            next="stage the mirror again: its revision may be another one by now",
        )
    _refuse_idle(part, f"{place.path}/snapshots/{part.commit}", [entry.path for entry in entries])
    wanted = {part.name(entry.path): entry for entry in entries if matching(entry.path, part.globs)}
    return {name: _file(place, part.commit, entry) for name, entry in wanted.items() if name and name not in there}


def _file(place: links.Place, commit: str, entry: repository.Entry) -> str:
    """Where the bytes of a snapshot's path are. Raises AgentError when that is no regular file."""
    way = repository.way(place, commit, entry)
    if not way.whole:
        raise integrity_error(
            "a file that an export binds is not at the source",
            where=f"{place.path}/snapshots/{commit}/{entry.path}",
            found="; ".join(way.hops),
            next="download that file again, or narrow `binds`",
        )
    repository.version_of(way.file)
    return way.file


def _refuse_indexed(entries: dict[str, Entry], dst: str) -> None:
    """Every shard that an index of the folder names is in the folder: engines read what the index says."""
    for name, entry in entries.items():
        if not name.endswith(shards.INDEXES):
            continue
        missing = sorted(shards.of_index(entry.path, name) - set(entries))
        if missing:
            raise integrity_error(
                "the index of a composed folder names files that are nowhere in it",
                where=f"{dst}/{name}",
                found=f"{words.files(len(missing))} missing: {words.shown(missing)}",
                wanted="each in the mirror, or in a block that is laid over it",
                next="take them out of `skip` of the mirror's block, or name the block that has them in `over`",
            )


def _over(folders: list[Staged]) -> dict[str, Entry]:
    by_name: dict[str, Entry] = {}
    for folder in folders:
        new = {
            file.name: Entry(file.name, HARD, f"{folder.path}/{file.name}", folder.path) for file in folder.ledger.files
        }
        new |= {link.name: Entry(link.name, POINTER, f"{folder.path}/{link.name}") for link in folder.ledger.links}
        twice = sorted(set(by_name) & set(new))
        if twice:
            other = by_name[twice[0]].folder
            raise config_error(
                "two blocks that are laid over a snapshot have a file of the same name",
                where=folder.path,
                found=f"{words.shown(twice)}, also in {other}",
                next="leave one of them out of `over`",
            )
        for record in folder.ledger.files:
            _refuse_zeros(folder, record)
        by_name |= new
    return by_name


def _refuse_zeros(folder: Staged, record: Record) -> None:
    """A sparse copy of a shard has holes where its other tensors are: in a model folder these would load as zeros."""
    if not record.extents or not record.name.endswith(".safetensors"):
        return
    with closing(FileSource(f"{folder.path}/{record.name}")) as source:
        header = safetensors.read(source)
    lost = [
        name
        for name, tensor in sorted(header.tensors.items())
        if tensor.start < tensor.end
        and not sparsecopy.OF_TABLE.fullmatch(name)
        and not any(first <= tensor.start and tensor.end <= end for first, end in record.extents)
    ]
    if lost:
        raise config_error(
            "a sparse copy without its shard's other tensors cannot replace the shard: they would load as zeros",
            where=source.path,
            found=f"{len(lost)} tensors in holes: {words.shown(lost)}",
            wanted="a copy that has all tensors but the rows of other ranks",
            next="set complete_shard = true in that staging block",
        )


def _refuse_both(entries: dict[str, Entry], dst: str) -> None:
    """No name is a file and a folder."""
    for name in entries:
        steps = name.split("/")
        for count in range(1, len(steps)):
            if "/".join(steps[:count]) in entries:
                found = f"{'/'.join(steps[:count])} and {name}"
                raise config_error("a name is a file and a folder", where=dst, found=found)
