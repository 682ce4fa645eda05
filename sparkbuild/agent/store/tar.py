"""A tar that has the same bytes for the same content: names sorted, owner 0:0, one time, and its sha256."""

from __future__ import annotations

import hashlib
import io
import os
import tarfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import IO, Any

from sparkbuild.agent.disk.held import created

DIR, FILE, LINK = "dir", "file", "link"


@dataclass(frozen=True)
class Entry:
    """One name in a tar. `open` gives the `size` bytes of a file; `target` is the text of a link, followed by nobody
    here; `origin` is what brings it, for messages.
    """

    kind: str
    mode: int
    origin: str = ""
    size: int = 0
    target: str = ""
    open: Callable[[], IO[bytes]] = io.BytesIO


class Hashing:
    """Passes bytes on to a file, and knows their number and sha256. `grew` is told of the first with every write."""

    def __init__(self, file: IO[bytes], grew: Callable[[int], None] = lambda _size: None) -> None:
        self._file = file
        self._grew = grew
        self.size = 0
        self.digest = hashlib.sha256()

    def write(self, data: bytes) -> int:
        """See the class."""
        self.digest.update(data)
        self.size += len(data)
        self._grew(self.size)
        return self._file.write(data)


def opened(sink: Hashing) -> tarfile.TarFile:
    """A tar to be written. GNU format: the same bytes from every Python, and long names that docker reads."""
    archive: tarfile.TarFile = tarfile.open(  # type: ignore[call-overload]  # noqa: SIM115 - who calls closes it
        fileobj=sink, mode="w|", format=tarfile.GNU_FORMAT, errors="surrogateescape"
    )
    return archive


def info_of(name: str, entry: Entry, time: int) -> tarfile.TarInfo:
    """The header of an entry; `time` is in unix seconds."""
    info: Any = tarfile.TarInfo(name)  # owner 0:0 without names
    info.mode, info.mtime = entry.mode, time
    if entry.kind == DIR:
        info.type = tarfile.DIRTYPE
    elif entry.kind == LINK:
        info.type, info.linkname = tarfile.SYMTYPE, entry.target
    else:
        info.size = entry.size
    return info  # type: ignore[no-any-return]


def write(path: str, entries: Mapping[str, Entry], time: int, grew: Callable[[int], None]) -> Hashing:
    """Write the entries, all of one time, to a new file and flush it; the sha256 and the size of that."""
    with created(path) as file:
        sink = Hashing(file, grew)
        with opened(sink) as archive:
            for name in sorted(entries):
                entry = entries[name]
                with entry.open() as content:
                    archive.addfile(info_of(name, entry, time), content if entry.kind == FILE else None)
        file.flush()
        os.fsync(file.fileno())
    return sink
