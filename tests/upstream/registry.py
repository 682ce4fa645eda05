"""A registry of images on 127.0.0.1, as the distribution spec has it: manifests, tags in pages, anonymous tokens."""

from __future__ import annotations

import base64
import hashlib
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit


class Server(ThreadingHTTPServer):
    """`images`: path -> tag -> manifest. `wrong` says how it misbehaves; `token` is asked for when it is not "".
    `meanwhile` is called before each answer. `login` is wanted as name:password: for tokens, or for all where `basic`
    is set. `busy` answers say to come again after `retry_after`.
    """

    daemon_threads = True

    def __init__(self) -> None:
        self.images: dict[str, dict[str, bytes]] = {}
        self.wrong = ""
        self.token = ""
        self.login = ""
        self.basic = False
        self.busy = 0
        self.retry_after = ""
        self.asked: list[str] = []
        self.meanwhile: Callable[[], object] = lambda: None
        super().__init__(("127.0.0.1", 0), _Handler)

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.server_address[1]}"

    def put(self, path: str, tag: str, content: str) -> str:
        """Tag a manifest; its digest."""
        data = json.dumps({"schemaVersion": 2, "x": content}).encode()
        digest = digest_of(data)
        self.images.setdefault(path, {}).update({tag: data, digest: data})
        return digest


def digest_of(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


class _Handler(BaseHTTPRequestHandler):
    server: Server

    def log_message(self, *_: Any) -> None:
        pass

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:  # noqa: C901, PLR0911 - a way for each misbehaviour
        server, parts = self.server, urlsplit(self.path)
        server.asked.append(self.path)
        server.meanwhile()
        if server.wrong.isdigit():
            return self._say(int(server.wrong), b"{}")
        if server.wrong == "away":
            return self._say(302, b"", ("Location", "http://registry.example/v2/x"))
        if server.busy:
            server.busy -= 1
            return self._say(429, b"{}", *([("Retry-After", server.retry_after)] if server.retry_after else []))
        wanted = f"Basic {base64.b64encode(server.login.encode()).decode()}"
        if server.login and (server.basic or parts.path == "/token") and self.headers.get("Authorization") != wanted:
            return self._say(401, b"{}", ("WWW-Authenticate", 'Basic realm="Registry, of \\"ours\\""'))
        if parts.path == "/token":
            if server.wrong == "long token":
                return self._say(200, b" " * (9 << 20))
            scope = parse_qs(parts.query)["scope"][0]
            return self._say(200, json.dumps({"token": f"{server.token} {scope}"}).encode())
        path, _, reference = (
            parts.path.removeprefix("/v2/").replace("/tags/list", "/manifests/").partition("/manifests/")
        )
        if server.token and self.headers.get("Authorization") != f"Bearer {server.token} repository:{path}:pull":
            realm = f'Bearer realm="http://{server.host}/token",service="x",scope="repository:{path}:pull"'
            return self._say(401, b"{}", ("WWW-Authenticate", realm))
        if path not in server.images:
            return self._say(404, b"{}")
        if not reference:
            return self._tags(path, parse_qs(parts.query).get("last", [""])[0])
        data = server.images[path].get(reference)
        if server.wrong == "lies":
            data = b'{"another": "manifest"}'
        if server.wrong == "big":
            data = b" " * (9 << 20)
        return self._say(200 if data else 404, data or b"{}")

    def _tags(self, path: str, last: str) -> None:
        tags = sorted(tag for tag in self.server.images[path] if ":" not in tag)
        after = [tag for tag in tags if tag > last]
        body = json.dumps({"name": path, "tags": after[:2]}).encode()
        if self.server.wrong == "no list":
            body = b"[1"
        link = [("Link", f'</v2/{path}/tags/list?n=2&last={after[1]}>; rel="next"')] if len(after) > 2 else []
        self._say(200, body, *link)

    def _say(self, code: int, body: bytes, *headers: tuple[str, str]) -> None:
        self.send_response(code)
        digest = ("Docker-Content-Digest", digest_of(body))
        for name, value in (*headers, digest, ("Content-Length", str(len(body)))):
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


@contextmanager
def registry() -> Iterator[Server]:
    server = Server()
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
