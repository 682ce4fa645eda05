"""One HTTP request over a socket, docker's or an engine's: its status, and its body as it comes. http.client costs more
than most looks.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress

_BLOCK = 65536
_PODMAN = "libpod/"  # as it begins its header `Server`, where docker has `Docker/28.5.2 (linux)`
_LONGEST_LINE = 65536  # of a head or a chunk's size


class NotDockerError(OSError):
    """Another engine answers on the socket; its name and version are the text."""


class Answer:
    """An answer of docker whose head is read. Errors, while its body is read too: OSError (TimeoutError and
    NotDockerError among them), and ValueError for what is not HTTP or ends early. Close it, or use it in a `with`.

    `path` is that of a unix socket, or (host, port). `timeout` is for the head, and for the whole body unless `patient`
    is called: then the body may take for ever. `content` goes with the request: JSON, or pieces of a tar of `size`
    bytes, which may take their time; so do `headers`.
    """

    def __init__(
        self,
        path: str | tuple[str, int],
        target: str,
        timeout: float,
        *,
        method: str = "GET",
        content: bytes | Iterable[bytes] = b"",
        size: int = 0,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self._end: float | None = time.monotonic() + timeout
        self._data = bytearray()
        self._socket: socket.socket
        if isinstance(path, str):
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        else:
            self._socket = socket.create_connection(path, timeout)
        try:
            self._socket.settimeout(timeout)
            if isinstance(path, str):
                self._socket.connect(path)
            head = f"{method} {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
            if method != "GET":
                kind, size = ("json", len(content)) if isinstance(content, bytes) else ("x-tar", size)
                head += f"Content-Type: application/{kind}\r\nContent-Length: {size}\r\n"
            head += "".join(f"{name}: {value}\r\n" for name, value in (headers or {}).items())
            self._send(f"{head}\r\n".encode(), content)
            self.status, self.headers = self._head()
            self._refuse_podman()
        except BaseException:
            self._socket.close()
            raise

    def __enter__(self) -> Answer:  # noqa: PYI034 - Self is not in 3.10
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Hang up, in the middle of the body or after it."""
        self._socket.close()

    def hang_up(self) -> None:
        """From another thread: who reads the body finds that it ends."""
        with suppress(OSError):
            self._socket.shutdown(2)  # SHUT_RDWR

    def patient(self) -> None:
        """From here on, wait as long as it takes: the body goes on while something lives."""
        self._end = None
        self._socket.settimeout(None)

    def body(self, limit: int) -> bytes:
        """The whole body; ValueError when it is longer than `limit` bytes."""
        content = bytearray()
        for block in self.blocks():
            content += block
            if len(content) > limit:
                raise ValueError(f"an answer of more than {limit} bytes")
        return bytes(content)

    def blocks(self) -> Iterator[bytes]:
        """The body piece by piece, without the marks of chunks (RFC 9112, section 7.1)."""
        if "chunked" in self.headers.get("transfer-encoding", "").lower():
            while size := _number(self._line().partition(b";")[0], 16):
                yield from self._exactly(size)
                self._line()  # the end of the chunk
            return
        length = self.headers.get("content-length")
        if length is not None:
            yield from self._exactly(_number(length.encode(), 10))
            return
        while self._data or self._more():
            yield self._take(len(self._data))

    def _refuse_podman(self) -> None:
        server = self.headers.get("server", "")
        if server.lower().startswith(_PODMAN):
            raise NotDockerError(f"podman {server[len(_PODMAN) :].partition(' ')[0]}")

    def _send(self, head: bytes, content: bytes | Iterable[bytes]) -> None:
        if isinstance(content, bytes):
            self._socket.sendall(head + content)
            return
        self.patient()
        self._socket.sendall(head)
        try:
            for piece in content:
                self._socket.sendall(piece)
        except (BrokenPipeError, ConnectionResetError):
            return  # it takes no more, and says why in its answer

    def _head(self) -> tuple[int, dict[str, str]]:
        version, _, rest = self._line().partition(b" ")
        if not version.startswith(b"HTTP/1."):
            raise ValueError(f"no HTTP: {version[:40]!r}")
        headers: dict[str, str] = {}
        while line := self._line():
            name, _, value = line.decode("latin-1").partition(":")
            headers[name.strip().lower()] = value.strip()
            if len(headers) > 200:
                raise ValueError("a head without an end")
        return _number(rest[:3], 10), headers

    def _line(self) -> bytes:
        while (end := self._data.find(b"\n")) < 0:
            if len(self._data) > _LONGEST_LINE:
                raise ValueError("a line without an end")
            if not self._more():
                raise ValueError("the answer ends early")
        return self._take(end + 1).rstrip(b"\r\n")

    def _exactly(self, size: int) -> Iterator[bytes]:
        while size:
            if not self._data and not self._more():
                raise ValueError("the answer ends early")
            block = self._take(min(size, len(self._data)))
            size -= len(block)
            yield block

    def _take(self, count: int) -> bytes:
        block = bytes(self._data[:count])
        del self._data[:count]
        return block

    def _more(self) -> bool:
        if self._end is not None:
            left = self._end - time.monotonic()
            if left <= 0:
                raise TimeoutError("timed out")
            self._socket.settimeout(left)
        block = self._socket.recv(_BLOCK)
        self._data += block
        return bool(block)


def _number(text: bytes, base: int) -> int:
    text = text.strip()
    # int() would also take "-1", "1_0" and "0x10"
    if not text or len(text) > 16 or not all(char in b"0123456789abcdefABCDEF" for char in text):
        raise ValueError(f"no number: {text[:40]!r}")
    return int(text, base)
