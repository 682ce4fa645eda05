"""Stage files into a folder: copy what is missing, mend what is damaged, remove what is no longer wanted.

The order keeps every kill harmless: the ledger goes before anything is changed and comes back last; a file gets its
name only when it is whole, checked and on the disk. What was done before a kill is found again in the draft and the
parts, is read and compared, and is not fetched twice.
"""

from __future__ import annotations

import errno
import os
import threading
from typing import Any

from sparkbuild.agent import digest, folder, ledger, stamps
from sparkbuild.agent.archives import Archives
from sparkbuild.agent.assess import COPY, DETACH, KEEP, REPAIR, Assessor, Task
from sparkbuild.agent.copy import fill, rename_into
from sparkbuild.agent.files import fsync_folder, inside
from sparkbuild.agent.ledger import Draft, Ledger, Record
from sparkbuild.agent.part import stem
from sparkbuild.agent.protocol import AgentError, Reporter
from sparkbuild.agent.sources import FileSource
from sparkbuild.agent.wanted import Wanted, check_archive, of_request

_ENDS = (".part", ".chunks")
_FULL = (errno.ENOSPC, errno.EDQUOT)


def run(request: dict[str, Any], reporter: Reporter) -> dict[str, Any]:
    """Request {"store", "dst", "key", "parts", "min_free", "full"}, and the files as `wanted.of_request` reads them.

    Result {"bytes": written, "total": of all files, "files", "copied", "repaired_chunks", "removed"}. `full` reads
    every file that is there; else those whose stamp is as it was are believed. Errors: kind "space" before anything
    is written, "integrity" when a source is not what it should be, "config" for names and globs that make no sense.
    """
    dst = inside(request.get("store", ""), request["dst"])
    archives = Archives()
    try:
        wanted = of_request(request, archives).files
        with folder.locked(dst, lambda who: reporter.log(f"{dst} is being staged by another process ({who}): waiting")):
            return _Staging(dst, request, wanted, archives, reporter).run()
    except OSError as error:
        if error.errno not in _FULL:
            raise
        raise AgentError(
            "the disk became full while staging",
            kind="space",
            where=str(error.filename or dst),
            found=f"{folder.human(folder.room(_existing(dst)))} free",
            next="make room, then run again: it goes on where it stopped",
        ) from error
    finally:
        archives.close()


class _Staging:
    """One staging of one folder, under its lock."""

    def __init__(
        self, dst: str, request: dict[str, Any], wanted: list[Wanted], archives: Archives, reporter: Reporter
    ) -> None:
        self.dst, self.request, self.wanted, self.archives, self.reporter = dst, request, wanted, archives, reporter
        self.draft = Draft(dst)
        self.before = self._ledger()
        self.known = {**self.draft.read(), **{record.name: record for record in self.before.files}}
        usable = (record.digest for record in self.known.values() if digest.function(record.digest))
        self.algorithm = next(usable, "") or digest.best()
        self.written = self.chunks = self.copied = 0

    def _ledger(self) -> Ledger:
        try:
            return ledger.read(self.dst) or _NOTHING
        except ledger.LedgerError as error:
            self.reporter.log(f"the ledger in {self.dst} is unreadable: {error}")
            return _NOTHING

    def run(self) -> dict[str, Any]:
        """See `run` above."""
        check = _Counter(self.reporter, "check", None)
        stamped, full = stamps.read(self.dst, self.before), bool(self.request.get("full"))
        assessor = Assessor(self.dst, self.algorithm, self.known, stamped, full, check.moved)
        tasks = [assessor.task(wanted) for wanted in self.wanted]
        names = {wanted.name for wanted in self.wanted}
        gone = [name for name in self.known if name not in names and folder.holds(self.dst, name)]
        keep = {stem(task.wanted.name) + end for task in tasks if task.part.resumable for end in _ENDS}
        self._check_room(tasks, gone, keep)
        todo = [task for task in tasks if task.do != KEEP]
        if any(task.do in (COPY, REPAIR) for task in todo):
            check_archive(self.request, self.archives)
        if todo or gone:
            self._open_up(todo, gone, keep)
        records, proven = self._make(tasks)
        made = self._close_up(records, proven)
        return {
            "bytes": self.written,
            "total": made.total,
            "files": len(records),
            "copied": self.copied,
            "repaired_chunks": self.chunks,
            "removed": len(gone),
        }

    def _check_room(self, tasks: list[Task], gone: list[str], keep: set[str]) -> None:
        need = sum(task.room for task in tasks)
        back = sum(task.reclaim for task in tasks) + folder.leftovers(self.dst, keep)
        back += sum(found.st_blocks * 512 for found in map(os.lstat, self._paths(gone)) if found.st_nlink == 1)
        free, min_free = folder.room(self.dst), int(self.request.get("min_free") or 0)
        if need and free + back - need < min_free:
            spare = f", of which {folder.human(min_free)} must stay free (min_free)" if min_free else ""
            extra = f", and {folder.human(back)} that this staging gives back first" if back else ""
            raise AgentError(
                "not enough room to stage",
                kind="space",
                where=self.dst,
                found=f"{folder.human(free)} free{extra}{spare}",
                wanted=f"{folder.human(need)} more to write; {folder.human(need + min_free - free - back)} are missing",
                next="make room on that file system, or lower min_free of this staging block",
            )

    def _open_up(self, todo: list[Task], gone: list[str], keep: set[str]) -> None:
        """From here on the folder has no ledger, so that nothing takes it for whole."""
        self.draft.start(list(self.known.values()))
        if os.path.lexists(ledger.path_of(self.dst)):
            os.unlink(ledger.path_of(self.dst))
            fsync_folder(f"{self.dst}/{ledger.OURS}")
        folder.clear_leftovers(self.dst, keep)
        for path in self._paths(gone):
            self.reporter.log(f"removed {path}: no longer wanted")
            os.unlink(path)
        for task in todo:
            self.reporter.log(f"{task.do} {task.wanted.name}" + (f": {task.text}" if task.text else ""))
            if task.reclaim:
                os.unlink(f"{self.dst}/{task.wanted.name}")

    def _make(self, tasks: list[Task]) -> tuple[list[Record], dict[str, stamps.Stamp]]:
        work = _Counter(self.reporter, "stage", sum(task.wanted.size for task in tasks if task.do != KEEP))
        records, proven = [], {}
        for task in tasks:
            record, stamp = task.record, task.stamp
            if record is None or stamp is None:
                record, stamp = self._one(task, work)
            records.append(record)
            proven[record.name] = stamp
        return records, proven

    def _one(self, task: Task, work: _Counter) -> tuple[Record, stamps.Stamp]:
        """Make one file whole under its name."""
        wanted, path = task.wanted, folder.place(self.dst, task.wanted.name)
        source = FileSource(path) if task.do == DETACH else self.archives.source(wanted.source)
        try:
            if source.size != wanted.size:
                raise AgentError(
                    f"the source of {wanted.name} has another size",
                    kind="integrity",
                    where=str(wanted.source.get("path", "")),
                    found=f"{source.size} bytes",
                    wanted=f"{wanted.size} bytes",
                )
            if task.do == REPAIR and task.record is not None:
                task.part.adopt(path, task.record.chunks)
            sha256 = wanted.sha256 or (task.record.sha256 if task.record else "")
            copied = fill(task.part, source, self.algorithm, sha256, work.moved)
        finally:
            source.close()
        record = Record(wanted.name, wanted.size, copied.sha256, copied.chunks, self.algorithm, wanted.identity)
        self.draft.add(record)  # before the rename: a kill in between finds a whole part, not an unknown file
        rename_into(task.part, path)
        self.written += copied.written
        self.copied += task.do != REPAIR
        self.chunks += copied.fetched if task.do == REPAIR else 0
        return record, stamps.of(os.lstat(path))

    def _close_up(self, records: list[Record], proven: dict[str, stamps.Stamp]) -> Ledger:
        """The ledger comes back when what it says is on the disk."""
        made = Ledger(self.request["key"], self.request["parts"], self.algorithm, tuple(records))
        same = (self.before.key, self.before.parts, self.before.digest, self.before.files)
        if not os.path.lexists(ledger.path_of(self.dst)) or same != (made.key, made.parts, made.digest, made.files):
            made = ledger.write(self.dst, made)
        else:
            made = self.before
        stamps.write(self.dst, made, proven)
        self.draft.end()
        folder.clear_leftovers(self.dst, set())
        return made

    def _paths(self, names: list[str]) -> list[str]:
        return [f"{self.dst}/{name}" for name in names]


class _Counter:
    """Bytes that passed in one phase; told from several threads."""

    def __init__(self, reporter: Reporter, phase: str, total: int | None) -> None:
        self._reporter, self._phase, self._total = reporter, phase, total
        self._guard, self._done = threading.Lock(), 0

    def moved(self, size: int) -> None:
        with self._guard:
            self._done += size
            self._reporter.progress(self._phase, self._done, self._total)


def _existing(path: str) -> str:
    while not os.path.exists(path):
        path = os.path.dirname(path)
    return path


_NOTHING = Ledger("", {}, "", ())
