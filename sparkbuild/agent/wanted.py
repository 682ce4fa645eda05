"""What a staging request wants: each file's name in the folder, where its bytes are, and what they are by content."""

from __future__ import annotations

import hashlib
from itertools import pairwise
from typing import Any, NamedTuple

from sparkbuild.agent import members
from sparkbuild.agent.archives import Archives
from sparkbuild.agent.digest import CHUNK
from sparkbuild.agent.files import inside
from sparkbuild.agent.ledger import Record, safe_name
from sparkbuild.agent.protocol import AgentError


class Wanted(NamedTuple):
    """One file. `source` says how to open it, `identity` what it is by content ({} when nobody said), `sha256` in hex
    when it is known beforehand, else "".
    """

    name: str
    source: dict[str, Any]
    size: int
    sha256: str
    identity: dict[str, Any]

    def is_in(self, record: Record | None) -> bool:
        """Does this record tell of the same content? Sizes and times prove nothing, so they are not asked."""
        if record is None or record.size != self.size:
            return False
        return record.sha256 == self.sha256 if self.sha256 else bool(self.identity) and record.source == self.identity


def of_request(request: dict[str, Any], archives: Archives) -> list[Wanted]:
    """The wanted files, in the order of the request. Raises AgentError when they cannot be had or named so.

    Either "files": [{"name", "source": {"kind", "path", "member"?, "id"?}, "size"?, "sha256"?}], or "archive": path
    of an artifact (see members) with "members": [globs] and its "sha256". `id` names the source by content: an
    artifact's sha256, a commit.
    """
    store = request.get("store", "")
    if "archive" in request:
        found = _of_artifact(inside(store, request["archive"]), request, archives)
    else:
        found = [_of_file(item, store, archives) for item in request["files"]]
    names = sorted(wanted.name for wanted in found)
    twice = sorted({name for name, after in pairwise(names) if name == after})
    if twice:
        raise AgentError("a file is wanted twice", kind="config", found=", ".join(twice))
    return found


def check_archive(request: dict[str, Any], archives: Archives) -> None:
    """Is the archive the one that was pinned? Raises AgentError, kind integrity. Reads all of it.

    Not for a plain file: all of it is copied, and compared as that is done.
    """
    wanted = request.get("sha256", "")
    if not wanted or "archive" not in request or not members.is_archive(request["archive"]):
        return
    archive = archives.archive(inside(request.get("store", ""), request["archive"]))
    whole, buffer = hashlib.sha256(), memoryview(bytearray(CHUNK))
    for start in range(0, archive.raw.size, CHUNK):
        whole.update(buffer[: archive.raw.read(buffer, start)])
    archive.raw.check()
    if whole.hexdigest() != wanted:
        raise AgentError(
            "the archive to stage from is not the one that was pinned",
            kind="integrity",
            where=archive.path,
            found=f"sha256 {whole.hexdigest()}",
            wanted=f"sha256 {wanted}",
            next="remove it, then run again: it is fetched anew",
        )


def _of_artifact(path: str, request: dict[str, Any], archives: Archives) -> list[Wanted]:
    if not members.is_archive(path):
        name = path.rpartition("/")[2]
        members.check_plain(name, list(request["members"]), path)
        sha256 = request.get("sha256", "")
        item = {"name": name, "source": {"kind": "file", "path": path, "id": sha256}, "sha256": sha256}
        return [_of_file(item, "", archives)]
    archive = archives.archive(path)
    found = []
    for name, member in members.pick(archive.zip.infolist(), list(request["members"]), path).items():
        size = archive.zip.getinfo(member).file_size
        source = {"kind": "zip-member", "path": path, "member": member}
        identity = {"kind": "zip-member", "of": request["sha256"], "member": member} if request.get("sha256") else {}
        found.append(Wanted(name, source, size, "", identity))
    return found


def _of_file(item: dict[str, Any], store: str, archives: Archives) -> Wanted:
    name, sha256 = item["name"], item.get("sha256") or ""
    if not safe_name(name):
        raise AgentError("a name that leaves the folder", kind="config", found=repr(name))
    source = {**item["source"], "path": inside(store, item["source"]["path"])}
    size = item.get("size")
    if size is None:
        opened = archives.source(source)  # opened, not looked at: a NAS tells the size of an open file truly
        size = opened.size
        opened.close()
    identity: dict[str, Any] = {}
    if source.get("id"):
        identity = {"kind": source["kind"], "of": source["id"]}
        identity |= {"member": source["member"]} if "member" in source else {}
    elif sha256:
        identity = {"kind": source["kind"], "sha256": sha256}
    return Wanted(name, source, size, sha256, identity)
