"""Make an export of staged folders: hard links, symbolic links and empty files, and the manifest of its mounts.

As staging does, the manifest goes before anything is changed and comes back last, and each name changes at once: a kill
leaves an export without a manifest, which nothing takes for whole, and the next run makes what is missing. What is
right is left alone, so an export that a lane uses is not touched by a run that has nothing to do.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from functools import partial
from typing import TYPE_CHECKING

from sparkbuild.agent.disk import patience
from sparkbuild.agent.disk.files import inside
from sparkbuild.agent.disk.held import Held
from sparkbuild.agent.export import linkset, place
from sparkbuild.agent.export.linkset import EMPTY, HARD, POINTER, Entry, LinkSet, Staged
from sparkbuild.agent.lane import uses
from sparkbuild.agent.lane.records import shelf_of
from sparkbuild.agent.ledger import folder, mountlist, noting, obstacles, stamps
from sparkbuild.agent.ledger.ledger import LedgerError
from sparkbuild.agent.ledger.mountlist import Manifest
from sparkbuild.agent.ledger.part import stem
from sparkbuild.agent.wire.layout import EXPORT, OURS
from sparkbuild.agent.wire.protocol import AgentError, Reporter, integrity_error

if TYPE_CHECKING:
    from sparkbuild.agent.wire.staging.exports import LinktreeRequest, LinktreeResult


def run(request: LinktreeRequest, reporter: Reporter) -> LinktreeResult:
    """Errors: kind "config" when a running lane uses what would change, when the folder holds what is not ours, when
    the two are on different file systems, and for what makes no sense; "integrity" when a staged folder is not whole.
    """
    store = request.get("store", "")
    with patience.watched(reporter):
        return _linked(store, inside(store, request["dst"]), request, reporter)


def _linked(store: str, dst: str, request: LinktreeRequest, reporter: Reporter) -> LinktreeResult:
    what = request["what"]
    folders = linkset.folders_of(what, store)
    place.check_place(dst, folders)
    blocked = obstacles.blocked(request, dst)
    if blocked is not None:
        raise blocked
    for path in folders:
        linkset.staged(path)  # before a lock makes an empty folder of what is not there
    with contextlib.ExitStack() as locks:
        for path in (dst, *sorted(set(folders))):  # everyone in this order, the export's own first
            locks.enter_context(folder.locked(path, partial(_waiting, reporter, path)))
        links = linkset.link_set(what, store, dst)
        return noting.noted(request, dst, _Linking(dst, request, links, reporter).run)


class _Linking:
    """One run on one export, under the locks of all that it touches."""

    def __init__(self, dst: str, request: LinktreeRequest, links: LinkSet, reporter: Reporter) -> None:
        self.dst, self.request, self.links, self.reporter = dst, request, links, reporter
        try:
            self.before = mountlist.read(dst)
        except LedgerError as error:
            reporter.log(f"the manifest in {dst} is unreadable: {error}")
            self.before = None
        self.ours = place.ours_in(dst)

    def run(self) -> LinktreeResult:
        """See `run` above."""
        entries, there = self.links.entries, place.names(self.dst)
        wrong = [entry for entry in entries.values() if place.problem(self.dst, entry)]
        gone = sorted(name for name in there if name in self.ours and name not in entries)
        place.check_strangers(self.dst, [name for name in there if name not in self.ours], entries, wrong)
        if wrong or gone:
            place.check_disk(self.dst, [entry.path for entry in wrong if entry.how == HARD])
            self._refuse_used(wrong, gone)
            mountlist.withdraw(self.dst, [*self.ours, *entries])
            before = {staged.path: _stamps(staged) for staged in self.links.folders}
            self._change(wrong, gone)
            for staged in self.links.folders:
                self._restamp(staged, before[staged.path])
        # what a killed run left, though it may have made all links
        folder.clear_leftovers(self.dst, set())
        folder.sweep(self.dst, self.ours - set(entries))
        manifest = self._manifest()
        if wrong or gone or not mountlist.same(self.before, manifest):
            mountlist.write(self.dst, manifest)
        mountlist.forget(self.dst)
        counts = {how: sum(entry.how == how for entry in wrong) for how in (HARD, POINTER, EMPTY)}
        return {
            "files": len(entries),
            "made": counts[HARD],
            "pointers": counts[POINTER],
            "empty": counts[EMPTY],
            "removed": len(gone),
            "mounts": len(self.links.mounts),
            "commit": self.links.commit,
        }

    def _refuse_used(self, wrong: list[Entry], gone: list[str]) -> None:
        """A new name, or one less, moves ctime and link count of a staged file: engines watch both."""
        touched = [self.dst]
        replaced = [name for name in (*gone, *(entry.name for entry in wrong)) if _is_linked(f"{self.dst}/{name}")]
        touched += dict.fromkeys(entry.folder for entry in wrong if entry.how == HARD)
        if replaced:  # which folder each was of is not known for sure
            touched += [staged.path for staged in self.links.folders]
        shelf = shelf_of(self.request)
        uses.refuse(self.request.get("store", ""), dict.fromkeys(touched), "making or removing links of it", shelf)

    def _change(self, wrong: list[Entry], gone: list[str]) -> None:
        with Held(self.dst) as held:
            for name in gone:
                held.unlink(name)
            folder.sweep(self.dst, gone)
            above = {os.path.dirname(name) for name in gone}
            for entry in wrong:
                folder.place(held, entry.name)
                _make(held, entry)
                above.add(os.path.dirname(entry.name))
            for name in sorted({*above, *map(os.path.dirname, above)}):
                with contextlib.suppress(FileNotFoundError):  # it was empty, and is gone
                    held.flush(name)

    def _restamp(self, staged: Staged, before: dict[str, stamps.Stamp]) -> None:
        """What we moved is believed as before: nobody need read it again."""
        after = _stamps(staged)
        moved = {name: (old, after[name]) for name, old in before.items() if name in after and after[name] != old}
        if moved:
            last = max(moved, key=lambda name: moved[name][1][-1])
            stamps.let_settle(os.lstat(f"{staged.path}/{last}"))
            again = _stamps(staged)
            moved = {name: (old, again[name]) for name, (old, _) in moved.items() if name in again}
            stamps.restamp(staged.path, staged.ledger, moved)

    def _manifest(self) -> Manifest:
        entries, what = self.links.entries.values(), self.request["what"]
        files: list[mountlist.HardLink] = []
        for entry in entries:
            if entry.how == HARD:
                status = os.lstat(entry.path)
                files.append({"name": entry.name, "of": entry.path, "dev": status.st_dev, "ino": status.st_ino})
        return {
            "format": mountlist.FORMAT,
            "version": EXPORT,
            "at": 0.0,  # noted when it is written
            "key": self.request["key"],
            "parts": self.request["parts"],
            "kind": what["kind"],
            "commit": self.links.commit,
            "target": what["target"],
            "source": linkset.cache_of(what),
            "sources": [{"folder": staged.path, "ledger": staged.stamp} for staged in self.links.folders],
            "files": files,
            "pointers": [{"name": entry.name, "text": entry.path} for entry in entries if entry.how == POINTER],
            "empty": [entry.name for entry in entries if entry.how == EMPTY],
            "mounts": self.links.mounts,
        }


def _waiting(reporter: Reporter, path: str, who: str) -> None:
    reporter.log(f"{path} is being worked on by another process ({who}): waiting")


def _stamps(staged: Staged) -> dict[str, stamps.Stamp]:
    by_name = {}
    for record in staged.ledger.files:
        with contextlib.suppress(OSError):
            by_name[record.name] = stamps.of(os.lstat(f"{staged.path}/{record.name}"))
    return by_name


def _make(held: Held, entry: Entry) -> None:
    temporary = f"{OURS}/{stem(entry.name)}.link"
    held.unlink(temporary)
    if entry.how == HARD:
        _link(entry, held, temporary)
    elif entry.how == POINTER:
        held.symlink(entry.path, temporary)
    else:
        os.close(held.create(temporary, 0o444))
    held.rename(temporary, entry.name)


def _link(entry: Entry, held: Held, temporary: str) -> None:
    try:
        status = os.lstat(entry.path)
        if not stat.S_ISREG(status.st_mode):
            raise integrity_error("a staged file is no regular file", where=entry.path, next="doit stage")
        held.link(entry.path, temporary)
    except FileNotFoundError as error:
        raise integrity_error("a staged file is missing", where=entry.path, next="doit stage") from error
    except OSError as error:
        if error.errno == errno.EXDEV:
            raise place.other_disk(entry.path, held.path) from error
        if error.errno == errno.EMLINK:
            what = "a staged file has as many names as its file system allows"
            raise AgentError(what, where=entry.path, next="remove exports that are not used any more") from error
        if error.errno in (errno.EPERM, errno.EACCES):
            raise AgentError(
                "a hard link of a staged file is not permitted",
                where=entry.path,
                found=f"{error.strerror}, as {held.at(temporary)}",
                wanted="a file of this user, or one that it may write to (fs.protected_hardlinks)",
                next="stage it as this user, or give the file to it (chown)",
            ) from error
        raise


def _is_linked(path: str) -> bool:
    try:
        status = os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return stat.S_ISREG(status.st_mode) and status.st_nlink > 1
