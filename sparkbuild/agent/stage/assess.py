"""What has to be done for one wanted file: nothing, mend some chunks, give it a name of its own, or copy it."""

from __future__ import annotations

import os
import stat
from typing import NamedTuple

from sparkbuild.agent.ledger import content, folder, stamps
from sparkbuild.agent.ledger.access import Access
from sparkbuild.agent.ledger.ledger import Record
from sparkbuild.agent.ledger.part import Part
from sparkbuild.agent.ledger.shape import Shape
from sparkbuild.agent.source.fileset import Wanted
from sparkbuild.agent.stage.adopt import Adopted, Adopter

KEEP, REPAIR, DETACH, COPY = "keep", "repair", "detach", "copy"


class Task(NamedTuple):
    """`record` is what is known of the content, `stamp` is of a file that is kept. `room`: bytes the disk will give,
    `reclaim`: bytes it gets back first, from an own file that is replaced. `apart`: a file with other names is mended,
    so it becomes a new one. `text` says why, for the log. `to_write`: bytes of data, as far as can be told beforehand.
    """

    wanted: Wanted
    part: Part
    do: str
    text: str = ""
    record: Record | None = None
    stamp: stamps.Stamp | None = None
    room: int = 0
    reclaim: int = 0
    apart: bool = False
    to_write: int = 0


class Assessor(NamedTuple):
    """Looks at the files of one folder. `full` believes no stamp. Content is read locally, and a source is asked only
    about a file that nobody knows anything of. `linked`: files may have other names (exports).
    """

    dst: str
    algorithm: str
    known: dict[str, Record]
    stamped: dict[str, stamps.Stamp]
    full: bool
    linked: bool
    adopter: Adopter
    access: Access

    def task(self, wanted: Wanted) -> Task:
        """Decide about one file."""
        shape = Shape(wanted.size, wanted.extents)
        part = Part(
            self.dst, wanted.name, shape, wanted.read_from, self.algorithm, title=wanted.called, again=wanted.again
        )
        record = self.known.get(wanted.name)
        path = f"{self.dst}/{wanted.name}"
        try:
            status = os.lstat(path)
        except (FileNotFoundError, NotADirectoryError):
            if record is not None and record.digest == self.algorithm and wanted.is_in(record):
                part.go_on(record.chunks)
                return self._copy(wanted, part, None, "")._replace(record=record if part.resumable else None)
            return self._copy(wanted, part, None, "")
        text = "it is not the wanted content" if record else "it was not staged here before"
        denied = self.access.problem(status) if record is not None else ""
        if denied:  # and it could not be taken back
            text = f"it {denied}"
        elif stat.S_ISREG(status.st_mode) and not folder.through_link(self.dst, wanted.name):
            same = record if record is not None and wanted.is_in(record) else None
            if same is not None and same.digest == self.algorithm:
                return self._by_chunks(wanted, part, same, status)
            if status.st_size == wanted.size and (status.st_size or wanted.sha256):
                seen = self._adopt(path, wanted, record, same, status)
                if seen is not None and seen.record is not None and seen.stat is not None:
                    if seen.bad:
                        return self._mend(wanted, part, seen.record, status, seen)
                    return self._kept(wanted, part, seen.record, seen.stat, seen.text)
                text = seen.text if seen is not None else text
        return self._copy(wanted, part, status, text)

    def _adopt(
        self, path: str, wanted: Wanted, record: Record | None, same: Record | None, status: os.stat_result
    ) -> Adopted | None:
        """A file staged by other means, or recorded with a digest this python has not."""
        sha256 = wanted.sha256 or (same.sha256 if same is not None else "")
        stamps.let_settle(status)
        if sha256 or wanted.sha1:
            seen = self.adopter.by_hash(path, wanted, sha256, wanted.sha1)
            if seen.record is not None or not self.adopter.full or record is not None:
                return seen
        if record is not None:
            return None
        return self.adopter.by_source(path, wanted)

    def _by_chunks(self, wanted: Wanted, part: Part, record: Record, status: os.stat_result) -> Task:
        alone = status.st_nlink == 1 or self.linked
        if not self.full and alone and self.stamped.get(wanted.name) == stamps.of(status):
            return Task(wanted, part, KEEP, record=record, stamp=stamps.of(status))
        stamps.let_settle(status)
        seen = content.check(f"{self.dst}/{wanted.name}", record, self.adopter.moved)
        if seen.stat is None:  # unreadable, or being written
            return self._copy(wanted, part, status, seen.text)
        if seen.text:
            return self._mend(wanted, part, record, status, seen)
        return self._kept(wanted, part, record, seen.stat, "")

    def _mend(
        self, wanted: Wanted, part: Part, record: Record, status: os.stat_result, seen: content.Found | Adopted
    ) -> Task:
        apart = status.st_nlink > 1  # somebody else's too: what they have stays as it is
        room = part.shape.room if apart else max(0, part.shape.room - status.st_blocks * 512)
        size = part.shape.data if apart else sum(map(part.shape.weight, seen.bad))
        return Task(wanted, part, REPAIR, seen.text, record, room=room, apart=apart, to_write=size)

    def _kept(self, wanted: Wanted, part: Part, record: Record, status: os.stat_result, text: str) -> Task:
        if status.st_nlink > 1 and not self.linked:
            text, shape = f"it has {status.st_nlink} names", part.shape
            return Task(wanted, part, DETACH, text, record, room=shape.room, to_write=shape.data)
        return Task(wanted, part, KEEP, text, record, stamp=stamps.of(status))

    def _copy(self, wanted: Wanted, part: Part, status: os.stat_result | None, text: str) -> Task:
        ours = status is not None and status.st_nlink == 1 and wanted.name in self.known
        room = max(0, part.shape.room - part.allocated())
        reclaim = status.st_blocks * 512 if ours and status else 0
        return Task(wanted, part, COPY, text, room=room, reclaim=reclaim, to_write=part.lacking())
