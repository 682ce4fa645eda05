"""A folder is never staged into itself, nor into what it is read from: the source may be the only copy of its bytes.

Folders are compared by what they are and never by their paths, for links and bind mounts give one folder many: by
device and inode, on the way up to the root, and by where they are in their file system, since above a bind mount the
way up is that of the mount and not that of the folder. Before a file goes or is replaced, it is compared with its
source once more.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from sparkbuild.agent.disk import nas
from sparkbuild.agent.disk.files import inside
from sparkbuild.agent.source import versions
from sparkbuild.agent.wire.protocol import AgentError, config_error

if TYPE_CHECKING:
    from sparkbuild.agent.ledger.ledger import Record
    from sparkbuild.agent.source.fileset import Wanted
    from sparkbuild.agent.wire.staging.sources import What


def refuse(what: What, store: str, dst: str) -> None:
    """Raise AgentError, kind config, when the folder that `what` names as its source and `dst` are one, or one is
    inside the other. Of a `dst` that is not there yet, the nearest folder above it counts. A source that is not there
    is refused elsewhere.
    """
    for root in roots(what, store):
        with suppress(FileNotFoundError, NotADirectoryError):
            _compare(root, dst)


def roots(what: What, store: str) -> Iterator[str]:
    """The folders of a user that `what` names as its source."""
    if what["kind"] == "artifact" or what["kind"] == "list":
        return  # of the store, named one by one
    if what["kind"] == "folder":
        yield inside(store, what["path"])
        return
    if what["kind"] != "hub-mirror" and "model" in what:
        yield inside(store, what["model"])
    if "cache" in what:  # the repository's folder may be a link out of the cache, and so may its blobs
        cache = inside(store, what["cache"])
        repository = f"{cache}/models--{what['repo'].replace('/', '--')}"
        yield from (cache, repository, f"{repository}/blobs")


def _compare(root: str, dst: str) -> None:
    there = dst
    while (there_id := nas.folder_id(there)) is None:
        there = os.path.dirname(there)
    if there == dst and there_id == nas.folder_id(root):
        raise _itself(dst, f"the same folder as {root}")
    if _is_in(there, root) or (there == dst and _is_in(root, dst)):
        raise _itself(dst, f"one is inside the other: {root}")


def refuse_files(files: Sequence[Wanted], dst: str) -> None:
    """The same for files whose links lead into `dst`, and for folders of `dst` that are mounts of where files are."""
    if nas.folder_id(dst) is None:
        return
    names = {dst, *(f"{dst}/{above}" for item in files if (above := os.path.dirname(item.name)))}
    targets = {folder_id: name for name in sorted(names) if (folder_id := nas.folder_id(name)) is not None}
    seen: set[str] = set()
    for item in files:
        path = item.path
        if not path:
            continue
        source = os.path.dirname(os.path.realpath(path) if os.path.islink(path) else path)
        if source in seen:
            continue
        seen.add(source)
        with suppress(FileNotFoundError, NotADirectoryError):
            target = next((targets[step] for step in nas.way_up(source) if step in targets), "")
            if target or _is_in(source, dst):
                raise _itself(target or dst, f"a file to stage is in it: {path}")


def is_its_source(path: str, wanted: Wanted) -> bool:
    """Whether the file at `path` is another name of the source of `wanted`: a hard link."""
    if not wanted.path:
        return False
    with suppress(OSError, AgentError):
        return os.path.samestat(os.lstat(path), nas.status(wanted.path))
    return False


def was_read_from(status: os.stat_result, record: Record, what: What | None, store: str) -> bool:
    """Whether a staged file with more names than one is a hard link of what it was staged from. The source is asked
    only where the record does not say which file that was: of a hub cache.
    """
    version = record.source.get("version")
    if isinstance(version, str):
        with suppress(ValueError):
            read, now = versions.parsed(version), versions.of(status)
            # an inode that does not last is 0, and proves nothing
            return read.inode != 0 and (read.inode, read.size, read.mtime_ns) == (now.inode, now.size, now.mtime_ns)
    if record.source.get("kind") == "hub-blob" and what is not None:
        for root in roots(what, store):
            with suppress(OSError, AgentError):
                if os.path.samestat(nas.status(f"{root}/{os.path.basename(record.name)}"), status):
                    return True
    return False


def refuse_file(path: str, wanted: Wanted, *, mended: bool = False) -> None:
    """Raise AgentError, kind config, when the file at `path`, which is to go, to be replaced or (`mended`) to be
    mended, is the source of `wanted`. Another name of the source, a hard link, may go: the source stays where it is.
    """
    if not is_its_source(path, wanted):  # nothing is there, or no source; whoever reads it tells so
        return
    lies = os.lstat(path)
    real = os.path.realpath(wanted.path)
    one_name = os.path.basename(real) == os.path.basename(path)
    one_folder = nas.folder_id(os.path.dirname(real)) == nas.folder_id(os.path.dirname(path))
    if mended or lies.st_nlink == 1 or (one_name and one_folder):
        raise _itself(path, f"the same file as its source, {wanted.path}")


def refuse_gone(paths: Iterable[str], files: Iterable[Wanted]) -> None:
    """The same for files that go since nobody wants them, and all that are still to be read."""
    going = {}
    for path in paths:
        with suppress(FileNotFoundError, NotADirectoryError):
            status = os.lstat(path)
            going[status.st_dev, status.st_ino] = path
    if not going:
        return
    for wanted in files:
        if not wanted.path:
            continue
        with suppress(OSError, KeyError):
            status = nas.status(wanted.path)
            refuse_file(going[status.st_dev, status.st_ino], wanted)


def _is_in(inner: str, outer: str) -> bool:
    """Is a folder another one, or inside of it? Both are there."""
    if nas.folder_id(outer) in nas.way_up(inner):
        return True
    within, around = nas.place(inner), nas.place(outer)
    if within is None or around is None or within[0] != around[0]:
        return False
    top = around[1].rstrip("/")
    # Of two mounts of a NAS the kernel may call both "/": what it says is tried.
    same = f"{within[1]}/".startswith(f"{top}/")
    return same and nas.folder_id(outer + within[1][len(top) :]) == nas.folder_id(inner)


def _itself(where: str, found: str) -> AgentError:
    return config_error(
        "a folder cannot be staged into itself",
        where=where,
        found=found,
        wanted="a folder beside it, on this node's own disk",
        next="correct `dst` or `src` of this staging block; a link or a mount may stand where a folder was meant",
    )
