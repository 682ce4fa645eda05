"""Give the files of a staged folder to other nodes, also while they arrive here.

HTTP/1.1: `GET /<token>/<quoted name>`, with `Range: bytes=N-` from byte N on. A header `Wanted: <size> <sha256 or ->
<mark or ->` says which content is meant (see offer.mark): another one of that name is not given. The answer is sent in
frames, so that a giver that waits is told from one that is dead: 4 bytes, big-endian, with the length of what follows;
0 is a beat, sent at least each second while there is nothing to send; 0xffffffff is the end of an answer that does not
go on, for whatever reason, and 0xfffffffe that of one which does not since who stages here waits for another node
itself, perhaps for who asks: two operators may have begun at either end. A frame is one chunk of 4 MiB of the file, or
the rest of it. `GET /<token>/<name>?sha256` answers in a frame of 64 hex digits, once the file is whole. 404: it is not
here, and nobody is bringing it.
"""

from __future__ import annotations

import hmac
import queue
import socket
import struct
import time
from typing import TYPE_CHECKING
from urllib.parse import unquote_to_bytes

from sparkbuild.agent.disk.files import inside
from sparkbuild.agent.ledger.digest import CHUNK
from sparkbuild.agent.ledger.ledger import safe_name
from sparkbuild.agent.peers.offer import GRACE, Offer, Want
from sparkbuild.agent.store.httpd import Request, Server
from sparkbuild.agent.wire.protocol import Reporter

if TYPE_CHECKING:
    from sparkbuild.agent.wire.staging.peers import GiveRequest
    from sparkbuild.agent.wire.verbs import Endless

CALLERS = 32  # at once
BEAT = 1.0  # seconds between two signs of life
FRAME = 60.0  # seconds that a caller may take for one frame
GONE, WAITS = 0xFFFFFFFF, 0xFFFFFFFE
_BUFFERS = 6  # of 4 MiB, for all callers: the agent has to stay under 64 MiB
_PATIENCE = 15.0  # seconds for a head, and for taking any of an answer
_LOOKS = (0.02, 0.1)  # seconds between two looks: in the first second, and later
_PIECE = 256 << 10


def run(request: GiveRequest, reporter: Reporter) -> Endless:
    """Emits {"event": "serving", "ports": {address: port}}, then beats until stdin closes."""
    dst = inside(request.get("store", ""), request["dst"])
    offer = Offer(dst, request.get("key", ""), expected=request.get("expected", False))
    door = Door(offer, request["token"])
    server = Server(request["listen"], door.answer, limit=CALLERS, patience=_PATIENCE)
    reporter.emit("serving", ports=server.ports)
    while True:  # ends with stdin
        time.sleep(0.2)
        reporter.emit("beat")


class Door:
    """Gives to whoever knows the token."""

    def __init__(self, offer: Offer, token: str) -> None:
        self._offer = offer
        self._path = f"/{token}/".encode()
        self._buffers: queue.SimpleQueue[memoryview | None] = queue.SimpleQueue()
        for _ in range(_BUFFERS):
            self._buffers.put(None)  # made when first used

    def answer(self, request: Request) -> None:
        """One request; OSError when the caller does not take the answer."""
        path = request.path.encode("latin-1")
        name = _unquoted(path[len(self._path) :].partition(b"?")[0])
        known = hmac.compare_digest(path[: len(self._path)], self._path)
        if not known or not safe_name(name) or request.method != "GET":
            request.answer(404)
            return
        want = _want(request.headers.get("wanted", ""))
        if want is None and "wanted" in request.headers:
            request.answer(400)
            return
        if want is None:
            record = self._offer.record(name, None)
            if record is None:
                request.answer(404)
                return
            want = Want(record.size, record.sha256, "")
        if not self._offer.has(name, want) and not self._offer.coming():
            request.answer(404)
            return
        sender = _Sender(request.caller)
        if path.endswith(b"?sha256"):
            request.head(200, {"Content-Type": "application/x-sparkbuild-frames"})
            self._sha256(sender, name, want)
            return
        start = _start(request.headers.get("range", ""), want.size)
        if start is None:
            request.answer(416, {"Content-Range": f"bytes */{want.size}"})
            return
        request.head(206 if start else 200, {"Content-Type": "application/x-sparkbuild-frames"})
        self._file(sender, name, want, start)

    def _sha256(self, sender: _Sender, name: str, want: Want) -> None:
        while True:
            coming = self._offer.coming()
            record = self._offer.record(name, want)
            if record is not None:
                sender.frame(record.sha256.encode())
                return
            if not coming:
                sender.gone()
                return
            sender.wait()

    def _file(self, sender: _Sender, name: str, want: Want, offset: int) -> None:
        inode, right = 0, time.monotonic()
        while offset < want.size:
            index = offset // CHUNK
            coming = self._offer.coming()  # asked before the look: what comes in between is found by it
            buffer = self._buffer(sender)
            try:
                length = min(CHUNK, want.size - index * CHUNK)
                got, made_of = self._offer.chunk(name, want, index, buffer[:length])
                if got >= 0:
                    right = time.monotonic()
                elif time.monotonic() - right > GRACE:
                    coming = False  # nobody mends it
                if got > 0:
                    if inode not in (0, made_of) and not (want.sha256 or want.mark):
                        got, coming = 0, False  # another try, perhaps of something else
                    else:
                        sender.frame(buffer[offset - index * CHUNK : length])
                        inode, offset = made_of, (index + 1) * CHUNK
            finally:
                self._buffers.put(buffer)
            if got <= 0:
                if not coming:
                    sender.gone(waits=self._offer.waits)
                    return
                sender.wait()

    def _buffer(self, sender: _Sender) -> memoryview:
        while True:
            try:
                return self._buffers.get(timeout=BEAT) or memoryview(bytearray(CHUNK))
            except queue.Empty:
                sender.beat()


class _Sender:
    """Frames on their way to one caller."""

    def __init__(self, caller: socket.socket) -> None:
        self._caller = caller
        self._last = self._moved = time.monotonic()

    def frame(self, data: bytes | memoryview) -> None:
        self._send(struct.pack(">I", len(data)))
        self._send(data)
        self._moved = time.monotonic()

    def gone(self, *, waits: bool = False) -> None:
        self._send(struct.pack(">I", WAITS if waits else GONE))

    def beat(self) -> None:
        self._send(bytes(4))

    def wait(self) -> None:
        """Until it is worth another look."""
        now = time.monotonic()
        if now - self._last >= BEAT * 0.8:
            self.beat()
        time.sleep(_LOOKS[now - self._moved > 1.0])

    def _send(self, data: bytes | memoryview) -> None:
        end = time.monotonic() + FRAME
        with memoryview(data) as view:
            sent = 0
            while sent < len(view):
                sent += self._caller.send(view[sent : sent + _PIECE])
                if time.monotonic() > end:
                    raise TimeoutError("the caller is too slow")
        self._last = time.monotonic()


def _unquoted(path: bytes) -> str:
    return unquote_to_bytes(path).decode(errors="replace").replace("\ufffd", "\0")  # \0: no name of a file


def _want(text: str) -> Want | None:
    size, _, rest = text.partition(" ")
    sha256, _, mark = rest.partition(" ")
    if not size.isdecimal() or len(size) > 18 or not sha256 or not mark:
        return None
    return Want(int(size), sha256.replace("-", ""), mark.replace("-", ""))


def _start(text: str, size: int) -> int | None:
    """The first byte that is asked for; None when there is no such."""
    if not text:
        return 0
    first = text.removeprefix("bytes=").removesuffix("-")
    if text != f"bytes={first}-" or not first.isdecimal() or len(first) > 18 or int(first) > size:
        return None
    return int(first)
