"""One command on a node: its output line by line, its stdin in pieces, an orderly end whatever happens meanwhile."""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections import deque
from collections.abc import Iterator
from types import TracebackType

from sparkbuild.core.errors import NodeError
from sparkbuild.core.interrupt import cancel
from sparkbuild.nodes.rpc.pieces import PIECE
from sparkbuild.nodes.ssh import failures
from sparkbuild.nodes.ssh.channel import Channel
from sparkbuild.nodes.ssh.link import Link
from sparkbuild.nodes.ssh.stream import BROKEN, hang_up

PULSE = 5.0  # seconds between two signs of life to an agent
PATIENCE = 60.0  # seconds without one until the agent ends itself: a dead link tells it nothing
_POLL = 0.2  # seconds between two looks whether the run was told to stop
FIRST = 60.0  # seconds until a command says its first line: a node that loads a model is slow, a login shell may hang
_TALK = 1 << 20  # bytes that a login shell may say before
_NOISE = 5  # lines of that which are kept
_EXIT = 10.0  # seconds an exit code may come later than the end of the output
_KEPT = 1 << 16  # bytes of stderr
_LONGEST = 64 << 20  # bytes of one line


class Exec:
    """A running command. Leaving the `with` block ends it: its stdin closes, and the agent ends with that.

    `final`: goes on though the run was told to stop.
    """

    def __init__(self, link: Link, command: str, *, final: bool = False) -> None:
        self.final = final
        self._link = link
        self._check()
        self.channel: Channel = link.session(command)
        self.channel.settimeout(_POLL)
        self._stderr = bytearray()
        # undrained, stderr would fill its window, and the command would wait for ever
        self._drain = threading.Thread(target=self._read_stderr, daemon=True)
        self._drain.start()
        self._rest = b""
        self.noise: deque[bytes] = deque(maxlen=_NOISE)  # what a login shell said before the command began

    def __enter__(self) -> Exec:  # noqa: PYI034 - Self is not in Python 3.10
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        hang_up(self.channel)

    def begin(self, mark: str, *, pulse: bool = False) -> str:
        """Read on to the line that begins with `mark`; the rest of that line, or "" when the output ended before.
        NodeError when it does not come within `FIRST` seconds, or too much comes before it. `pulse`: line ends are sent
        meanwhile, so that a command whose request a login shell has read learns that.
        """
        end = time.monotonic() + FIRST
        size = 0
        rest = b""
        while True:
            try:
                data = self.receive(until=min(end, time.monotonic() + PULSE))
            except TimeoutError:
                if time.monotonic() > end:
                    raise self._no_begin(f"nothing of the agent within {FIRST:.0f} s", rest) from None
                if pulse:
                    self.send(b"\n")
                continue
            size += len(data)
            *whole, rest = (rest + data).split(b"\n")
            for number, line in enumerate(whole):
                if line.startswith(mark.encode()):
                    self._rest = b"\n".join([*whole[number + 1 :], rest])
                    return line[len(mark) :].decode(errors="replace").strip()
                if line.strip():
                    self.noise.append(line[-200:])
            if not data:
                self.noise.extend([rest[-200:]] if rest.strip() else [])
                return ""
            if size > _TALK:
                raise self._no_begin(f"{size} bytes, and nothing of the agent", rest)

    def _no_begin(self, found: str, rest: bytes) -> NodeError:
        said = [repr(line.decode(errors="replace"))[1:-1] for line in (*self.noise, rest[-200:]) if line.strip()]
        return failures.no_begin(self._link.target, "\n".join([found, *(f"it says: {line}" for line in said)]))

    def lines(self) -> Iterator[bytes]:
        """Its output, line by line, until it ends. NodeError when the connection is lost before that."""
        pieces: list[bytes] = []
        size = 0
        while data := self.receive():
            *whole, rest = data.split(b"\n")
            for line in whole:
                yield b"".join((*pieces, line))
                pieces, size = [], 0
            if rest:
                pieces.append(rest)
                size += len(rest)
            if size > _LONGEST:
                raise failures.too_long(self._link.target, size)
        if pieces:
            yield b"".join(pieces)

    def line(self) -> bytes:
        """One line, and nothing of what follows it; b"" at the end."""
        line = bytearray()
        while len(line) < _LONGEST and (data := self.receive(1)):
            if data == b"\n":
                return bytes(line) or b" "
            line += data
        return bytes(line)

    def send(self, data: bytes) -> bool:
        """Write to its stdin; False when it does not read any more."""
        at = 0
        while at < len(data):
            try:
                size = self.channel.send(data[at : at + PIECE])
            except TimeoutError:
                self._check()
                continue
            except BROKEN:
                size = 0
            if size == 0:
                self._alive()
                return False
            at += size
        return True

    def end_input(self) -> None:
        """Nothing more will be sent."""
        with contextlib.suppress(*BROKEN):
            self.channel.shutdown_write()

    def code(self) -> int:
        """Its exit code, once its output is at its end; -1 when there is none (it was killed)."""
        end = time.monotonic() + _EXIT
        while not self.channel.exit_status_ready() and time.monotonic() < end:
            self._check()
            self._alive()
            self.channel.status_event.wait(_POLL)
        return self.channel.recv_exit_status() if self.channel.exit_status_ready() else -1

    def stderr(self) -> str:
        """The end of what it said there."""
        self._drain.join(timeout=1.0)
        return self._stderr.decode(errors="replace")

    def receive(self, size: int = 1 << 16, *, until: float = math.inf) -> bytes:
        """At most so many bytes; b"" at the end. TimeoutError when that time is over."""
        if self._rest:
            data, self._rest = self._rest[:size], self._rest[size:]
            return data
        while True:
            if time.monotonic() > until:
                raise TimeoutError
            try:
                data = self.channel.recv(size)
            except TimeoutError:
                self._check()
                continue
            if not data:
                self._check()
                self._alive()
            return data

    def _read_stderr(self) -> None:
        while True:
            try:
                data = self.channel.recv_stderr(1 << 14)
            except TimeoutError:
                continue
            except BROKEN:
                return
            if not data:
                return
            self._stderr += data
            del self._stderr[:-_KEPT]

    def _check(self) -> None:
        if not self.final:
            cancel.check()

    def lost(self) -> NodeError | None:
        """Why its connection is gone, if it is."""
        transport = self.channel.get_transport()
        return None if transport.is_active() else self._link.lost(transport.get_exception())

    def _alive(self) -> None:
        error = self.lost()
        if error is not None:
            raise error
