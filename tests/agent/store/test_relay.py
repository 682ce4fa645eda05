"""Blobs between agents on this machine: received, resumed, checked, passed on, given to nobody without the token."""

from __future__ import annotations

import hashlib
import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from sparkbuild.agent.docker.registry import LAYER, MANIFEST, Image, Registry, is_left
from tests.agent.driver import MIB, finish, start

TOKEN = "t" * 32
Blobs = dict[str, bytes]


class Agent:
    """The verb `relay` in a process."""

    def __init__(self, store: Path, blobs: Blobs, folder: str, givers: Sequence[Agent] = ()) -> None:
        listed = [{"sha256": name, "size": len(content)} for name, content in blobs.items()]
        sources = [{"host": "127.0.0.1", "port": giver.port} for giver in givers]
        self.folder = store / folder
        self.process = start(
            "relay",
            {"store": str(store), "folder": folder, "blobs": listed, "token": TOKEN, "listen": ["127.0.0.1"],
             "sources": sources},
        )  # fmt: skip
        self.port = 0
        self.events: list[dict[str, Any]] = []
        assert self.process.stdout
        for line in self.process.stdout:
            event = json.loads(line)
            self.events.append(event)
            if event["event"] in {"serving", "error"}:
                self.port = event.get("ports", {}).get("127.0.0.1", 0)
                break

    def until(self, kind: str) -> dict[str, Any]:
        """The next event of a kind, or an error."""
        assert self.process.stdout
        for line in self.process.stdout:
            event: dict[str, Any] = json.loads(line)
            if event["event"] in {kind, "error"}:
                return event
        raise AssertionError("it ended")

    def end(self) -> None:
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            if stream:
                stream.close()
        self.process.wait(10)


Make = Callable[..., Agent]


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[Make]:
    made: list[Agent] = []

    def new(name: str, blobs: Blobs, *givers: Agent, have: bool = False) -> Agent:
        folder = "blobs" if have else "incoming"
        if have:
            (tmp_path / name / folder).mkdir(parents=True)
            for blob, content in blobs.items():
                (tmp_path / name / folder / blob).write_bytes(content)
        made.append(Agent(tmp_path / name, blobs, folder, givers))
        return made[-1]

    yield new
    for one in made:
        one.end()


@pytest.fixture
def blobs() -> Blobs:
    contents = [os.urandom(3 * MIB + 17), os.urandom(5), b"", os.urandom(2 * MIB)]
    return {hashlib.sha256(content).hexdigest(): content for content in contents}


def read(agent: Agent) -> Blobs:
    return {path.name: path.read_bytes() for path in agent.folder.iterdir()}


def ask(port: int, path: str, *more: str, method: str = "GET") -> tuple[str, bytes]:
    """First line and body of an answer."""
    with socket.create_connection(("127.0.0.1", port), timeout=5) as call:
        call.sendall("\r\n".join([f"{method} {path} HTTP/1.1", *more, "", ""]).encode())
        data = b""
        while block := call.recv(65536):
            data += block
    head, _, body = data.partition(b"\r\n\r\n")
    return head.decode(), body


def test_a_chain(agent: Make, blobs: Blobs) -> None:
    holder = agent("holder", blobs, have=True)
    first = agent("first", blobs, holder)
    second = agent("second", blobs, first, holder)
    size = sum(map(len, blobs.values()))
    for one in (first, second):
        assert one.until("complete") == {"event": "complete", "bytes": size}
        assert read(one) == blobs


def test_what_arrives_is_given_out_meanwhile(agent: Make, blobs: Blobs, tmp_path: Path) -> None:
    name, content = next(iter(blobs.items()))
    folder = tmp_path / "node/incoming"
    folder.mkdir(parents=True)
    part = folder / f"{name}.part"
    part.write_bytes(content[:1000])
    one = agent("node", {name: content}, agent("dead", {}, have=True))
    got: list[bytes] = []
    thread = threading.Thread(target=lambda: got.append(ask(one.port, f"/{TOKEN}/{name}")[1]))
    thread.start()
    time.sleep(0.2)
    with part.open("ab") as file:
        file.write(content[1000:])
    part.rename(folder / name)
    thread.join(10)
    assert got == [content]


@pytest.mark.parametrize("left", [b"", b"right", b"wrong", b"longer"])
def test_what_an_earlier_try_left(agent: Make, blobs: Blobs, tmp_path: Path, left: bytes) -> None:
    name, content = next(iter(blobs.items()))
    kept = {b"": b"", b"right": content[:MIB], b"wrong": bytes(MIB), b"longer": content + b"x"}[left]
    folder = tmp_path / "node/incoming"
    folder.mkdir(parents=True)
    (folder / f"{name}.part").write_bytes(kept)
    one = agent("node", {name: content}, agent("holder", blobs, have=True))
    moved = one.until("complete")["bytes"]
    assert read(one) == {name: content}
    assert moved == {b"right": len(content) - MIB, b"wrong": 2 * len(content) - MIB}.get(left, len(content))


def test_a_giver_that_dies_and_one_that_lies(agent: Make, blobs: Blobs) -> None:
    holder = agent("holder", blobs, have=True)
    dead = agent("dead", blobs, have=True)
    liar = agent("liar", {name: bytes(len(content)) for name, content in blobs.items()}, have=True)
    dead.end()
    one = agent("node", blobs, dead, liar, holder)
    assert one.until("complete")["event"] == "complete"
    assert read(one) == blobs


def test_all_lie(agent: Make, blobs: Blobs) -> None:
    name, content = next(iter(blobs.items()))
    liar = agent("liar", {name: bytes(len(content))}, have=True)
    error = agent("node", {name: content}, liar).until("complete")
    assert (error["event"], error["kind"]) == ("error", "integrity")
    assert error["wanted"] == f"sha256 {name}"


def test_a_holder_that_lacks_something(agent: Make, blobs: Blobs) -> None:
    holder = agent("holder", blobs)
    assert holder.events[-1]["kind"] == "integrity"
    assert holder.events[-1]["what"] == f"{len(blobs)} of {len(blobs)} blobs are not where they were made"


def test_two_receivers_of_one_store(agent: Make, blobs: Blobs) -> None:
    """The second waits for what the first receives, and does not receive it again."""
    holder = agent("holder", blobs, have=True)
    both = [agent("node", blobs, holder) for _ in range(2)]
    moved = sum(one.until("complete")["bytes"] for one in both)
    assert moved == sum(map(len, blobs.values()))
    assert read(both[0]) == blobs


def test_nobody_gets_anything_else(agent: Make, blobs: Blobs, tmp_path: Path) -> None:
    name, content = next(iter(blobs.items()))
    holder = agent("holder", {name: content}, have=True)
    other = hashlib.sha256(b"other").hexdigest()
    (tmp_path / "holder/blobs" / other).write_bytes(b"other")
    for path in (f"/{'x' * 32}/{name}", f"/{name}", f"/{TOKEN}/{other}", f"/{TOKEN}/../blobs/{name}", "/", ""):
        assert ask(holder.port, path)[0].startswith("HTTP/1.1 404 "), path
    assert ask(holder.port, f"/{TOKEN}/{name}", method="PUT")[0].startswith("HTTP/1.1 405 ")
    head, body = ask(holder.port, f"/{TOKEN}/{name}", "Range: bytes=10-19")
    assert (head.splitlines()[0], body) == ("HTTP/1.1 206 Partial Content", content[10:20])
    assert ask(holder.port, f"/{TOKEN}/{name}", f"Range: bytes={len(content)}-")[0].startswith("HTTP/1.1 416 ")


def test_names_that_lead_elsewhere(tmp_path: Path) -> None:
    request = {"store": str(tmp_path), "folder": "x", "blobs": [{"sha256": "../x", "size": 1}], "token": TOKEN}
    answer = finish(start("relay", {**request, "listen": [], "sources": []}))
    assert answer.last["what"] == "a blob is named by its sha256"


def test_clear(tmp_path: Path, blobs: Blobs) -> None:
    folder = tmp_path / "incoming"
    folder.mkdir()
    old = hashlib.sha256(b"old").hexdigest()
    for name in (*blobs, f"{old}.part", "somebody.else"):
        (folder / name).write_bytes(b"x")
    os.utime(folder / f"{old}.part", (0, 0))
    kept, *gone = blobs
    listed = [{"sha256": name, "size": 1} for name in gone]
    request = {"store": str(tmp_path), "folder": "incoming", "blobs": listed, "clear": True}
    assert finish(start("relay", request)).last["removed"] == len(gone) + 1
    assert sorted(path.name for path in folder.iterdir()) == sorted([kept, "somebody.else"])


def test_it_ends_with_its_caller(agent: Make, blobs: Blobs) -> None:
    holder = agent("holder", blobs, have=True)
    holder.end()
    assert holder.process.returncode is not None
    with pytest.raises(ConnectionRefusedError):
        ask(holder.port, "/")


# --- the registry ----------------------------------------------------------------------------------------------------


@pytest.fixture
def image(blobs: Blobs) -> Image:
    config = {"architecture": "amd64", "config": {"Labels": {"a": "b"}}, "history": [1], "rootfs": {"diff_ids": []}}
    config["rootfs"] = {"diff_ids": [f"sha256:{name}" for name in blobs]}
    return Image(json.dumps(config).encode(), [(name, len(content)) for name, content in blobs.items()])


def test_a_registry_for_docker(tmp_path: Path, blobs: Blobs, image: Image) -> None:
    for name, content in blobs.items():
        (tmp_path / name).write_bytes(content)
    wanted: list[str] = []
    registry = Registry(str(tmp_path), "ab" * 16, lambda sha256, _size: wanted.append(sha256))
    registry.offer("whole", image)
    host, _, name = registry.repository.partition("/")
    port = int(host.rpartition(":")[2])
    assert is_left(f"{registry.repository}:whole")
    assert is_left(f"{registry.repository}@sha256:{'0' * 64}")
    assert not is_left("127.0.0.1:5000/team/image:1")
    assert ask(port, "/v2/")[0].startswith("HTTP/1.1 200 ")
    head, body = ask(port, f"/v2/{name}/manifests/whole")
    manifest = json.loads(body)
    assert f"Content-Type: {MANIFEST}" in head
    assert "Connection: close" in head
    assert {layer["mediaType"] for layer in manifest["layers"]} == {LAYER}
    digest = f"sha256:{hashlib.sha256(body).hexdigest()}"
    assert ask(port, f"/v2/{name}/manifests/{digest}")[1] == body
    assert ask(port, f"/v2/{name}/manifests/whole", method="HEAD")[1] == b""
    assert ask(port, f"/v2/{name}/blobs/{manifest['config']['digest']}")[1] == image.config
    assert [ask(port, f"/v2/{name}/blobs/{layer['digest']}")[1] for layer in manifest["layers"]] == [*blobs.values()]
    assert wanted == [*blobs], "each is asked for before it is sent"
    for path in (f"/v2/{name}/blobs/sha256:{'0' * 64}", "/v2/other/manifests/whole", f"/v2/{name}/tags/list", "/x"):
        assert ask(port, path)[0].startswith("HTTP/1.1 404 "), path


def test_a_registry_says_in_plain_http_that_it_speaks_no_tls(tmp_path: Path) -> None:
    registry = Registry(str(tmp_path), "ab" * 16, lambda _sha256, _size: None)
    port = int(registry.repository.partition("/")[0].rpartition(":")[2])
    with socket.create_connection(("127.0.0.1", port), timeout=5) as call:
        call.sendall(b"\x16\x03\x01\x02\x00\x01\x00")
        assert call.recv(100).startswith(b"HTTP/1.1 400 ")


def test_an_image_that_is_cut(image: Image) -> None:
    low = image.cut(2)
    config = json.loads(low.config)
    assert low.layers == image.layers[:2]
    assert config["rootfs"]["diff_ids"] == [f"sha256:{name}" for name, _ in image.layers[:2]]
    assert config["config"] == {}, "no labels: it is never taken for the whole"
    assert "history" not in config
