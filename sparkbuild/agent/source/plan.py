"""From what is to be staged to its set of files: the planner of its kind is asked, and what it wants is checked."""

from __future__ import annotations

import hashlib
import importlib
import os
from collections.abc import Iterator
from contextlib import closing
from itertools import pairwise
from types import ModuleType
from typing import TYPE_CHECKING

from sparkbuild.agent.disk.files import inside
from sparkbuild.agent.ledger.digest import CHUNK
from sparkbuild.agent.ledger.ledger import Link, right_extents, safe_name, safe_text
from sparkbuild.agent.source import halfstaged, members, overlap
from sparkbuild.agent.source.fileset import Bytes, FileBytes, FileSet, MemberBytes, TextBytes, Wanted
from sparkbuild.agent.source.opened import Archives
from sparkbuild.agent.wire.protocol import config_error, integrity_error

if TYPE_CHECKING:
    from sparkbuild.agent.wire.staging.sources import Artifact, Listed, ListedFile, ListedSource, What

# A planner is a module with `file_set(what, store) -> FileSet`, found when needed.
_PLANNERS = {
    "folder": "sparkbuild.agent.source.plainfolder",
    "hub-mirror": "sparkbuild.agent.hub.plan",
    "packed": "sparkbuild.agent.rows.packed",
    "page15": "sparkbuild.agent.rows.packed",
    "sparse-copy": "sparkbuild.agent.rows.sparse",
}
_KINDS = ", ".join(("artifact", "list", *_PLANNERS))


def of_what(what: What, store: str, dst: str, archives: Archives) -> FileSet:
    """The files for what is asked for. Relative paths are inside the store; a `dst` ("": none) is neither a part of its
    own source nor around it. Raises AgentError when they cannot be had or make no sense.
    """
    if not what or "kind" not in what:  # type: ignore[redundant-expr] # a caller may say anything
        raise config_error("a staging of an unknown kind", found="None", wanted=_KINDS)
    if what["kind"] == "artifact" or what["kind"] == "list":
        wanted = file_set(what, store, archives)
    elif what["kind"] in _PLANNERS:
        wanted = _apart(importlib.import_module(_PLANNERS[what["kind"]]), what, store, dst)
    else:
        raise config_error("a staging of an unknown kind", found=repr(what["kind"]), wanted=_KINDS)
    _check_names([item.name for item in wanted.files] + [link.name for link in wanted.links])
    for link in wanted.links:
        if not safe_text(link.name, link.text):
            raise config_error("a link that leaves the folder", found=f"{link.name} -> {link.text!r}")
    for item in wanted.files:
        if not right_extents(item.extents, item.size):
            raise config_error("ranges of a sparse file that make no sense", where=item.name)
    return wanted


def _apart(planner: ModuleType, what: What, store: str, dst: str) -> FileSet:
    """The files of a planner whose source is not in the folder that is staged, nor that in the source."""
    if dst:
        overlap.refuse(what, store, dst)
    for root in overlap.roots(what, store):
        halfstaged.refuse(root)
    wanted: FileSet = planner.file_set(what, store)
    if dst:
        overlap.refuse_files(wanted.files, dst)
    return wanted


def _check_names(names: list[str]) -> None:
    for name in names:
        if not safe_name(name):
            raise config_error("a name that leaves the folder", found=repr(name))
    names = sorted(names)
    twice = sorted({name for name, after in pairwise(names) if name == after})
    if twice:
        raise config_error("a file is wanted twice", found=", ".join(twice))
    every = set(names)
    for name in names:
        for above in _above(name):
            if above in every:
                raise config_error("a file is wanted where a folder is wanted too", found=above)


def _above(name: str) -> Iterator[str]:
    while name := os.path.dirname(name):
        yield name


def file_set(what: Artifact | Listed, store: str, archives: Archives) -> FileSet:
    """Of an artifact, or of what is named one by one."""
    if what["kind"] == "artifact":
        return FileSet(_of_artifact(inside(store, what["archive"]), what, archives))
    links = [Link(str(item["name"]), str(item["text"])) for item in what.get("links", ())]
    return FileSet([_of_file(item, store, archives) for item in what["files"]], links)


def check_archive(what: What, store: str, archives: Archives) -> None:
    """Is the archive the one that was pinned? Raises AgentError, kind integrity. Reads all of it.

    Not for a plain file: all of it is copied, and compared as that is done.
    """
    if what["kind"] != "artifact":
        return
    wanted = what.get("sha256", "")
    if not wanted or not members.is_archive(_name(what)):
        return
    archive = archives.archive(inside(store, what["archive"]))
    whole, buffer = hashlib.sha256(), memoryview(bytearray(CHUNK))
    for start in range(0, archive.raw.size, CHUNK):
        whole.update(buffer[: archive.raw.read(buffer, start)])
    archive.raw.check()
    if whole.hexdigest() != wanted:
        raise integrity_error(
            "the archive to stage from is not the one that was pinned",
            where=archive.path,
            found=f"sha256 {whole.hexdigest()}",
            wanted=f"sha256 {wanted}",
            next="remove it, then run again: it is fetched anew",
        )


def _name(what: Artifact) -> str:
    return what.get("name") or what["archive"].rpartition("/")[2]


def _of_artifact(path: str, what: Artifact, archives: Archives) -> list[Wanted]:
    called, sha256 = _name(what), what.get("sha256", "")
    if not members.is_archive(called):
        members.check_plain(called, list(what["members"]), path)
        item: ListedFile = {
            "name": called,
            "source": {"kind": "file", "path": path, "id": sha256},
            "sha256": sha256,
        }
        return [_of_file(item, "", archives)._replace(again="remove it, and run again: it is fetched anew")]
    archive = archives.archive(path)
    wanted = []
    for name, member in members.pick(archive.zip.infolist(), list(what["members"]), f"{called}, {path}").items():
        size = archive.zip.getinfo(member).file_size
        identity = {"kind": "zip-member", "of": sha256, "member": member} if sha256 else {}
        wanted.append(Wanted(name, MemberBytes(kind="zip-member", path=path, member=member), size, "", identity))
    return wanted


def _of_file(item: ListedFile, store: str, archives: Archives) -> Wanted:
    name, sha256, sha1 = item["name"], item.get("sha256") or "", item.get("sha1") or ""
    if not safe_name(name):
        raise config_error("a name that leaves the folder", found=repr(name))
    source, where = item["source"], _bytes_of(item["source"], store)
    size = item.get("size")
    if size is None:
        with closing(archives.source(where)) as source_file:  # a NAS tells the size of an open file truly
            size = source_file.size
    identity: dict[str, object] = {}
    if source.get("id"):
        identity = {"kind": source["kind"], "of": source["id"]}
        identity |= {"member": source["member"]} if "member" in source else {}
    elif sha256 or sha1:
        identity = {"kind": source["kind"], **({"sha256": sha256} if sha256 else {"sha1": sha1})}
    extents = tuple((int(first), int(end)) for first, end in item.get("extents") or ())
    return Wanted(name, where, size, sha256, identity, sha1, extents)


def _bytes_of(source: ListedSource, store: str) -> Bytes:
    kind = source["kind"]
    if kind == "text":
        return TextBytes(kind="text", text=source["text"])
    path = inside(store, source["path"])
    if kind == "file":
        return FileBytes(kind="file", path=path, version=source.get("version", ""))
    if kind == "zip-member":
        return MemberBytes(kind="zip-member", path=path, member=source["member"])
    raise config_error("a source of an unknown kind", found=repr(kind), wanted="file, zip-member or text")
