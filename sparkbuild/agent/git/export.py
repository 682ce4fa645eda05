"""Export a locked git source: one commit with its submodules and patches, as an archive of exactly the tree's bytes.

The archive is written here and not by `git archive`, which lets attributes of the repository decide what is in it and
how (`export-ignore`, `export-subst`, `eol`, `ident`), and which does not check what it reads from the mirror.
"""

from __future__ import annotations

import base64
import hashlib
import os
import shutil
from collections.abc import Mapping
from contextlib import ExitStack, closing
from typing import TYPE_CHECKING

from sparkbuild.agent.disk.files import fsync_folder, write_json
from sparkbuild.agent.disk.lock import locked
from sparkbuild.agent.git.archive import write
from sparkbuild.agent.git.command import GitError, Output, git
from sparkbuild.agent.git.exported import ARCHIVE, FORMAT, RECEIPT, folder_of
from sparkbuild.agent.git.mirror import Mirror
from sparkbuild.agent.git.objects import FOLDER, BrokenMirrorError, Commit, HostileTreeError, Objects
from sparkbuild.agent.git.tree import Entry, Module, walk
from sparkbuild.agent.store.kept import set_stamp
from sparkbuild.agent.wire.protocol import Reporter, config_error, integrity_error

if TYPE_CHECKING:
    from sparkbuild.agent.wire.receipts import SourceReceipt
    from sparkbuild.agent.wire.store import Pin, Source, SourceRequest, SourceResult, Submodule

_SHOWN = 20


def run(request: SourceRequest, reporter: Reporter) -> SourceResult:
    """Export the source. Errors: kind "integrity" when something is not what the lock says, "config" for submodules and
    LFS, "node" when it cannot be had. A fetch that was cut begins again; nothing is under the final name before it is
    whole and checked.
    """
    folder = folder_of(request["store"], request["key"])
    os.makedirs(folder, exist_ok=True)
    source = request["source"]
    with locked(os.path.join(folder, ".lock"), f"source {source['component']}"):
        _clear(folder)  # what a killed run left
        try:
            receipt = _make(_Export(request, folder, reporter), reporter)
        except BaseException:
            _clear(folder)
            raise
        path = os.path.join(folder, ARCHIVE)
        os.rename(f"{path}.part", path)
        fsync_folder(folder)
        write_json(os.path.join(folder, RECEIPT), receipt)
        set_stamp(path)  # after the receipt: a stamp beside the receipt of an earlier archive would vouch for this one
        _clear(folder)
        return {
            "bytes": receipt["bytes"],
            "sha256": receipt["sha256"],
            "content": receipt["content"],
            "files": receipt["files"],
            "time": receipt["time"],
        }


def _clear(folder: str) -> None:
    for name in os.listdir(folder):
        path = os.path.join(folder, name)
        if name.endswith(".work"):
            shutil.rmtree(path, ignore_errors=True)
        elif name.endswith(".part"):
            os.unlink(path)


def _make(export: _Export, reporter: Reporter) -> SourceReceipt:
    """The receipt; a broken mirror gets one more chance."""
    source = export.source
    try:
        try:
            return export.make()
        except BrokenMirrorError as error:
            reporter.log(f"a mirror is broken ({error}): it is fetched anew")
        for mirror in export.mirrors.values():
            mirror.reset()
        _clear(export.folder)
        return export.make()
    except BrokenMirrorError as error:
        raise integrity_error(
            f"{source['component']}: the repository gives out something else than what it names",
            where=source["repository"],
            found=str(error),
            next="run again; if it stays so, the repository or this node's disk is damaged",
        ) from error
    except HostileTreeError as error:
        raise integrity_error(
            f"{source['component']}: its tree is not safe to unpack",
            where=f"{source['repository']} at {source['commit']}",
            found=str(error),
            next="do not build from it; ask its owner",
        ) from error


class _Export:
    """One source on its way into `<folder>/source.tar.part`."""

    def __init__(self, request: SourceRequest, folder: str, reporter: Reporter) -> None:
        self.source = request["source"]
        self.key = request["key"]
        self.folder = folder
        self.reporter = reporter
        self.lock = request["lock"]
        self._pins: list[Pin] = []  # of what was seen to be as locked
        pinned: list[Source | Submodule] = [self.source, *self.source["submodules"]]
        urls = dict.fromkeys(item["repository"] for item in pinned)
        self.mirrors = {url: Mirror(request["store"], url, request["root"], reporter) for url in urls}

    def make(self) -> SourceReceipt:
        """Fetch what is not there, check it, write the archive; the receipt. Raises BrokenMirrorError and others."""
        source = self.source
        update = f"`doit lock:update {self.lock or 'LOCK'} {source['component']}={source['ref'] or 'REF'}`"
        advice = f"{update} takes what is there now; the lock stays as it is until then"
        self.mirrors[source["repository"]].ensure(source["commit"], source["ref"], advice)
        for module in source["submodules"]:
            self.mirrors[module["repository"]].ensure(module["commit"])
        with ExitStack() as held:
            readers = {}
            for url, mirror in sorted(self.mirrors.items()):
                held.enter_context(mirror.held(shared=True))
                readers[url] = held.enter_context(closing(Objects(mirror.path)))
            top = self._checked(source, readers, source["component"])
            self._pins = [(source["commit"], top.time), *((item["commit"], 0) for item in source["submodules"])]
            modules = {
                item["path"]: Module(
                    item["commit"],
                    self._checked(item, readers, f"{source['component']}, submodule {item['path']}").tree,
                    readers[item["repository"]],
                )
                for item in source["submodules"]
            }
            entries, loose = walk(readers[source["repository"]], top.tree, modules)
            self._refuse(
                "submodules that the lock does not have",
                [f"{item.path} (at {item.commit})" for item in loose],
                f"{update} locks them",
            )
            time = source["time"] or top.time
            if not source["patches"]:
                return self._write(entries, time, top.tree if not modules else "")
            with closing(Objects(*self._patched(entries))) as reader:
                content = self._content
                return self._write(walk(reader, content, {})[0], time, content)

    _content = ""

    def _checked(self, pinned: Source | Submodule, readers: Mapping[str, Objects], what: str) -> Commit:
        """The commit, which must have the locked tree and time."""
        commit = readers[pinned["repository"]].commit(pinned["commit"])
        wrong = ""
        if pinned["tree"] and commit.tree != pinned["tree"]:
            wrong, is_, wanted = "tree", commit.tree, pinned["tree"]
        elif (time := self.source["time"]) and pinned is self.source and commit.time != time:
            wrong, is_, wanted = "time", str(commit.time), str(time)
        else:
            return commit
        raise integrity_error(
            f"{what}: the commit has another {wrong} than the lock says",
            where=f"{pinned['repository']} at {pinned['commit']}",
            found=is_,
            wanted=wanted,
            next="find out who changed the lock: a commit's tree and time never change",
        )

    def _write(self, entries: list[Entry], time: int, content: str) -> SourceReceipt:
        path = os.path.join(self.folder, f"{ARCHIVE}.part")
        archive = write(path, entries, time, self.reporter)
        if self.source["lfs"] == "refused":
            self._refuse(
                "files that are kept outside of git (LFS)",
                archive.pointers,
                f"`{self.source['component']}.lfs=pointers` in the lock takes the pointers instead of the files",
            )
        files = sum(entry.mode != FOLDER for entry in entries)
        return {
            "format": FORMAT,
            "key": self.key,
            "bytes": archive.size,
            "sha256": archive.sha256,
            "files": files,
            "time": time,
            "pins": self._pins,
            "content": content or self._tree_of(entries),
            "commit": self.source["commit"],
        }

    def _refuse(self, what: str, paths: list[str], next_: str) -> None:
        if not paths:
            return
        more = f"\nand {len(paths) - _SHOWN} more" if len(paths) > _SHOWN else ""
        raise config_error(
            f"{self.source['component']} has {what}",
            where=f"{self.source['repository']} at {self.source['commit']}",
            found="\n".join(paths[:_SHOWN]) + more,
            next=next_,
        )

    def _scratch(self) -> tuple[str, dict[str, str]]:
        """An empty repository that reads from the mirrors, and the environment for it."""
        work = os.path.join(self.folder, f"{os.getpid()}.work")
        git(work, "init", "--quiet", "--bare", "--template=", "--object-format=sha1")
        objects = ":".join(os.path.join(mirror.path, "objects") for mirror in self.mirrors.values())
        return work, {"GIT_ALTERNATE_OBJECT_DIRECTORIES": objects, "GIT_INDEX_FILE": os.path.join(work, "index")}

    def _in(self, work: str, extra: dict[str, str], *arguments: str, stdin: bytes = b"") -> Output:
        try:
            return git(work, *arguments, stdin=stdin, extra=extra)
        except GitError as error:
            raise BrokenMirrorError(error.text) from error

    def _index(self, entries: list[Entry]) -> tuple[str, dict[str, str], str]:
        """A scratch repository whose index holds the entries, its environment, and the tree they make."""
        work, extra = self._scratch()
        lines = [f"{entry.mode:o} {entry.oid}\t".encode() + entry.path for entry in entries if entry.mode != FOLDER]
        self._in(work, extra, "update-index", "-z", "--index-info", stdin=b"".join(line + b"\0" for line in lines))
        return work, extra, self._in(work, extra, "write-tree").text

    def _tree_of(self, entries: list[Entry]) -> str:
        work, _, tree = self._index(entries)
        shutil.rmtree(work)
        return tree

    def _patched(self, entries: list[Entry]) -> tuple[str, dict[str, str]]:
        """The patches applied to the index, one after the other; the repository that has the result in `_content`."""
        work, extra, _ = self._index(entries)
        for patch in self.source["patches"]:
            text = base64.b64decode(patch["text"])
            if hashlib.sha256(text).hexdigest() != patch["sha256"]:
                raise integrity_error(f"{patch['path']} is not what the lock pins", wanted=patch["sha256"])
            try:
                git(work, "apply", "--cached", "--whitespace=nowarn", "-", stdin=text, extra=extra)
            except GitError as error:
                raise config_error(
                    f"{patch['path']} does not fit {self.source['component']}",
                    where=f"{self.source['repository']} at {self.source['commit']}",
                    found=error.text,
                    next="make the patch anew for this tree, or take it out of the lock",
                ) from error
        self._content = self._in(work, extra, "write-tree").text
        return work, extra
