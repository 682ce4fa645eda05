"""Real repositories made by a test, and a real git server for them on 127.0.0.1."""

from __future__ import annotations

import hashlib
import os
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

ENV = {
    "PATH": os.environ["PATH"],
    "HOME": "/nonexistent",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_AUTHOR_NAME": "A",
    "GIT_AUTHOR_EMAIL": "a@example.org",
    "GIT_COMMITTER_NAME": "C",
    "GIT_COMMITTER_EMAIL": "c@example.org",
}
T0 = 1_700_000_000


class Repo:
    """A repository with a work tree; every commit is a minute after the one before."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.time = T0
        path.mkdir(parents=True)
        self.git("init", "-q", "-b", "main")

    @property
    def url(self) -> str:
        return f"file://{self.path}"

    def git(self, *arguments: str, stdin: bytes = b"") -> str:
        when = f"{self.time} +0000"
        env = {**ENV, "GIT_AUTHOR_DATE": when, "GIT_COMMITTER_DATE": when}
        argv = ["git", "-C", str(self.path), "-c", "protocol.file.allow=always", *arguments]
        return subprocess.run(argv, env=env, check=True, input=stdin, capture_output=True).stdout.decode().strip()

    def put(self, files: Mapping[str, str | bytes]) -> None:
        for name, content in files.items():
            path = self.path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content.encode() if isinstance(content, str) else content)

    def commit(self, files: Mapping[str, str | bytes] | None = None, message: str = "change") -> str:
        self.put(files or {})
        self.time += 60
        self.git("add", "-A")
        self.git("commit", "-q", "--allow-empty", "-m", message)
        return self.git("rev-parse", "HEAD")

    def tree(self, commit: str = "HEAD") -> str:
        return self.git("rev-parse", f"{commit}^{{tree}}")

    def raw_tree(self, *items: tuple[str, bytes, str]) -> str:
        """A tree object as git itself would not write it."""
        data = b"".join(mode.encode() + b" " + name + b"\0" + bytes.fromhex(oid) for mode, name, oid in items)
        return self.git("hash-object", "-t", "tree", "-w", "--stdin", "--literally", stdin=data)

    def blob(self, data: bytes) -> str:
        return self.git("hash-object", "-w", "--stdin", stdin=data)

    def commit_tree(self, tree: str) -> str:
        """A commit of a tree, on a branch of its own, past all of git's checks."""
        text = f"tree {tree}\nauthor A <a@example.org> {T0} +0000\ncommitter C <c@example.org> {T0} +0000\n\nx\n"
        commit = self.git("hash-object", "-t", "commit", "-w", "--stdin", "--literally", stdin=text.encode())
        self.git("update-ref", f"refs/heads/b{commit[:8]}", commit)
        return commit


def pin(repo: Repo, commit: str = "", **changes: Any) -> dict[str, Any]:
    """What a request says of a source."""
    commit = commit or repo.git("rev-parse", "HEAD")
    return {
        "component": "engine",
        "repository": repo.url,
        "ref": "main",
        "commit": commit,
        "tree": repo.tree(commit),
        "time": int(repo.git("rev-list", "-1", "--format=%ct", commit).split()[-1]),
        "lfs": "refused",
        "submodules": [],
        "patches": [],
        **changes,
    }


def key_of(source: dict[str, Any]) -> str:
    return hashlib.sha256(repr(sorted(source.items())).encode()).hexdigest()


class Server(ThreadingHTTPServer):
    """Serves the repositories below `root` by git's own http-backend; `wrong` says how it misbehaves."""

    daemon_threads = True

    def __init__(self, root: Path) -> None:
        self.root = root
        self.wrong = ""
        self.delay = 0.0  # seconds before an answer
        self.requests: list[str] = []
        super().__init__(("127.0.0.1", 0), _Handler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.0"
    server: Server

    def log_message(self, *_: Any) -> None:
        pass

    def do_GET(self) -> None:
        self._answer()

    def do_POST(self) -> None:
        self._answer()

    def _answer(self) -> None:
        self.server.requests.append(f"{self.command} {self.path}")
        wrong = self.server.wrong
        time.sleep(self.server.delay)
        if wrong in {"404", "401", "500"}:
            self.send_error(int(wrong))
        elif wrong == "dumb":
            self._static()
        else:
            self._git(wrong)

    def _git(self, wrong: str) -> None:
        path, _, query = self.path.partition("?")
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        env = {
            **ENV,
            "GIT_PROJECT_ROOT": str(self.server.root),
            "GIT_HTTP_EXPORT_ALL": "1",
            "PATH_INFO": path,
            "QUERY_STRING": query,
            "REQUEST_METHOD": self.command,
            "CONTENT_TYPE": self.headers.get("Content-Type", ""),
            "CONTENT_LENGTH": str(len(body)),
            "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
            "GIT_PROTOCOL": "" if wrong == "old" else self.headers.get("Git-Protocol", ""),
            "REMOTE_ADDR": "127.0.0.1",
            "GIT_CONFIG_COUNT": "1",
            "GIT_CONFIG_KEY_0": "safe.directory",
            "GIT_CONFIG_VALUE_0": "*",
        }
        done = subprocess.run(["git", "http-backend"], env=env, input=body, capture_output=True, check=False)
        head, _, answer = done.stdout.partition(b"\r\n\r\n")
        if wrong == "huge" and "info/refs" in path:
            answer = _line("# service=git-upload-pack\n") + b"0000"
            answer += _line(f"{'a' * 40} refs/heads/a\0side-band-64k\n")
            answer += b"".join(_line(f"{'a' * 40} refs/heads/b{n}\n") for n in range(1_400_000)) + b"0000"
        if wrong == "nonsense" and "info/refs" in path:
            answer = b"<html>no repository here</html>"
        if wrong == "cut" and self.command == "POST" and len(answer) > 2000:
            answer = answer[: len(answer) // 2]
        lines = [line.split(b": ", 1) for line in head.split(b"\r\n") if b": " in line]
        fields = {name.decode().lower(): value.decode() for name, value in lines}
        self.send_response(int(fields.pop("status", "200").split()[0]))
        for name, value in fields.items():
            self.send_header(name, value)
        self.end_headers()
        with suppress(OSError):  # the client has heard enough
            self.wfile.write(answer)

    def _static(self) -> None:
        path = self.server.root / self.path.partition("?")[0].lstrip("/")
        if not path.is_file():
            self.send_error(404)
            return
        self.send_response(200)
        self.end_headers()
        self.wfile.write(path.read_bytes())


def _line(text: str) -> bytes:
    return f"{len(text) + 4:04x}{text}".encode()


@contextmanager
def serving(root: Path) -> Iterator[Server]:
    server = Server(root)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
