"""Receive one blob from whoever has it: resumed where an earlier try ended, its sha256 computed while it passes."""

from __future__ import annotations

import errno
import os
import socket
import time
from collections.abc import Callable
from contextlib import closing
from typing import Any

from sparkbuild.agent.disk.files import fsync_folder, keep_owner
from sparkbuild.agent.disk.lock import is_still, take
from sparkbuild.agent.store.blobs import PART, is_whole, path_of
from sparkbuild.agent.store.kept import resumed
from sparkbuild.agent.wire.protocol import AgentError, integrity_error

CONNECT = 3.0  # seconds for a source to answer at all
STALL = 5.0  # seconds without a byte until the next source is tried
PATIENCE = 45.0  # seconds without a byte from any of them until it is given up
_BLOCK = 1 << 20
_PAUSES = (0.1, 0.3, 1.0, 2.0)  # seconds between two rounds
_WRONG = 2  # times that a blob may arrive as something else


class Source:
    """Where blobs are given out: `ask` opens one from an offset on."""

    def __init__(self, host: str, port: int, token: str) -> None:
        self.name = f"{host}:{port}"
        self._place = (host, port)
        self._token = token

    def ask(self, sha256: str, offset: int, size: int) -> socket.socket | None:
        """A connection on which the bytes from `offset` to `size` follow; None when it does not have that blob. OSError
        when it does not answer, or not as it should.
        """
        call = socket.create_connection(self._place, timeout=CONNECT)
        try:
            call.settimeout(STALL)
            head = f"GET /{self._token}/{sha256} HTTP/1.1\r\nHost: relay\r\nRange: bytes={offset}-\r\n\r\n"
            call.sendall(head.encode())
            status, length = _head(call)
        except BaseException:
            call.close()
            raise
        if status not in {200, 206} or length != size - offset:
            call.close()
            if status == 404:
                return None
            raise ConnectionError(errno.EPROTO, f"{self.name} answers {status} with {length} bytes")
        return call


class Receiver:
    """Receives into one folder from the first of the sources that works. `grew` is told of every block."""

    def __init__(self, folder: str, sources: list[Source], grew: Callable[[int], None]) -> None:
        self._folder = folder
        self._sources = sources
        self._grew = grew
        self._problem = ""

    def receive(self, sha256: str, size: int) -> int:
        """Have the blob; returns the bytes that were received now. Somebody else who is at it is waited for. Errors:
        kind "node" when nobody gives it, "integrity" when what they give is something else.
        """
        path = path_of(self._folder, sha256)
        with os.fdopen(self._claim(path, sha256, size), "r+b", buffering=0) as file:
            if is_whole(self._folder, sha256, size):
                return 0
            received = self._fill(file, sha256, size)
            os.fdatasync(file.fileno())
            keep_owner(f"{path}{PART}")
            os.rename(f"{path}{PART}", path)
        fsync_folder(self._folder)
        return received

    def _claim(self, path: str, sha256: str, size: int) -> int:
        """The part, locked. It may get its name, or go away, while its lock is waited for."""
        while True:
            fd = os.open(f"{path}{PART}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
            take(fd)
            if is_whole(self._folder, sha256, size):
                if os.fstat(fd).st_nlink and os.fstat(fd).st_size == 0:
                    os.unlink(f"{path}{PART}")  # made just now, for a blob that is there
                return fd
            if is_still(fd, f"{path}{PART}"):
                return fd
            os.close(fd)

    def _fill(self, file: Any, sha256: str, size: int) -> int:
        received, wrong = 0, 0
        sources = list(self._sources)
        while True:
            digest, offset = resumed(file, size)
            self._grew(offset)
            received += self._rest(file, digest, sha256, offset, size, sources=sources)
            if digest.hexdigest() == sha256:
                return received
            wrong += 1
            file.truncate(0)
            self._grew(-size)
            if wrong >= _WRONG:
                raise integrity_error(
                    "a blob arrived as something else",
                    where=path_of(self._folder, sha256),
                    found=f"sha256 {digest.hexdigest()}, from {sources[-1].name}",
                    wanted=f"sha256 {sha256}",
                    next="run again: nothing of it was kept",
                )
            sources.reverse()  # the holder, which is last, is who must have it

    def _rest(self, file: Any, digest: Any, sha256: str, offset: int, size: int, *, sources: list[Source]) -> int:
        """Receive from `offset` to the end, from one source after the other; the bytes received."""
        start, moved, turn = offset, time.monotonic(), 0
        while offset < size:
            # after any gain, the best source first again
            gain = next(filter(None, (self._some(file, digest, sha256, offset, size, source) for source in sources)), 0)
            offset += gain
            if gain:
                moved, turn = time.monotonic(), 0
            elif time.monotonic() - moved > PATIENCE:
                raise AgentError(
                    "nobody gives a blob that is needed",
                    kind="node",
                    where=f"sha256 {sha256}",
                    found=f"{offset} of {size} bytes; {self._problem}",
                    next="run again: what has arrived is kept",
                )
            else:
                time.sleep(_PAUSES[min(turn, len(_PAUSES) - 1)])
                turn += 1
        return offset - start

    def _some(self, file: Any, digest: Any, sha256: str, offset: int, size: int, source: Source) -> int:  # noqa: PLR0917 - as above
        """As much as one source gives, in bytes."""
        start, buffer = offset, memoryview(bytearray(_BLOCK))
        try:
            call = source.ask(sha256, offset, size)
            if call is None:
                self._problem = f"{source.name} does not have it"
                return 0
            with closing(call):
                while offset < size and (count := call.recv_into(buffer[: size - offset])):
                    _write(file, buffer[:count])
                    digest.update(buffer[:count])
                    offset += count
                    self._grew(count)
            self._problem = f"{source.name} ended early"
        except _DiskError:
            raise
        except OSError as error:
            self._problem = f"{source.name}: {error.strerror or str(error) or 'no answer'}"
        return offset - start


class _DiskError(OSError):
    """What went wrong is the writing: no other source would help."""


def _write(file: Any, view: memoryview) -> None:
    try:
        while view:
            view = view[file.write(view) :]
    except OSError as error:
        raise _DiskError(error.errno, error.strerror, file.name) from None


def _head(call: socket.socket) -> tuple[int, int]:
    """Status and length of an answer; read byte by byte, since its body follows."""
    data = bytearray()
    while not data.endswith(b"\r\n\r\n"):
        byte = call.recv(1)
        if not byte or len(data) > 8192:
            raise ConnectionError(errno.EPROTO, "no answer in HTTP")
        data += byte
    first, *lines = data.decode("latin-1").split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    status, length = first[9:12], headers.get("content-length", "")
    if not first.startswith("HTTP/1.") or not status.isdecimal() or not length.isdecimal() or len(length) > 18:
        raise ConnectionError(errno.EPROTO, "no answer in HTTP")
    return int(status), int(length)
