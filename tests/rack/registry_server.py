"""A registry for tests, as far as docker pulls from one: runs on a node, or here. Standard library only.

python registry_server.py FOLDER PORT [NAME:PASSWORD]
FOLDER: manifests/<tag or digest>, blobs/<digest>; asks are logged. Without the login, all is refused (Basic).
"""

from __future__ import annotations

import base64
import hashlib
import http.server
import sys
from pathlib import Path

MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
INDEX = "application/vnd.docker.distribution.manifest.list.v2+json"


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    folder = Path()
    login = ""

    def do_GET(self) -> None:
        wanted = f"Basic {base64.b64encode(self.login.encode()).decode()}"
        if self.login and self.headers.get("Authorization") != wanted:
            self._answer(401, "application/json", b'{"errors": [{"code": "UNAUTHORIZED", "message": "no"}]}')
            return
        place = self.path.rpartition("/v2/")[2]
        with (self.folder / "log").open("a") as log:
            log.write(f"{self.command} {self.path}\n")
        *_, kind, name = ["", *place.split("/")]
        path = self.folder / kind / name
        if self.path == "/v2/":
            self._answer(200, "application/json", b"{}")
        elif kind in {"manifests", "blobs"} and path.is_file():
            body = path.read_bytes()
            described = INDEX if b'"manifests"' in body[:500] else MANIFEST
            self._answer(200, described if kind == "manifests" else "application/octet-stream", body)
        else:
            self._answer(404, "application/json", b'{"errors": [{"code": "MANIFEST_UNKNOWN", "message": "no"}]}')

    do_HEAD = do_GET  # noqa: N815 - http.server's name

    def _answer(self, status: int, kind: str, body: bytes) -> None:
        self.send_response(status)
        if status == 401:
            self.send_header("WWW-Authenticate", 'Basic realm="tests"')
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Docker-Content-Digest", f"sha256:{hashlib.sha256(body).hexdigest()}")
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


if __name__ == "__main__":
    Handler.folder = Path(sys.argv[1])
    Handler.login = "".join(sys.argv[3:])
    server = http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[2])), Handler)
    print(server.server_address[1], flush=True)
    server.serve_forever()
