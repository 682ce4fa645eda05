"""Stage files into a folder: copy what is missing, mend what is damaged, remove what is no longer wanted.

The order keeps every kill harmless: the ledger goes before anything is changed and comes back last; a file gets its
name only when it is whole, checked and on the disk. What was done before a kill is found again in the draft and the
parts, is read and compared, and is not fetched twice.
"""

from __future__ import annotations

import contextlib
import errno
import os
import threading
from typing import TYPE_CHECKING

from sparkbuild.agent.disk import patience
from sparkbuild.agent.disk.files import inside
from sparkbuild.agent.disk.held import Held
from sparkbuild.agent.lane import records, uses
from sparkbuild.agent.ledger import digest, folder, index, ledger, links, noting, obstacles, ownership, stamps
from sparkbuild.agent.ledger.access import Access
from sparkbuild.agent.ledger.draft import Draft
from sparkbuild.agent.ledger.ledger import Ledger, Record
from sparkbuild.agent.ledger.part import ENDS, stem
from sparkbuild.agent.ledger.titles import Titles
from sparkbuild.agent.machine import oserrors
from sparkbuild.agent.source import overlap, unchanged
from sparkbuild.agent.source.fileset import FileSet, Wanted
from sparkbuild.agent.source.opened import Archives
from sparkbuild.agent.source.plan import check_archive, of_what
from sparkbuild.agent.stage import refusals, strangers
from sparkbuild.agent.stage.adopt import Adopter
from sparkbuild.agent.stage.assess import COPY, KEEP, REPAIR, Assessor, Task
from sparkbuild.agent.stage.copy import Copier
from sparkbuild.agent.stage.make import Maker, Opener
from sparkbuild.agent.stage.samerows import as_staged
from sparkbuild.agent.stage.streams import MOST, Buffers, Counter, Meter, each
from sparkbuild.agent.wire.protocol import AgentError, Reporter

if TYPE_CHECKING:
    from sparkbuild.agent.wire.staging.staged import StageRequest, StageResult

_FULL = (errno.ENOSPC, errno.EDQUOT)
_STREAMS = 4


def run(request: StageRequest, reporter: Reporter) -> StageResult:
    """`full` reads every file that is there; else those whose stamp is as it was are believed. Errors: kind "space"
    before anything is written, "integrity" when a source is not what it should be, "config" for what makes no sense,
    "node" when a source cannot be read.
    """
    dst = inside(request.get("store", ""), request["dst"])
    blocked = obstacles.blocked(request, dst)
    if blocked is not None:
        raise blocked
    with patience.watched(reporter, kept="what was copied"):
        return _staged(request, dst, reporter)


def _staged(request: StageRequest, dst: str, reporter: Reporter) -> StageResult:
    archives = Archives()
    try:
        file_set = of_what(request["what"], request.get("store", ""), dst, archives)
        with folder.locked(dst, lambda who: reporter.log(f"{dst} is being staged by another process ({who}): waiting")):
            return noting.noted(request, dst, _Staging(dst, request, file_set, archives, reporter).run)
    except OSError as error:
        if error.errno not in _FULL:
            raise
        full = oserrors.full(error, str(error.filename or dst))
        what = "the disk became full" if full["what"] == error.strerror else full["what"]
        raise AgentError(**{**full, "what": f"{what} while staging"}) from error
    finally:
        archives.close()


class _Staging:
    """One staging of one folder, under its lock."""

    def __init__(
        self, dst: str, request: StageRequest, wanted: FileSet, archives: Archives, reporter: Reporter
    ) -> None:
        self.dst, self.request, self.wanted, self.archives, self.reporter = dst, request, wanted, archives, reporter
        self.store = request.get("store", "")
        self.draft = Draft(dst)
        self.lost = False  # the ledger: what is here under wanted names was staged, though nothing tells what it was
        self.before = self._ledger()
        self.known = {**self.draft.read(), **{record.name: record for record in self.before.files}}
        self.links = list({link.name: link for link in (*self.draft.read_links(), *self.before.links)}.values())
        self.algorithm = digest.first_usable(record.digest for record in self.known.values())
        self.stop = threading.Event()
        self.meter = Meter(int(request.get("bwlimit") or 0), self.stop)
        self.opener = Opener(archives, request, self.meter, reporter.log)
        self.streams = max(1, min(MOST, int(request.get("streams") or _STREAMS)))

    def _ledger(self) -> Ledger:
        try:
            recorded = ledger.read(self.dst)
        except ledger.LedgerError as error:
            self.reporter.log(f"the ledger in {self.dst} is unreadable: {error}")
            self.lost = True
            return _NOTHING
        owner = ownership.read(self.dst) if recorded is None and not self.draft.is_there() else None
        self.lost = owner is not None and owner.staged_at > 0
        return recorded or _NOTHING

    def run(self) -> StageResult:
        """See `run` above."""
        try:
            return self._run()
        except BaseException:
            with contextlib.suppress(OSError):  # what went wrong first is to be told
                self._withdraw()
            raise

    def _withdraw(self) -> None:
        """Where nothing was staged before, nor now, nothing is to be known of it."""
        links_made = any(not links.problem(self.dst, link) for link in self.wanted.links)
        if self.known or self.links or links_made or self.draft.read() or folder.leftovers(self.dst, set()):
            return
        self.draft.end()
        folder.clear_leftovers(self.dst, set())
        folder.sweep(self.dst, [*(item.name for item in self.wanted.files), *(link.name for link in self.wanted.links)])

    def _run(self) -> StageResult:
        check = Counter(self.reporter, "check", None)
        stamped, full = stamps.read(self.dst, self.before), bool(self.request.get("full"))
        adopter = Adopter(self.algorithm, self.request.get("verify") == "full", self.opener.from_nas, check.moved)
        linked = bool(self.request.get("linked"))
        access = Access(self.store, self.dst)
        assessor = Assessor(self.dst, self.algorithm, self.known, stamped, full, linked, adopter, access)
        self._refuse_detours()
        access.take_back((item.name for item in self.wanted.files if item.name in self.known), self.reporter.log)
        self._part_from_source()
        files, others = as_staged(self.wanted.files, self.before, self.request)
        tasks = [assessor.task(wanted) for wanted in files]
        del files
        for task in tasks:
            if task.do in (COPY, REPAIR) and task.wanted.name in others:
                raise others[task.wanted.name]
        names = {wanted.name for wanted in self.wanted.files} | {link.name for link in self.wanted.links}
        gone = [name for name in self.known if name not in names and folder.holds(self.dst, name)]
        gone += [name for name in links.gone(self.dst, self.links, names) if name not in gone]
        keep = {stem(task.wanted.name) + end for task in tasks if task.part.resumable for end in ENDS}
        self._refuse_strangers(tasks, adopter)
        gone = self._adopt(tasks, gone)
        self._check_room(tasks, gone, keep)
        self._refuse_sources(tasks, gone)
        self._refuse_used([*gone, *(task.wanted.name for task in tasks if task.do != KEEP)])
        todo = [task for task in tasks if task.do != KEEP]
        if any(task.do in (COPY, REPAIR) for task in todo):
            check_archive(self.request["what"], self.store, self.archives)
        for task in tasks:
            if task.text:
                self.reporter.log(f"{task.do} {task.wanted.called}: {task.text}")
        wrong = [link for link in self.wanted.links if links.problem(self.dst, link)]
        if todo or gone or wrong:
            self._open_up(todo, gone, keep)
        records, proven, maker = self._make(tasks)
        adopted = sum(1 for task in tasks if task.do == KEEP and task.text)
        linked_anew = links.make(self.dst, wrong)
        seen = unchanged.seen(self.wanted)
        # Of 100,000 files these are much, and looking at the source again and the ledger come on top.
        del tasks, todo
        self.wanted.files.clear()
        if maker.written:
            self._check_source(seen, maker)
        written = self._close_up(records, proven)
        return {
            "bytes": maker.written,
            "total": written.total,
            "files": len(records),
            "copied": maker.copied,
            "adopted": adopted,
            "repaired_chunks": maker.mended,
            "removed": len(gone),
            "links": linked_anew,
            "read": self.meter.read,
            "received": self.meter.received,
            "about": written.about,
        }

    def _refuse_detours(self) -> None:
        """Nothing is copied, and nothing goes, where a wanted file cannot lie."""
        names = [*(item.name for item in self.wanted.files), *(link.name for link in self.wanted.links)]
        blocked = folder.in_the_place(self.dst, names, {*self.known, *(link.name for link in self.links)})
        if blocked is not None:
            raise blocked

    def _part_from_source(self) -> None:
        """A name of a source file in this folder, a hard link, goes before anything is read: later, that the source has
        one name less would be taken for a change of it.
        """
        if self.request["what"]["kind"] in unchanged.PINNED:
            return
        same = [item for item in self.wanted.files if _has_names(path := f"{self.dst}/{item.name}")
                and overlap.is_its_source(path, item)]  # fmt: skip
        for item in same:
            overlap.refuse_file(f"{self.dst}/{item.name}", item)
        if same:
            self._refuse_used([item.name for item in same])
            with Held(self.dst) as held:
                for item in same:
                    self.reporter.log(f"removed {held.at(item.name)}, a hard link of its source: it gets a copy")
                    held.unlink(item.name)
            self.wanted = of_what(self.request["what"], self.store, self.dst, self.archives)

    def _check_room(self, tasks: list[Task], gone: list[str], keep: set[str]) -> None:
        need = sum(task.room for task in tasks)
        back = sum(task.reclaim for task in tasks) + folder.leftovers(self.dst, keep)
        back += sum(status.st_blocks * 512 for status in map(os.lstat, self._paths(gone)) if status.st_nlink == 1)
        free, min_free = folder.room(self.dst), int(self.request.get("min_free") or 0)
        if need and free + back - need < min_free:
            owner = self.request.get("owner")
            recipe = owner["recipe"] if owner else ""
            raise refusals.no_room(self.dst, need=need, free=free, back=back, min_free=min_free, recipe=recipe)

    def _refuse_strangers(self, tasks: list[Task], adopter: Adopter) -> None:
        """What others put here under a wanted name, and is not what is wanted, is not replaced."""
        if self.lost:
            return
        copied = {task.wanted.name for task in tasks if task.do == COPY}

        def differs(path: str, item: Wanted, seen: os.stat_result) -> bool:
            if path == f"{self.dst}/{item.name}":
                return item.name in copied
            return seen.st_size != item.size or not strangers.proven(path, item, adopter)

        ours = {*self.known, *(link.name for link in self.links)}
        in_the_way = strangers.in_the_way(self.dst, self.wanted, ours, differs)
        if in_the_way:
            raise strangers.refused(self.dst, in_the_way, self.wanted)

    def _adopt(self, tasks: list[Task], gone: list[str]) -> list[str]:
        """Note when files of others were found and are kept. From such a folder nothing is taken away: what of it they
        put there, and what came later, no longer can be told apart. Returns what goes.
        """
        there = {link.name for link in self.wanted.links if not links.problem(self.dst, link)}
        names = {task.wanted.name for task in tasks if task.do != COPY} | there
        # Also after a staging that did not end: what that one finished is in its draft.
        if not names <= {*self.known, *(link.name for link in self.links)} and not self.lost:
            noting.adopt(self.request, self.dst)
        entry = index.entry(self.store, self.dst)
        if entry is None or not entry.adopted:
            return gone
        for name in gone:
            self.reporter.log(f"left {self.dst}/{name}: no longer wanted, in a folder that had files before")
        return []

    def _refuse_sources(self, tasks: list[Task], gone: list[str]) -> None:
        """No file goes, is replaced or becomes ours that a wanted file is read from."""
        for task in tasks:
            if task.do != KEEP or task.text:
                overlap.refuse_file(f"{self.dst}/{task.wanted.name}", task.wanted, mended=task.do == REPAIR)
        overlap.refuse_gone(self._paths(gone), (task.wanted for task in tasks if task.do in (COPY, REPAIR)))

    def _refuse_used(self, names: list[str]) -> None:
        """A file that exports have too is not taken away or replaced under a lane: that moves its link count."""
        shared = [
            name for name in names if folder.holds(self.dst, name) and os.lstat(f"{self.dst}/{name}").st_nlink > 1
        ]
        if shared and self.request.get("linked"):
            shelf = records.shelf_of(self.request)
            title = Titles((*self.links, *self.wanted.links)).of(shared[0])
            what = f"replacing {title}, a file of exports,"
            uses.refuse(self.store, [self.dst], what, shelf)

    def _open_up(self, todo: list[Task], gone: list[str], keep: set[str]) -> None:
        """From here on the folder has no ledger, so that nothing takes it for whole."""
        self.draft.start(list(self.known.values()), (*self.links, *self.wanted.links))
        with Held(self.dst) as held:
            ledger.withdraw(held)
            folder.clear_leftovers(self.dst, keep)
            for name in gone:
                self.reporter.log(f"removed {self.dst}/{name}: no longer wanted")
                held.unlink(name)
        folder.sweep(self.dst, gone)
        for task in todo:
            if not task.text:
                self.reporter.log(f"{task.do} {task.wanted.called}")

    def _make(self, tasks: list[Task]) -> tuple[list[Record], dict[str, stamps.Stamp], Maker]:
        todo = [task for task in tasks if task.record is None or task.stamp is None]
        work = Counter(self.reporter, "stage", sum(task.to_write for task in todo))
        self.meter.tick = work.moved
        streams = min(self.streams, len(todo))
        copier = Copier(self.algorithm, Buffers(streams), self.stop, work.moved)
        maker = Maker(self.dst, copier, self.opener, self.draft, tight=self._is_tight(todo))
        results = iter(each(streams, todo, maker.make, self.stop))
        records, proven = [], {}
        for task in tasks:
            record, stamp = (task.record, task.stamp) if task.record and task.stamp else next(results)
            records.append(record)
            proven[record.name] = stamp
        return records, proven, maker

    def _is_tight(self, todo: list[Task]) -> bool:
        """True when a file that is replaced has to go first. Else it goes when the new one is whole."""
        need, min_free = sum(task.room for task in todo), int(self.request.get("min_free") or 0)
        return folder.room(self.dst) - need < min_free

    def _check_source(self, seen: dict[str, int], maker: Maker) -> None:
        try:
            unchanged.check(self.request["what"], self.store, self.request["dst"], seen)
        except unchanged.ChangedError as error:
            maker.forget(error.names)
            raise

    def _close_up(self, records: list[Record], proven: dict[str, stamps.Stamp]) -> Ledger:
        """The ledger comes back when what it says is on the disk."""
        pointers = tuple(self.wanted.links)
        names = {record.name for record in records} | {link.name for link in pointers}
        old = {*self.known, *(link.name for link in self.links)}
        folder.sweep(self.dst, old - names)  # a killed run may have removed files, and not yet their folders
        fields = (self.request["key"], self.request["parts"], self.algorithm, tuple(records))
        new = Ledger(*fields, links=pointers, about=self.wanted.about)
        same = new == self.before._replace(at=new.at, seal=new.seal)
        new = self.before if same and os.path.lexists(ledger.path_of(self.dst)) else ledger.write(self.dst, new)
        stamps.write(self.dst, new, proven)
        self.draft.end()
        folder.clear_leftovers(self.dst, set())
        return new

    def _paths(self, names: list[str]) -> list[str]:
        return [f"{self.dst}/{name}" for name in names]


def _has_names(path: str) -> bool:
    try:
        return os.lstat(path).st_nlink > 1
    except OSError:
        return False


_NOTHING = Ledger("", {}, "", ())
