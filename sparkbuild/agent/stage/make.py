"""Make one file of a folder whole under its name: from its source, from itself, or from both."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from sparkbuild.agent.disk.held import Held
from sparkbuild.agent.ledger import digest, folder, stamps
from sparkbuild.agent.ledger.content import Moved
from sparkbuild.agent.ledger.digest import CHUNK
from sparkbuild.agent.ledger.draft import Draft
from sparkbuild.agent.ledger.ledger import Record
from sparkbuild.agent.ledger.part import Part
from sparkbuild.agent.ledger.shape import Shape
from sparkbuild.agent.source import overlap
from sparkbuild.agent.source.fileset import Wanted
from sparkbuild.agent.source.opened import Archives
from sparkbuild.agent.source.source import FileSource, Source
from sparkbuild.agent.stage import peers, refusals
from sparkbuild.agent.stage.assess import DETACH, REPAIR, Task
from sparkbuild.agent.stage.copy import Copied, Copier
from sparkbuild.agent.stage.streams import Meter, Metered

if TYPE_CHECKING:
    from sparkbuild.agent.stage.peers import Peers
    from sparkbuild.agent.wire.staging.staged import StageRequest


class Opener:
    """Opens the sources of a request, its peers first where it names some; what comes of them is counted."""

    def __init__(self, archives: Archives, request: StageRequest, meter: Meter, log: Callable[[str], None]) -> None:
        self._archives, self._meter = archives, meter
        self._guard = threading.Lock()
        self._peers: Peers | None = None
        if request.get("peers"):
            self._peers = peers.of_request(request, log, meter.halt)

    def __call__(self, wanted: Wanted) -> Metered:
        """The source of one file. Raises AgentError."""
        if self._peers is None:
            return self.from_nas(wanted)
        return Metered(self._peers.source(wanted, lambda: self._from_nas(wanted)), self._meter)

    def from_nas(self, wanted: Wanted) -> Metered:
        """The source of one file, whatever peers have."""
        return Metered(self._from_nas(wanted), self._meter)

    def checked(self, source: Source, known: str, part: Part, copy: Callable[[Moved], Copied], moved: Moved) -> Copied:
        """`copy`, and once more from the NAS alone when peers gave something else than the wanted content."""
        if self._peers is None or not isinstance(source, Metered):
            return copy(moved)
        return self._peers.checked(source.inner, known, moved, copy, part.remove)

    def _from_nas(self, wanted: Wanted) -> Source:
        with self._guard:  # archives are opened once for all
            return self._archives.source(wanted.source)


class Maker:
    """Makes files; several threads may call it. Counts bytes written, files copied and chunks mended."""

    def __init__(self, dst: str, copier: Copier, opener: Opener, draft: Draft, *, tight: bool = False) -> None:
        self._tight = tight  # there is no room for the new beside the old
        self._dst, self._copier, self._opener, self._draft = dst, copier, opener, draft
        self._guard = threading.Lock()
        self.written = self.copied = self.mended = 0
        self._unproven: list[str] = []  # files of which only the version of their source says what they are

    def forget(self, names: Collection[str]) -> None:
        """Remove what was made of a source that is another by now, where no digest proves what it is."""
        with Held(self._dst) as held:
            for name in sorted({*self._unproven} & {*names}):
                if folder.holds(self._dst, name):
                    held.unlink(name)

    def make(self, task: Task, small: memoryview) -> tuple[Record, stamps.Stamp]:
        """One file, on the disk when this returns; its record and the stamp of it."""
        wanted, part, mended = task.wanted, task.part, None
        path = f"{self._dst}/{wanted.name}"
        with self._guard, Held(self._dst) as held:
            folder.place(held, wanted.name)
        if task.do == DETACH:
            source: Source = FileSource(path, linked=True)
        else:
            source = self._opener(wanted)
            if task.apart and task.record is not None:
                source = mended = Mended(path, task.record, source)
        try:
            _check_size(wanted, source)
            overlap.refuse_file(path, wanted, mended=task.do == REPAIR)
            if task.reclaim and self._tight:
                with Held(self._dst) as held:
                    held.unlink(wanted.name)
            if task.do == REPAIR and task.record is not None and mended is None:
                part.adopt(task.record.chunks)
            sha256 = wanted.sha256 or (task.record.sha256 if task.record else "")

            def copy(moved: Moved) -> Copied:
                return self._copier._replace(moved=moved).fill(
                    part,
                    source,
                    small,
                    sha256=sha256,
                    sha1=wanted.sha1,
                    comparable=wanted.is_its_source,
                    right=right,
                )

            right = _right(task, self._copier.algorithm)
            known = sha256 or wanted.sha1
            copied = self._opener.checked(source, known, part, copy, self._copier.moved)
        except BaseException:
            if task.do == REPAIR:
                part.give_back()
            raise
        finally:
            source.close()
        algorithm = self._copier.algorithm
        identity, extents = wanted.identity, wanted.extents
        digests = (copied.sha256, copied.chunks, algorithm)
        record = Record(wanted.name, wanted.size, *digests, identity, extents, copied.ends)
        with self._guard:
            self._draft.add(record)  # before the rename: a kill in between finds a whole part, not an unknown file
            self.written += copied.written
            if not known and not right:
                self._unproven.append(wanted.name)
            self.copied += task.do != REPAIR
            if task.do == REPAIR:
                self.mended += copied.fetched if mended is None else mended.fetched
        part.finish()
        return record, stamps.of(os.lstat(path))


def _right(task: Task, algorithm: str) -> bytes:
    """The digests of the chunks of a file that is mended, or whose mending is resumed; b"" when nobody knows them."""
    if task.record is None or task.do == DETACH or task.record.digest != algorithm:
        return b""
    return task.record.chunks


class Mended:
    """A damaged file as a source: its good chunks from where it lies, the others from its own source."""

    def __init__(self, path: str, record: Record, source: Source) -> None:
        self.path, self.size = source.path, source.size
        self._record, self._source, self.fetched = record, source, 0
        self._local = FileSource(path)
        self._digest = digest.function(record.digest)
        self._shape = Shape(record.size, record.extents)
        self._chunk, self._holds, self._right = memoryview(bytearray(CHUNK)), -1, False

    def read(self, view: memoryview, offset: int) -> int:
        """Fill `view`, which lies within one chunk, from `offset`."""
        index = offset // CHUNK
        if index != self._holds:
            with self._chunk[: self._shape.length(index)] as whole:
                got = self._local.read(whole, index * CHUNK)
                right = got == len(whole) and self._digest is not None
                self._right = right and self._digest(whole) == self._record.chunk(index)  # type: ignore[misc]
            self._holds = index
            self.fetched += not self._right
        if not self._right:
            return self._source.read(view, offset)
        first = offset - index * CHUNK
        view[:] = self._chunk[first : first + len(view)]
        return len(view)

    def check(self) -> None:
        """Of its own source."""
        self._source.check()

    def close(self) -> None:
        """Close both."""
        self._local.close()
        self._source.close()


def _check_size(wanted: Wanted, source: Source) -> None:
    if source.size != wanted.size:
        raise refusals.another_size(wanted, source.size)
