"""Asking a registry, a real one on this machine's loopback: with and without a token, and when it does not answer."""

from __future__ import annotations

import hashlib
import http.server
import json
import threading
from collections.abc import Iterator

import pytest

from sparkbuild.core.errors import ConfigError, NodeError
from sparkbuild.upstream.registry_digest import address, digest_of
from sparkbuild.workspace.locks.reference import parse

MANIFEST = b'{"schemaVersion": 2}'
DIGEST = f"sha256:{hashlib.sha256(MANIFEST).hexdigest()}"
TOKEN = "for everybody"


class Handler(http.server.BaseHTTPRequestHandler):
    def do_HEAD(self) -> None:
        if self.headers.get("Authorization") != f"Bearer {TOKEN}":
            host, port = self.server.server_address[:2]
            realm = f'realm="http://{host!s}:{port}/token",service="registry",scope="repository:team/engine:pull"'
            self._answer(401, {"WWW-Authenticate": f"Bearer {realm}"})
        elif self.path in {"/v2/team/engine/manifests/nightly", f"/v2/team/engine/manifests/{DIGEST}"}:
            self._answer(200, {"Docker-Content-Digest": f"sha256:{'0' * 64}"}, MANIFEST)  # which is not believed
        else:
            self._answer(404, {})

    def do_GET(self) -> None:
        if not self.path.startswith("/token"):
            self.do_HEAD()
            return
        assert self.path == "/token?service=registry&scope=repository%3Ateam%2Fengine%3Apull"
        self._answer(200, {}, json.dumps({"token": TOKEN}).encode())

    def _answer(self, status: int, headers: dict[str, str], body: bytes = b"") -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def host() -> Iterator[str]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"127.0.0.1:{server.server_address[1]}"
        server.shutdown()


def test_what_a_tag_means_now(host: str) -> None:
    assert digest_of(parse(f"{host}/team/engine:nightly")) == DIGEST


def test_whether_it_has_a_digest(host: str) -> None:
    assert digest_of(parse(f"{host}/team/engine@{DIGEST}")) == DIGEST
    with pytest.raises(ConfigError, match="does not give") as caught:
        digest_of(parse(f"{host}/team/engine@sha256:{'0' * 64}"))
    assert caught.value.found == "HTTP 404: the registry has no such image or tag"


def test_a_registry_that_is_not_there() -> None:
    with pytest.raises(NodeError, match=r"the registry 127\.0\.0\.1:1 cannot be reached"):
        digest_of(parse("127.0.0.1:1/team/engine:nightly"))


def test_where_a_registry_is() -> None:
    assert address(parse("team/engine")) == "https://registry-1.docker.io"
    assert address(parse("registry.example.org/engine")) == "https://registry.example.org"
    assert address(parse("localhost:5000/engine")) == "http://localhost:5000"
