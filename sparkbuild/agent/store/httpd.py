"""A small HTTP server: GET and HEAD, one request for each connection, each in a thread of its own."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterable

_LONGEST = 16384  # bytes of a head
_TLS = 0x16  # the first byte of a ClientHello
_WORDS = {200: "OK", 206: "Partial Content", 400: "Bad Request", 404: "Not Found", 405: "Method Not Allowed",
          416: "Range Not Satisfiable"}  # fmt: skip


class Request:
    """A request whose head was read, and the way to answer it."""

    def __init__(self, caller: socket.socket, method: str, path: str, headers: dict[str, str]) -> None:
        self.caller = caller
        self.method = method
        self.path = path
        self.headers = headers

    def answer(self, status: int, headers: dict[str, str] | None = None, body: bytes = b"") -> None:
        """Send the whole answer; with HEAD all of it but the body."""
        self.head(status, {"Content-Length": str(len(body)), **(headers or {})})
        if self.method != "HEAD":
            self.caller.sendall(body)

    def head(self, status: int, headers: dict[str, str]) -> None:
        """Send the head of an answer."""
        lines = [f"HTTP/1.1 {status} {_WORDS[status]}", *(f"{name}: {value}" for name, value in headers.items())]
        # dockerd keeps connections open for later, and who carries them would wait for their end
        self.caller.sendall("\r\n".join([*lines, "Connection: close", "", ""]).encode())

    def span(self, size: int) -> tuple[int, int] | None:
        """The bytes that are asked for, (start, end), of `size`; None when there are no such (RFC 9110, 14.1.2)."""
        text = self.headers.get("range", "")
        if not text.startswith("bytes=") or "," in text:
            return 0, size
        first, _, last = text[6:].partition("-")
        if not first.isdecimal() or (last and not last.isdecimal()) or len(text) > 48:  # int() refuses 5,000 digits
            return 0, size
        start, end = int(first), min(size, int(last) + 1) if last else size
        return (start, end) if start < end else None

    def content(self, size: int, headers: dict[str, str]) -> tuple[int, int] | None:
        """Send the head for content of `size` bytes; which bytes are to follow, None when none are."""
        span = self.span(size)
        if span is None:
            self.answer(416, {"Content-Range": f"bytes */{size}"})
            return None
        start, end = span
        partial = self.headers.get("range", "").startswith("bytes=") and (start, end) != (0, size)
        headers = {"Content-Length": str(end - start), "Accept-Ranges": "bytes", **headers}
        if partial:
            headers["Content-Range"] = f"bytes {start}-{end - 1}/{size}"
        self.head(206 if partial else 200, headers)
        return None if self.method == "HEAD" else span


class Server:
    """Listens on free ports of the given IPv4 addresses until the process ends. `ports` by address. With a `limit`, who
    comes while so many are served is hung up on; `patience` in seconds is for a head, and for taking any of an answer.
    """

    def __init__(
        self, addresses: Iterable[str], handler: Callable[[Request], None], *, limit: int = 0, patience: float = 60.0
    ) -> None:
        self._handler = handler
        self._patience = patience
        self._slots = threading.Semaphore(limit) if limit else None
        self.ports: dict[str, int] = {}
        for address in addresses:
            with contextlib.suppress(OSError):  # an address that went away is not listened on: the caller sees that
                listener = socket.create_server((address, 0), backlog=64)
                self.ports[address] = listener.getsockname()[1]
                threading.Thread(target=self._accept, args=(listener,), daemon=True).start()

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                caller, _ = listener.accept()
            except OSError:
                return
            if self._slots is not None and not self._slots.acquire(blocking=False):
                caller.close()
                continue
            threading.Thread(target=self._serve, args=(caller,), daemon=True).start()

    def _serve(self, caller: socket.socket) -> None:
        try:
            self._answer(caller)
        finally:
            if self._slots is not None:
                self._slots.release()

    def _answer(self, caller: socket.socket) -> None:
        with caller, contextlib.suppress(OSError):  # who hangs up asks again
            caller.settimeout(self._patience)
            caller.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if caller.recv(1, socket.MSG_PEEK)[:1] == bytes([_TLS]):
                # dockerd tries TLS first: to say in plain HTTP that it is not spoken here lets it go on without
                Request(caller, "GET", "", {}).answer(400, body=b"plain HTTP only\n")
                return
            request = _read(caller, self._patience)
            if request is not None:
                # a socket with a time limit does not block: sendfile must be able to wait
                caller.setblocking(True)
                caller.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _timeval(self._patience))
                self._handler(request)


def _read(caller: socket.socket, patience: float) -> Request | None:
    data, end = b"", time.monotonic() + patience
    while b"\r\n\r\n" not in data:
        block = caller.recv(4096)
        data += block
        if not block or len(data) > _LONGEST or time.monotonic() > end:
            return None
    first, *lines = data.partition(b"\r\n\r\n")[0].decode("latin-1").split("\r\n")
    method, _, rest = first.partition(" ")
    headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    request = Request(caller, method, rest.partition(" ")[0], headers)
    if method not in {"GET", "HEAD"}:
        request.answer(405)
        return None
    return request


def _timeval(seconds: float) -> bytes:
    return struct.pack("@ll", int(seconds), 0)
