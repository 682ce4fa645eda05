"""Sources whose bytes come from other nodes that have them, or are getting them, and from the NAS where none gives.

What comes from a peer is not believed: the sha256 of the whole file decides, the one that was known before, or the one
that the peer has in its records. A file that is wrong is fetched once more, from the NAS alone. How a peer answers is
told in give.py.
"""

from __future__ import annotations

import contextlib
import errno
import socket
import struct
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import quote

from sparkbuild.agent.disk.files import inside
from sparkbuild.agent.ledger import folder
from sparkbuild.agent.ledger.digest import CHUNK
from sparkbuild.agent.peers.give import FRAME, GONE, WAITS
from sparkbuild.agent.peers.offer import mark
from sparkbuild.agent.source.fileset import Wanted
from sparkbuild.agent.source.source import Source
from sparkbuild.agent.stage import refusals
from sparkbuild.agent.stage.copy import Copied
from sparkbuild.agent.wire.protocol import AgentError

if TYPE_CHECKING:
    from sparkbuild.agent.wire.staging.staged import StageRequest

CONNECT = 3.0  # seconds for a peer to answer at all
STALL = 5.0  # seconds without a byte, not even a beat
SMALL = 1 << 20  # bytes; what is smaller costs the NAS less than it costs to ask
TIRED = 3  # failures in a row after which a peer is left alone for the rest of a call
_HEAD = 8192  # bytes

Moved = Callable[[int], None]


class Peer:
    """Where one node gives. `failures` in a row; those of several files at the same moment are one."""

    def __init__(self, host: str, port: int) -> None:
        self.place, self.name = (host, port), f"{host}:{port}"
        self.failures, self.failed_at = 0, 0.0


class Peers:
    """The peers of one call, the best first; for several files at once. `received`: bytes that came from them. `told`
    is given a line for the log when one fails; `halt` is called while one is waited for, and may raise; `waiting` at
    each beat of one that has nothing to give yet.
    """

    def __init__(
        self,
        token: str,
        peers: list[Peer],
        log: Callable[[str], None],
        halt: Callable[[], None],
        waiting: Callable[[], None],
    ) -> None:
        self.token, self.halt, self.waiting = token, halt, waiting
        self.received = 0
        self._peers, self._told, self._guard = peers, log, threading.Lock()

    def usable(self) -> list[Peer]:
        """Those that are worth asking."""
        return [peer for peer in self._peers if peer.failures < TIRED]

    def failed(self, peer: Peer, title: str, problem: str, since: float, *, waits: bool = False) -> None:
        """Keep in mind that a peer did not give a file that it was asked for at `since`. One that `waits` for others
        itself is not asked again: it may wait for us.
        """
        with self._guard:
            counts = since >= peer.failed_at
            if counts:
                peer.failures, peer.failed_at = TIRED if waits else peer.failures + 1, time.monotonic()
            left = counts and peer.failures == TIRED
        self._told(f"{peer.name} does not give {title}: {problem}" + ("; it is not asked again" if left else ""))

    def gave(self, peer: Peer) -> None:
        """A peer gave all that was asked of it."""
        with self._guard:
            peer.failures = 0

    def add(self, count: int) -> None:
        """Bytes came from a peer."""
        with self._guard:
            self.received += count

    def source(self, wanted: Wanted, opened: Callable[[], Source]) -> Source:
        """The source of a wanted file: from the peers where that is worth it, else as `opened` opens it."""
        plain = wanted.source["kind"] != "file" or wanted.extents or wanted.size < SMALL
        return opened() if plain else PeerSource(wanted, self, opened)

    def checked(
        self, source: Source, digest: str, moved: Moved, copy: Callable[[Moved], Copied], forget: Callable[[], None]
    ) -> Copied:
        """`copy` of a source; once more, from the NAS alone, when peers gave something else than what was wanted.
        `digest` is the one that `copy` compares, "" when nobody knows any; `forget` removes what was copied.
        """
        if not isinstance(source, PeerSource):
            return copy(moved)
        passed = 0

        def counted(count: int) -> None:
            nonlocal passed
            passed += count
            moved(count)

        try:
            copied = copy(counted)
            if digest or source.confirms(copied.sha256):
                return copied
            source.distrust()
            forget()
        except AgentError as error:
            if error.fields["kind"] != "integrity" or not source.distrust():
                raise
        moved(-passed)
        return copy(moved)


def of_request(
    request: StageRequest, log: Callable[[str], None], halt: Callable[[], None] = lambda: None
) -> Peers | None:
    """The peers of a request, None without any."""
    asked = request.get("peers")
    if not asked or not asked["sources"]:
        return None
    peers = [Peer(giver["host"], giver["port"]) for giver in asked["sources"]]
    waiting = partial(folder.waiting, inside(request.get("store", ""), request["dst"]))
    return Peers(asked["token"], peers, log, halt, waiting)


class PeerSource:
    """One file; see source.Source. The NAS is opened when it is needed. `received` are the bytes that came from peers,
    `taken` those from the NAS.
    """

    def __init__(self, wanted: Wanted, peers: Peers, opened: Callable[[], Source]) -> None:
        self.path, self.size = wanted.path, wanted.size
        self.received = self.taken = 0
        self._wanted, self._peers, self._opened = wanted, peers, opened
        self._left = peers.usable()
        self._givers: list[Peer] = []  # whose bytes are in it
        self._stream: _Stream | None = None
        self._nas: Source | None = None
        self._again, self._since = False, 0.0

    def read(self, view: memoryview, offset: int) -> int:
        """Fill `view` from `offset`, from the first peer that gives, then from the NAS."""
        done = 0
        while done < len(view) and self._left:
            done += self._some(self._left[0], view[done:], offset + done)
        if done < len(view):
            got = self._fallback().read(view[done:], offset + done)
            self.taken += got
            done += got
        return done

    def check(self) -> None:
        """See Source; of the NAS, if it was read."""
        if self._nas is not None:
            self._nas.check()

    def close(self) -> None:
        """Hang up."""
        self._hang_up()
        if self._nas is not None:
            self._nas.close()

    def confirms(self, sha256: str) -> bool:
        """Whether a file that nobody knew a digest of is what one who has it whole says it is. Always, when all of it
        came from the NAS.
        """
        others = [peer for peer in self._peers.usable() if peer not in self._givers]
        return not self._givers or any(self._is(peer, sha256) for peer in (*reversed(self._givers), *others))

    def distrust(self) -> bool:
        """Read the NAS alone from now on; False when that was done before."""
        self._hang_up()
        self._left, self._givers = [], []
        again, self._again = not self._again, True
        return again

    def _is(self, peer: Peer, sha256: str) -> bool:
        try:
            with contextlib.closing(_Stream(peer, self._peers, self._wanted, query="?sha256")) as stream:
                answer = memoryview(bytearray(64))
                return stream.read(answer) == len(answer) and bytes(answer) == sha256.encode()
        except OSError:
            return False

    def _some(self, peer: Peer, view: memoryview, offset: int) -> int:
        """As much as the peer gives. One that fails is not asked again for this file."""
        problem, got, waits = "", 0, False
        try:
            if self._stream is None or self._stream.at != offset:
                self._hang_up()
                self._since = time.monotonic()
                self._stream = _Stream(peer, self._peers, self._wanted, offset)
            got = self._stream.read(view)
            problem, waits = self._stream.problem, self._stream.waits
        except OSError as error:
            problem = error.strerror or str(error) or "no answer"
        if got:
            self.received += got
            self._peers.add(got)
            if peer not in self._givers:
                self._givers.append(peer)
        if got < len(view):
            self._hang_up()
            self._left.pop(0)
            self._peers.failed(peer, self._wanted.called, problem, self._since, waits=waits)
        elif offset + got == self.size:
            self._peers.gave(peer)
        return got

    def _hang_up(self) -> None:
        if self._stream is not None:
            self._stream.close()
            self._stream = None

    def _fallback(self) -> Source:
        if self._nas is None:
            nas = self._opened()
            if nas.size != self.size:
                nas.close()
                raise refusals.another_size(self._wanted, nas.size)
            self._nas = nas
        return self._nas


class _Stream:
    """One answer of a peer. `at`: the offset of the next byte; `problem`: why it gives no more. OSError when the peer
    does not answer, or not well.
    """

    def __init__(self, peer: Peer, peers: Peers, wanted: Wanted, offset: int = 0, query: str = "") -> None:
        self.at, self.problem, self.waits = offset, "", False
        self._halt, self._told_waiting = peers.halt, peers.waiting
        self._rest = 0  # of the frame
        self._call = socket.create_connection(peer.place, timeout=CONNECT)
        try:
            self._call.settimeout(STALL)
            self._call.sendall(_question(peers.token, wanted, offset, query))
            _answered(self._call)
        except BaseException:
            self._call.close()
            raise

    def read(self, view: memoryview) -> int:
        """Fill it, waiting while the peer beats; fewer bytes when it gives no more."""
        done, end = 0, 0.0
        try:
            while done < len(view):
                if self._rest == 0:
                    self._halt()
                    self._rest, end = self._frame(), 0.0
                    if not self._rest:
                        self._told_waiting()
                    continue
                end = end or time.monotonic() + FRAME
                got = self._some(view[done:], end)
                done, self._rest = done + got, self._rest - got
        except TimeoutError as error:
            self.problem = error.strerror or f"no sign of life for {STALL:.0f} s"
        except OSError as error:
            self.problem, self.waits = error.strerror or str(error), error.errno == errno.EDEADLK
        self.at += done
        return done

    def close(self) -> None:
        self._call.close()

    def _some(self, view: memoryview, end: float) -> int:
        got = self._call.recv_into(view[: self._rest])
        if not got:
            raise ConnectionError(errno.EPIPE, "it ended early")
        if time.monotonic() > end:
            raise TimeoutError(errno.ETIMEDOUT, "it is too slow")
        return got

    def _frame(self) -> int:
        head = bytearray()
        while len(head) < 4:
            got = self._call.recv(4 - len(head))
            if not got:
                raise ConnectionError(errno.EPIPE, "it ended early")
            head += got
        length = int(struct.unpack(">I", head)[0])
        if length == WAITS:
            raise ConnectionError(errno.EDEADLK, "it waits for another node itself")
        if length == GONE:
            raise ConnectionError(errno.ENODATA, "it gets no more of it")
        if length > CHUNK:
            raise ConnectionError(errno.EPROTO, "a frame that is too long")
        return length


def _question(token: str, wanted: Wanted, offset: int, query: str) -> bytes:
    want = f"{wanted.size} {wanted.sha256 or '-'} {mark(wanted.identity) or '-'}"
    lines = [f"GET /{token}/{quote(wanted.name)}{query} HTTP/1.1", "Host: peer", f"Wanted: {want}"]
    lines += [f"Range: bytes={offset}-"] if offset else []
    return "\r\n".join([*lines, "", ""]).encode()


def _answered(call: socket.socket) -> None:
    """Read the head of an answer that is to be given, byte by byte, since frames follow."""
    data, end = bytearray(), time.monotonic() + STALL
    while not data.endswith(b"\r\n\r\n"):
        byte = call.recv(1)
        if not byte or len(data) > _HEAD or time.monotonic() > end:
            raise ConnectionError(errno.EPROTO, "no answer in HTTP")
        data += byte
    status = data[9:12]
    if not data.startswith(b"HTTP/1.") or not status.isdigit():
        raise ConnectionError(errno.EPROTO, "no answer in HTTP")
    if int(status) not in {200, 206}:
        raise ConnectionError(
            errno.ENOENT, "it does not have it" if int(status) == 404 else f"it answers {int(status)}"
        )
