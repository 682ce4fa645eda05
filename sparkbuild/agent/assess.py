"""What has to be done for one wanted file: nothing, mend some chunks, give it a name of its own, or copy it."""

from __future__ import annotations

import os
import stat
from typing import NamedTuple

from sparkbuild.agent import content, stamps
from sparkbuild.agent.content import Moved
from sparkbuild.agent.ledger import Record
from sparkbuild.agent.part import Part
from sparkbuild.agent.wanted import Wanted

KEEP, REPAIR, DETACH, COPY = "keep", "repair", "detach", "copy"


class Task(NamedTuple):
    """`record` is what is known of the content, `stamp` is of a file that is kept. `room`: bytes the disk will give,
    `reclaim`: bytes it gets back first, from an own file that is replaced. `text` says why, for the log.
    """

    wanted: Wanted
    part: Part
    do: str
    text: str = ""
    record: Record | None = None
    stamp: stamps.Stamp | None = None
    room: int = 0
    reclaim: int = 0


class Assessor(NamedTuple):
    """Looks at the files of one folder. `full` believes no stamp. Content is read locally, never from a source."""

    dst: str
    algorithm: str
    known: dict[str, Record]
    stamped: dict[str, stamps.Stamp]
    full: bool
    moved: Moved

    def task(self, wanted: Wanted) -> Task:
        """Decide about one file."""
        part = Part(self.dst, wanted.name, wanted.size, wanted.identity, self.algorithm)
        record = self.known.get(wanted.name)
        try:
            found = os.lstat(f"{self.dst}/{wanted.name}")
        except (FileNotFoundError, NotADirectoryError):
            return self._copy(wanted, part, None, "")
        if stat.S_ISREG(found.st_mode):
            if record is not None and wanted.is_in(record) and record.digest == self.algorithm:
                return self._by_chunks(wanted, part, record, found)
            sha256 = wanted.sha256 or (record.sha256 if record is not None and wanted.is_in(record) else "")
            if sha256 and found.st_size == wanted.size:
                return self._by_sha256(wanted, part, sha256, found)
        text = "it is not the wanted content" if record else "it was not staged here before"
        return self._copy(wanted, part, found, text)

    def _by_chunks(self, wanted: Wanted, part: Part, record: Record, found: os.stat_result) -> Task:
        if not self.full and found.st_nlink == 1 and self.stamped.get(wanted.name) == stamps.of(found):
            return Task(wanted, part, KEEP, record=record, stamp=stamps.of(found))
        stamps.let_settle(found)
        seen = content.check(f"{self.dst}/{wanted.name}", record, self.moved)
        if seen.stat is None or (seen.text and found.st_nlink > 1):  # unreadable, being written, or somebody else's too
            return self._copy(wanted, part, found, seen.text)
        if seen.text:
            room = max(0, wanted.size - found.st_blocks * 512)
            return Task(wanted, part, REPAIR, seen.text, record, room=room)
        return self._kept(wanted, part, record, seen.stat)

    def _by_sha256(self, wanted: Wanted, part: Part, sha256: str, found: os.stat_result) -> Task:
        """A file staged by other means, or recorded with a digest this python has not: adopted when it is the same."""
        stamps.let_settle(found)
        with content.opened(f"{self.dst}/{wanted.name}") as pages:
            before = os.fstat(pages.fd)
            seen, chunks = content.prove(pages, wanted.size, self.algorithm, self.moved)
            after = os.fstat(pages.fd)
        if seen != sha256 or stamps.of(before) != stamps.of(after):
            return self._copy(wanted, part, found, f"it has sha256 {seen}, wanted {sha256}")
        record = Record(wanted.name, wanted.size, seen, chunks, self.algorithm, wanted.identity)
        return self._kept(wanted, part, record, after)

    def _kept(self, wanted: Wanted, part: Part, record: Record, found: os.stat_result) -> Task:
        if found.st_nlink > 1:
            return Task(wanted, part, DETACH, f"it has {found.st_nlink} names", record, room=wanted.size)
        return Task(wanted, part, KEEP, record=record, stamp=stamps.of(found))

    def _copy(self, wanted: Wanted, part: Part, found: os.stat_result | None, text: str) -> Task:
        ours = found is not None and found.st_nlink == 1 and wanted.name in self.known
        room = max(0, wanted.size - part.allocated())
        return Task(wanted, part, COPY, text, room=room, reclaim=found.st_blocks * 512 if ours and found else 0)
