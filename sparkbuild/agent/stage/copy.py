"""One file from a source into a `.part` that is whole and checked: copy, resume and repair are the same pass.

A big file has three threads and two to four reused buffers of 4 MiB: one reads, the caller's digests and writes, one
takes the hashes of the whole, so that hashing costs no time beside the disk. A small one is done in one go. Chunks that
are already right in the `.part` (after a kill, or because the file is only being repaired) are read there instead of
from the source; of a sparse file nothing but the chunks with data is looked at.
"""

from __future__ import annotations

import threading
from queue import SimpleQueue
from typing import Any, NamedTuple

from sparkbuild.agent.disk.pages import Pages, make_hole, reserve
from sparkbuild.agent.ledger import digest
from sparkbuild.agent.ledger.content import Hashes, Moved, stray_chunks
from sparkbuild.agent.ledger.digest import CHUNK, WIDTH
from sparkbuild.agent.ledger.part import Part
from sparkbuild.agent.source.source import Source
from sparkbuild.agent.stage import refusals
from sparkbuild.agent.stage.streams import SMALL, Buffers, Stopped
from sparkbuild.agent.wire.protocol import AgentError


class Copied(NamedTuple):
    """What came of it: sha256 in hex, the chunk digests and those of its ends, chunks and bytes that had to come from
    the source.
    """

    sha256: str
    chunks: bytes
    ends: bytes
    fetched: int
    written: int


class Copier(NamedTuple):
    """What every copy of one call has in common. `small` files go through a buffer of the caller's."""

    algorithm: str
    buffers: Buffers
    stop: threading.Event
    moved: Moved

    def fill(
        self,
        part: Part,
        source: Source,
        small: memoryview,
        *,
        sha256: str = "",
        sha1: str = "",
        comparable: bool = True,
        right: bytes = b"",
    ) -> Copied:
        """Make the `.part` whole, on the disk when this returns; it still has to be renamed.

        `sha256` and git `sha1` in hex, or "" when they are not known beforehand. `comparable`: they are those of the
        file at the path of the source too. `right`: the digest of each chunk, where a file is mended.
        Raises AgentError kind integrity, after removing the part, when the content is another one or the source
        changed; with `right` nothing gets into the part that is not right, so that it is kept then. Stopped, and errors
        of reading, with the part kept; OSError as it comes (ENOSPC before anything was copied).
        """
        shape = part.shape
        try:
            with part.opened() as pages:
                reserve(pages.fd, shape.size, shape.blocks())
                if part.resumable:
                    for index in stray_chunks(pages, shape, self.moved):
                        make_hole(pages.fd, index * CHUNK, index * CHUNK + shape.length(index))
                work = _Pass(self, part, pages, source, right, sha1=bool(sha1))
                copied, found1 = work.run(small)
                for what, got, wanted in (("sha256", copied.sha256, sha256), ("git sha1", found1, sha1)):
                    if wanted and got != wanted:
                        part.remove()
                        raise refusals.another_content(
                            part, source, f"{what} {got}", f"{what} {wanted}", comparable=comparable
                        )
        except AgentError as error:
            if (error.fields["kind"] == "integrity" and not right) or part.empty():
                part.remove()
            raise
        except (OSError, Stopped) as error:
            if part.empty():
                part.remove()  # what a failed reservation took is given back
            if isinstance(error, OSError):
                error.filename = error.filename or part.path
            raise
        return copied


class _Pass:
    """One pass over one file."""

    def __init__(self, copier: Copier, part: Part, pages: Pages, source: Source, right: bytes, *, sha1: bool) -> None:
        function = digest.function(copier.algorithm)
        if function is None:
            raise ValueError(f"no {copier.algorithm} in this python")
        self._digest, self._part, self._pages, self._source, self._right = function, part, pages, source, right
        self._hashes = Hashes(part.shape, function, sha1=sha1)
        self._copier, self._shape = copier, part.shape
        self._chunks = self._shape.blank(copier.algorithm)
        self._fetched = self._written = 0
        self._free: SimpleQueue[memoryview | None] = SimpleQueue()
        self._full: SimpleQueue[Any] = SimpleQueue()
        self._hash: SimpleQueue[tuple[memoryview, int] | None] = SimpleQueue()

    def run(self, small: memoryview) -> tuple[Copied, str]:
        """(what came of it, the git sha1 when it was asked for)."""
        shape = self._shape
        if shape.size <= SMALL:
            self._at_once(small)
        else:
            chunks = sum(1 for _ in shape.with_data())
            with self._copier.buffers.some(chunks, shape.size) as buffers:
                if chunks > 1:
                    self._in_threads(buffers)
                elif chunks:
                    self._at_once(buffers[0])
                else:
                    self._source.check()
        hashes = self._hashes
        digests = (hashes.sha256.hexdigest(), bytes(self._chunks), bytes(hashes.ends))
        return Copied(*digests, self._fetched, self._written), hashes.hex1()

    def _at_once(self, buffer: memoryview) -> None:
        for index in self._shape.with_data():  # one at most
            with buffer[: self._shape.length(index)] as view:
                self._store(index, view, self._get(index, view))
                self._hashes.update(index, view)
        self._source.check()
        self._pages.settle()

    def _in_threads(self, buffers: list[memoryview]) -> None:
        for buffer in buffers:
            self._free.put(buffer)
        reader = threading.Thread(target=self._read, daemon=True)
        hasher = threading.Thread(target=self._hash_all, daemon=True)
        reader.start()
        hasher.start()
        try:
            while (item := self._full.get()) is not None:
                if isinstance(item, BaseException):
                    raise item
                buffer, index, value = item
                with buffer[: self._shape.length(index)] as view:
                    self._store(index, view, value)
                self._hash.put((buffer, index))
            self._pages.settle()  # while the last buffers are still being hashed
        finally:  # both threads end before the descriptors they use are closed
            self._free.put(None)
            self._hash.put(None)
            reader.join()
            hasher.join()

    def _store(self, index: int, view: memoryview, value: bytes | None) -> None:
        written = 0  # what was right in the part is no progress, and is told all the same: somebody waits for a sign
        if value is None:
            value, first, written = self._digest(view), index * CHUNK, self._shape.weight(index)
            if self._right and value != self._right[index * WIDTH : (index + 1) * WIDTH]:
                raise refusals.no_better(self._part, self._source, index, self._shape.chunks)
            at, end = first, first + len(view)
            for low, high in (*self._shape.blocks(index), (end, end)):
                if at < low and self._part.resumable:  # a new part has nothing there
                    make_hole(self._pages.fd, at, low)
                if low < high:
                    with view[low - first : high - first] as piece:
                        self._pages.write(piece, low)
                at = high
            self._part.note(index, value)
            self._fetched, self._written = self._fetched + 1, self._written + written
        self._chunks[index * WIDTH : (index + 1) * WIDTH] = value
        self._copier.moved(written)

    def _read(self) -> None:
        try:
            for index in self._shape.with_data():
                buffer = self._free.get()
                if buffer is None:
                    return
                with buffer[: self._shape.length(index)] as view:
                    value = self._get(index, view)
                self._full.put((buffer, index, value))
            self._source.check()
            self._full.put(None)
        except BaseException as error:  # noqa: BLE001 - raised again in the main thread
            self._full.put(error)

    def _get(self, index: int, view: memoryview) -> bytes | None:
        """Have `view` hold the chunk: from the part, and then its digest is returned, or from the source."""
        if self._copier.stop.is_set():
            raise Stopped
        value = self._kept(index, view)
        if value is None:
            fetch(self._part.title, self._source, self._shape.pieces(index), index, view, again=self._part.again)
        return value

    def _kept(self, index: int, view: memoryview) -> bytes | None:
        """The digest of a chunk that is in the part already. Believed only by reading it."""
        known = self._part.known(index)
        if known is None or self._pages.read(view, index * CHUNK) != len(view) or self._digest(view) != known:
            return None
        return known

    def _hash_all(self) -> None:
        while (item := self._hash.get()) is not None:
            buffer, index = item
            with buffer[: self._shape.length(index)] as view:
                self._hashes.update(index, view)
            self._free.put(buffer)


_ZEROS = bytes(1 << 16)


def fetch(
    title: str, source: Source, pieces: list[tuple[int, int]], index: int, view: memoryview, *, again: str = ""
) -> None:
    """Fill `view` with one chunk out of the source, zeros where it has no data. Raises AgentError for an early end;
    `title` is what it calls the file, `again` how to fetch the source anew.
    """
    first, at = index * CHUNK, 0
    for low, high in pieces:
        _blank(view, at, low - first)
        with view[low - first : high - first] as piece:
            if source.read(piece, low) != len(piece):
                raise refusals.too_short(title, source, high, again)
        at = high - first
    _blank(view, at, len(view))


def _blank(view: memoryview, first: int, end: int) -> None:
    for start in range(first, end, len(_ZEROS)):
        size = min(len(_ZEROS), end - start)
        view[start : start + size] = _ZEROS[:size]
