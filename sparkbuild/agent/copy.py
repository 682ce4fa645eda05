"""One file from a source into a `.part` that is whole and checked: copy, resume and repair are the same pass.

Three threads with four reused buffers of 4 MiB: one reads, the main one digests and writes, one takes the sha256 of
the whole, so that hashing costs no time beside the disk. Chunks that are already right in the `.part` (after a kill,
or because the file is only being repaired) are read there instead of from the source.
"""

from __future__ import annotations

import hashlib
import os
import threading
from queue import SimpleQueue
from typing import Any, NamedTuple

from sparkbuild.agent import digest
from sparkbuild.agent.content import Moved
from sparkbuild.agent.digest import CHUNK
from sparkbuild.agent.files import fsync_folder
from sparkbuild.agent.pages import Pages, reserve
from sparkbuild.agent.part import Part
from sparkbuild.agent.protocol import AgentError
from sparkbuild.agent.sources import Source

_BUFFERS = 4  # more gain nothing, and the agent has to stay under 64 MiB


class Copied(NamedTuple):
    """What came of it: sha256 in hex, the chunk digests, chunks and bytes that had to come from the source."""

    sha256: str
    chunks: bytes
    fetched: int
    written: int


def fill(part: Part, source: Source, algorithm: str, sha256: str, moved: Moved) -> Copied:
    """Make the `.part` whole, on the disk when this returns; it still has to be renamed.

    `sha256` in hex, or "" when it is not known beforehand. Raises AgentError kind integrity, after removing the part,
    when the content is another one or the source changed; OSError as it comes (ENOSPC before anything was copied).
    """
    try:
        with part.opened() as pages:
            reserve(pages.fd, source.size)
            copied = _Pass(part, pages, source, algorithm, moved).run()
            if sha256:
                _compare(part, source, copied.sha256, sha256)
    except AgentError:
        part.remove()
        raise
    except OSError as error:
        if part.empty():
            part.remove()  # what a failed reservation took is given back
        error.filename = error.filename or part.path
        raise
    return copied


def _compare(part: Part, source: Source, found: str, wanted: str) -> None:
    if found != wanted:
        raise AgentError(
            f"{part.name} is not what was wanted",
            kind="integrity",
            where=source.path,
            found=f"sha256 {found}",
            wanted=f"sha256 {wanted}",
            next="find out which of the two changed; nothing of it was kept",
        )


class _Pass:
    """The threads of one pass over one file."""

    def __init__(self, part: Part, pages: Pages, source: Source, algorithm: str, moved: Moved) -> None:
        function = digest.function(algorithm)
        if function is None:
            raise ValueError(f"no {algorithm} in this python")
        self._digest, self._part, self._pages, self._source, self._moved = function, part, pages, source, moved
        self._whole = hashlib.sha256()
        self._free: SimpleQueue[memoryview | None] = SimpleQueue()
        self._full: SimpleQueue[Any] = SimpleQueue()
        self._hash: SimpleQueue[tuple[memoryview, int] | None] = SimpleQueue()

    def run(self) -> Copied:
        size = self._source.size
        for _ in range(min(_BUFFERS, digest.count(size))):
            self._free.put(memoryview(bytearray(min(CHUNK, size))))
        reader = threading.Thread(target=self._read, daemon=True)
        hasher = threading.Thread(target=self._hash_all, daemon=True)
        reader.start()
        hasher.start()
        chunks, fetched, written = bytearray(), 0, 0
        try:
            while (item := self._full.get()) is not None:
                if isinstance(item, BaseException):
                    raise item
                buffer, index, length, value = item
                if value is None:
                    with buffer[:length] as view:
                        value = self._digest(view)
                        self._pages.write(view, index * CHUNK)
                    self._part.note(index, value)
                    fetched, written = fetched + 1, written + length
                chunks += value
                self._hash.put((buffer, length))
                self._moved(length)
            self._pages.settle()  # while the last buffers are still being hashed
        finally:  # both threads end before the descriptors they use are closed
            self._free.put(None)
            self._hash.put(None)
            reader.join()
            hasher.join()
        return Copied(self._whole.hexdigest(), bytes(chunks), fetched, written)

    def _read(self) -> None:
        try:
            for index in range(digest.count(self._source.size)):
                buffer = self._free.get()
                if buffer is None:
                    return
                length = min(CHUNK, self._source.size - index * CHUNK)
                with buffer[:length] as view:
                    value = self._kept(index, view)
                    if value is None:
                        self._fetch(index, view)
                self._full.put((buffer, index, length, value))
            self._source.check()
            self._full.put(None)
        except BaseException as error:  # noqa: BLE001 - raised again in the main thread
            self._full.put(error)

    def _fetch(self, index: int, view: memoryview) -> None:
        if self._source.read(view, index * CHUNK) != len(view):
            raise AgentError(
                f"the source of {self._part.name} ends too soon",
                kind="integrity",
                where=self._source.path,
                found=f"an end before byte {index * CHUNK + len(view)}",
                wanted=f"{self._source.size} bytes",
            )

    def _kept(self, index: int, view: memoryview) -> bytes | None:
        """The digest of a chunk that is in the part already, with `view` holding it. Believed only by reading it."""
        known = self._part.known(index)
        if known is None or self._pages.read(view, index * CHUNK) != len(view) or self._digest(view) != known:
            return None
        return known

    def _hash_all(self) -> None:
        while (item := self._hash.get()) is not None:
            buffer, length = item
            with buffer[:length] as view:
                self._whole.update(view)
            self._free.put(buffer)


def rename_into(part: Part, path: str) -> None:
    """Give the whole part its final name; the folder is on the disk when this returns."""
    os.rename(part.path, path)
    fsync_folder(os.path.dirname(path))
    part.remove()
