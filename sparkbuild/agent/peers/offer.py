"""What a staged folder has of a file for other nodes, chunk by chunk: whole under its name, or as it arrives.

No chunk is offered that does not have its digest: of a whole file that of its record, of a part that of its list.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from sparkbuild.agent.disk.pages import Pages
from sparkbuild.agent.ledger import digest, folder, ledger
from sparkbuild.agent.ledger.digest import CHUNK, WIDTH
from sparkbuild.agent.ledger.draft import Draft
from sparkbuild.agent.ledger.ledger import Identity, Record
from sparkbuild.agent.ledger.part import stem
from sparkbuild.agent.ledger.stamps import TICK
from sparkbuild.agent.wire.layout import DRAFT_FILE, LOCK, OURS

GRACE = 2.0  # seconds without anybody at work in the folder, after which nothing more comes
PENDING = 3600.0  # seconds in which announced work may begin: it may wait for its turn, and its plan comes first
AWAITED = (5.0, 8.0)  # seconds between which work may change nothing that itself waits for another node: two may wait
# for each other, and which of them ends it is left to chance, so that the other one still takes from it
QUIET = 120.0  # seconds in which work may change nothing: what hangs is not waited for
_LOOK = 0.3  # seconds between two looks whether somebody is at work
_HEADER = 1 << 16  # bytes of a list's header, at most

_Key = tuple[int, int, int]
_ABSENT: _Key = (0, 0, 0)


class Want(NamedTuple):
    """What is asked for: size in bytes, sha256 in hex or "", `mark` of the identity."""

    size: int
    sha256: str
    mark: str


def mark(identity: Identity) -> str:
    """What two nodes compare to see that they mean the same content; "" for {}, of which nothing is known."""
    return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:32] if identity else ""


class Offer:
    """The files of one folder. `key` is that of its staging; `expected`: this staging is still to come, or at work."""

    def __init__(self, dst: str, key: str, *, expected: bool) -> None:
        self._dst, self._key, self._expected = dst, key, expected
        self._began = time.time() - TICK  # a file's time is that of the last tick
        self._start = self._moved = time.monotonic()
        self._held = self._start - GRACE
        self._looked, self._coming, self._seen, self._signs = 0.0, True, False, 0
        self.waits = False  # who is at work in the folder waits for another node
        self._lock = f"{dst}/{OURS}/{LOCK}"  # written by whoever begins to work there
        self._lock_before = _state(self._lock)
        self._awaited = AWAITED[0] + (AWAITED[1] - AWAITED[0]) * int.from_bytes(os.urandom(2), "big") / 65536
        self._guard = threading.Lock()
        self._records: dict[str, Record] = {}
        self._whole = ""  # the key of the ledger, when there is one
        self._read: tuple[_Key, _Key] | None = None
        self._again = 0.0

    def coming(self) -> bool:
        """Whether what is not there yet may still come: somebody is at work in the folder, or is about to be."""
        with self._guard:
            now = time.monotonic()
            if now - self._looked >= _LOOK:
                self._looked = now
                busy = bool(folder.busy(self._dst))
                signs = _signs(f"{self._dst}/{OURS}")
                if signs != self._signs or not self._seen:
                    self._signs, self._moved = signs, now
                # Work may come and go between two looks, before anybody asks for a file: its lock tells of it.
                begun = not self._seen and _state(self._lock) not in (self._lock_before, _ABSENT)
                if busy or begun:
                    self._held, self._seen = now, True
                announced = self._expected and not self._seen and now - self._start < PENDING
                self.waits = busy and folder.waits(self._dst)
                most = self._awaited if self.waits else QUIET
                at_work = now - self._held < GRACE and now - self._moved < most
                self._coming = at_work or announced
            return self._coming

    def record(self, name: str, want: Want | None) -> Record | None:
        """The record of a file that is whole, when it is the one that is wanted (None: whatever it is)."""
        with self._guard:
            self._refresh()
            record = self._records.get(name)
            whole = self._whole
        if record is None or record.extents or (want and record.size != want.size):
            return None
        if want is None or want.sha256 or want.mark:
            right = want is None or (record.sha256 == want.sha256 if want.sha256 else mark(record.source) == want.mark)
            return record if right else None
        with _opened(self._dst, name) as fd:  # nobody knew before what it is: so only what this very staging made
            fresh = fd >= 0 and (os.fstat(fd).st_ctime >= self._began if self._expected else whole == self._key)
            return record if fresh else None

    def has(self, name: str, want: Want) -> bool:
        """Whether any of it is there."""
        return self.record(name, want) is not None or bool(self._part(name, want)[0])

    def chunk(self, name: str, want: Want, index: int, view: memoryview) -> tuple[int, int]:
        """Read one chunk into `view`, as long as the chunk: (bytes, the inode they are of). 0 bytes when it is not
        there yet, -1 when it is not right in a file that should be whole.
        """
        record = self.record(name, want)
        if record is not None:
            with _opened(self._dst, name) as fd:
                if fd >= 0:  # else it is being mended
                    found = _chunk(fd, view, index, record.digest, record.chunk(index))
                    return found if found[0] else (-1, 0)
        algorithm, at = self._part(name, want)
        if not algorithm:
            return 0, 0
        with _opened(self._dst, f"{OURS}/{stem(name)}.chunks") as fd:
            value = os.pread(fd, WIDTH, at + index * WIDTH) if fd >= 0 else b""
        if len(value) != WIDTH or value == bytes(WIDTH):
            return 0, 0
        with _opened(self._dst, f"{OURS}/{stem(name)}.part") as fd:
            return _chunk(fd, view, index, algorithm, value)

    def _part(self, name: str, want: Want) -> tuple[str, int]:
        """(algorithm, length of the header) of the list of a part that is what is wanted, ("", 0) without one."""
        with _opened(self._dst, f"{OURS}/{stem(name)}.chunks") as fd:
            if fd < 0 or (not want.mark and os.fstat(fd).st_ctime < self._began):
                return "", 0
            line, end, _ = os.pread(fd, _HEADER, 0).partition(b"\n")
        try:
            header = json.loads(line) if end else {}
        except (ValueError, RecursionError):
            return "", 0
        if not isinstance(header, dict) or header.get("chunk") != CHUNK or header.get("extents"):
            return "", 0
        source = header.get("source")
        right = isinstance(source, dict) and mark(source) == want.mark and header.get("size") == want.size
        return (str(header.get("digest")), len(line) + 1) if right else ("", 0)

    def _refresh(self) -> None:
        now = time.monotonic()
        if now < self._again:
            return
        state = _state(ledger.path_of(self._dst)), _state(f"{self._dst}/{OURS}/{DRAFT_FILE}")
        if state == self._read:
            return
        try:
            made = ledger.read(self._dst)
        except (ledger.LedgerError, OSError):
            made = None
        drafted = Draft(self._dst).read()
        self._records = {**drafted, **{record.name: record for record in (made.files if made else ())}}
        self._whole = made.key if made else ""
        self._read = state
        done = time.monotonic()
        self._again = done + 5 * (done - now)  # the draft of many files grows with each of them


def _chunk(fd: int, view: memoryview, index: int, algorithm: str, value: bytes) -> tuple[int, int]:
    function = digest.function(algorithm)
    if fd < 0 or function is None or Pages(fd).read(view, index * CHUNK) != len(view) or function(view) != value:
        return 0, 0
    return len(view), os.fstat(fd).st_ino


@contextmanager
def _opened(dst: str, name: str) -> Iterator[int]:
    """A regular file below `dst` with no link on the way, or -1."""
    flags, fds = os.O_RDONLY | os.O_CLOEXEC, []
    try:
        fds.append(os.open(dst, flags | os.O_DIRECTORY))
        *steps, last = name.split("/")
        for step in steps:
            fds.append(os.open(step, flags | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=fds[-1]))
        fds.append(os.open(last, flags | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=fds[-1]))
        status = fds[-1] if stat.S_ISREG(os.fstat(fds[-1]).st_mode) else -1
    except (OSError, ValueError):
        status = -1
    try:
        yield status
    finally:
        for fd in reversed(fds):
            os.close(fd)


def _state(path: str) -> _Key:
    try:
        status = os.stat(path, follow_symlinks=False)
    except OSError:
        return _ABSENT
    return (status.st_ino, status.st_size, status.st_mtime_ns)


def _signs(ours: str) -> int:
    """When anything was last written by who stages. The lock says only that somebody is there, see `folder.waiting`."""
    try:
        with os.scandir(ours) as entries:
            others = (entry for entry in entries if entry.name != LOCK)
            return max((entry.stat(follow_symlinks=False).st_mtime_ns for entry in others), default=0)
    except OSError:
        return 0
