"""A server on loopback that hands out files, with ranges, cuts connections when told to, and remembers who asked."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

_LINK = '<a href="/files/{0}">{0}</a>'


class CuttingServer(ThreadingHTTPServer):
    """`files` by name under /files/; a simple package index under /simple/ lists those of each project."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.files: dict[str, bytes] = {}
        self.cuts: list[int] = []  # for each coming request of a file: send so many bytes, then close
        self.ranges = True
        self.asked: list[str] = []  # the Range header of each request of a file, "" without
        self.hold: threading.Event | None = None  # wait for it before the second half of a file

    @property
    def url(self) -> str:
        """Its root."""
        return f"http://127.0.0.1:{self.server_address[1]}"

    def index(self) -> dict[str, str]:
        """Settings that make this server pip's one and only index."""
        empty = ("PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS", "PIP_TRUSTED_HOST")
        return {
            "PIP_CONFIG_FILE": "/dev/null",
            "PIP_INDEX_URL": f"{self.url}/simple/",
            "PIP_NO_CACHE_DIR": "1",
            "PIP_RETRIES": "0",
            **dict.fromkeys(empty, ""),
        }


class _Handler(BaseHTTPRequestHandler):
    server: CuttingServer

    def do_GET(self) -> None:
        kind, _, name = self.path.strip("/").partition("/")
        if kind == "simple":
            project = name.strip("/").replace("-", "_")
            links = [_LINK.format(file) for file in self.server.files if file.startswith(f"{project}-")]
            self._send("text/html", "".join(links).encode())
        elif name in self.server.files:
            self._file(self.server.files[name])
        else:
            self.send_error(404)

    def _send(self, kind: str, body: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _file(self, body: bytes) -> None:
        asked = self.headers.get("Range", "")
        self.server.asked.append(asked)
        match = re.fullmatch(r"bytes=(\d+)-", asked) if self.server.ranges else None
        start = int(match[1]) if match else 0
        if start >= len(body):
            self.send_error(416)
            return
        self.send_response(206 if match else 200)
        if match:
            self.send_header("Content-Range", f"bytes {start}-{len(body) - 1}/{len(body)}")
        rest = body[start:]
        self.send_header("Content-Length", str(len(rest)))
        self.end_headers()
        if self.server.cuts:
            rest = rest[: self.server.cuts.pop(0)]
        half = len(rest) // 2 if self.server.hold else len(rest)
        self.wfile.write(rest[:half])
        self.wfile.flush()
        if self.server.hold:
            self.server.hold.wait(30)
            self.wfile.write(rest[half:])
        self.close_connection = True

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class calls it so
        """Be silent."""


@contextmanager
def serving() -> Iterator[CuttingServer]:
    """A running server."""
    server = CuttingServer()
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        if server.hold:
            server.hold.set()
        server.shutdown()
        server.server_close()
        thread.join()
