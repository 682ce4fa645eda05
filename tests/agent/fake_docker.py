"""A docker engine as far as the agent asks it: a socket that lists containers. It stands for states of an engine that
a test cannot make at will; the real one is asked in tests/rack.
"""

from __future__ import annotations

import http.server
import json
import socketserver
import threading
import urllib.parse
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


class Engine(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    """`containers` is what it lists; `broken`: it answers 500."""

    daemon_threads = True

    def __init__(self, path: Path) -> None:
        super().__init__(str(path), _Handler)
        self.path = str(path)
        self.containers: list[dict[str, Any]] = []
        self.images: list[dict[str, Any]] = []
        self.cache: list[dict[str, Any]] = []
        self.broken = False
        self.started = "2026-01-01T00:00:00.000000001Z"  # of all containers
        self.asked: list[str] = []

    def add(
        self,
        letter: str,
        state: str,
        *,
        recipe: str = "demo",
        name: str = "",
        ours: bool = True,
        mounts: Iterable[str] = (),
        **labels: str,
    ) -> str:
        """A container, with these paths of the node mounted; returns its id."""
        texts = {f"sparkbuild.{label}": text for label, text in {"recipe": recipe, "launch": "l1", **labels}.items()}
        found = {
            "Id": letter * 64,
            "Names": [f"/{name or f'sparkbuild-{recipe}'}"],
            "Labels": texts if ours else {},
            "State": state,
            "Status": f"{state.capitalize()} a while ago",
            "Created": len(self.containers),
            "Mounts": [{"Type": "bind", "Source": source, "Destination": "/x"} for source in mounts],
        }
        self.containers.append(found)
        return str(found["Id"])

    def image(self, letter: str, *tags: str, key: str = "", digest: str = "", named: int = 0) -> None:
        """An image; `key` is that of its label, `named` orders when it got its name."""
        self.images.append({
            "Id": f"sha256:{letter * 64}",
            "RepoTags": list(tags),
            "RepoDigests": [digest] if digest else [],
            "Labels": {"sparkbuild.key": key} if key else {},
            "Size": 1_000_000,
            "Metadata": {"LastTagTime": f"2026-01-01T00:00:{named:02d}Z"},
            "Architecture": "amd64",
            "RootFS": {"Layers": [f"sha256:{letter * 64}"]},
        })  # fmt: skip

    def untag(self, path: str) -> tuple[int, Any]:
        """Take a name away, and the image with its last; or remove a container."""
        if path.startswith("/containers/"):
            gone = urllib.parse.urlsplit(path).path.rpartition("/")[2]
            self.containers = [one for one in self.containers if one["Id"] != gone]
            return 204, None
        name = urllib.parse.unquote(urllib.parse.urlsplit(path).path.removeprefix("/images/"))
        for one in self.images:
            for names in ("RepoTags", "RepoDigests"):
                one[names] = [known for known in one[names] if known != name]
        self.images = [one for one in self.images if one["RepoTags"] or one["RepoDigests"]]
        return 200, []

    def answer(self, path: str) -> tuple[int, Any]:
        """Status and body."""
        self.asked.append(path)
        if self.broken:
            return 500, {"message": "it is not well"}
        where = urllib.parse.urlsplit(path)
        if where.path == "/containers/json":
            filters = json.loads(urllib.parse.parse_qs(where.query).get("filters", ["{}"])[0])
            wanted = [label.partition("=")[0] for label in filters.get("label", ())]
            return 200, [one for one in self.containers if all(label in one["Labels"] for label in wanted)]
        name = urllib.parse.unquote(where.path.removesuffix("/json").split("/", 2)[-1])
        fixed = {"/system/df": {"BuildCache": self.cache}, "/build/prune": {"SpaceReclaimed": 1000}}
        if where.path in fixed:
            return 200, fixed[where.path]
        if where.path == "/info" or where.path.startswith("/images/"):
            return self._of_images(where.path, name)
        for one in self.containers:
            if name in (one["Id"], one["Names"][0].lstrip("/")):
                config = {"Labels": one["Labels"], "Image": "x:1", "Tty": False}
                return 200, {
                    "Id": one["Id"],
                    "Name": one["Names"][0],
                    "Image": one.get("ImageID", ""),
                    "Config": config,
                    "State": {"Status": one["State"], "StartedAt": self.started},
                }
        return 404, {"message": f"no such container: {name}"}

    def _of_images(self, path: str, name: str) -> tuple[int, Any]:
        if path == "/info":
            return 200, {"Architecture": "x86_64", "Driver": "overlay2", "DockerRootDir": "/"}
        if path == "/images/json":
            return 200, self.images
        found = (one for one in self.images if name in {one["Id"][7:], *one["RepoTags"], *one["RepoDigests"]})
        image = next(found, None)
        return (404, {"message": f"no such image: {name}"}) if image is None else (200, image)


class _Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self._answer(*self.server.answer(self.path))  # type: ignore[attr-defined]

    do_POST = do_GET  # noqa: N815 - http.server's name

    def do_DELETE(self) -> None:
        self._answer(*self.server.untag(self.path))  # type: ignore[attr-defined]

    def _answer(self, status: int, body: Any) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def address_string(self) -> str:
        return "unix"

    def log_message(self, *args: Any) -> None:
        del args


@contextmanager
def running(folder: Path) -> Iterator[Engine]:
    with Engine(folder / "docker.sock") as engine:
        threading.Thread(target=engine.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        yield engine
        engine.shutdown()
