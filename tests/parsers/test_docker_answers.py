"""What a docker engine says, or what sits behind its socket: facts with a problem, or an error of ours."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from sparkbuild.agent.docker import buildcache, fact, images
from sparkbuild.agent.docker.changes import DockerWork
from sparkbuild.agent.docker.engine import Dockerd, DockerdError
from sparkbuild.agent.docker.loglines import frames, lines
from sparkbuild.agent.docker.ours import Shelf
from tests.parsers.near import bounded, damaged, json_like
from tests.parsers.served import unix

CONTAINER = {
    "Id": "f" * 64, "Names": ["/sparkbuild-alpha"], "Image": "x:1", "ImageID": "sha256:" + "a" * 64, "Created": 1,
    "State": "running", "Status": "Up 2 seconds", "Labels": {"sparkbuild.recipe": "alpha", "sparkbuild.port": "1"},
}  # fmt: skip
IMAGE = {
    "Id": "sha256:" + "a" * 64, "RepoTags": ["x:1"], "RootFS": {"Layers": ["sha256:" + "b" * 64]}, "Size": 5,
    "Config": {"Labels": {"sparkbuild.key": "c" * 64}, "Entrypoint": ["/x"], "Env": ["A=b"]}, "Architecture": "amd64",
    "Os": "linux", "Version": "20.10", "ApiVersion": "1.41", "State": {"Pid": 5}, "Name": "/x", "HostConfig": {},
}  # fmt: skip


def answer(body: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)


CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n[1, 2\r\n1\r\n]\r\n0\r\n\r\n"
WIRE = st.one_of(json_like([CONTAINER]).map(answer), json_like(IMAGE).map(answer), damaged(CHUNKED))


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tmp_path_factory.mktemp("docker") / "docker.sock")


@given(wire=WIRE.flatmap(damaged))
def test_an_answer_of_the_engine(place: str, wire: bytes) -> None:
    with unix(place, wire), bounded(DockerdError):
        Dockerd(place, timeout=3).get("/x")


@pytest.mark.parametrize("body", [b"null", b"5", b'"x"', b"[[]]", b"true"])
def test_an_answer_of_another_shape(place: str, body: bytes) -> None:
    """What is not docker answers everything with one word: each question is refused, none goes on with it."""
    with unix(place, answer(body)):
        engine = DockerWork(place)
        calls: list[Callable[[], object]] = [
            lambda: engine.get("/info"), lambda: images.architecture_of(engine), lambda: engine.image("x:1"),
            lambda: engine.container("x"),
        ]  # fmt: skip
        if body != b"[[]]":
            calls += [engine.containers, engine.images, lambda: images.missing(engine, ["sha256:" + "b" * 64])]
        for call in calls:
            with pytest.raises(DockerdError, match="is not docker"):
                call()
        assert buildcache.unused_bytes(engine) == 0


@given(wire=json_like(IMAGE).map(answer))
def test_an_image(place: str, wire: bytes) -> None:
    with unix(place, wire), bounded(DockerdError):
        Dockerd(place, timeout=3).image("x:1")


@given(wire=json_like([CONTAINER]).map(answer))
def test_containers_of_lanes(place: str, wire: bytes) -> None:
    with unix(place, wire), bounded(DockerdError):
        shelf = Shelf(place)
        json.dumps([shelf.problem, shelf.of("alpha"), shelf.box("f" * 64), shelf.stranger("alpha")])


@given(wire=WIRE)
def test_the_facts_of_docker(place: str, wire: bytes) -> None:
    with unix(place, wire), bounded():
        found: Any = fact.docker_fact(place, ["x:1"])
        json.dumps(found)


@given(data=damaged(b"\x01\0\0\0\0\0\0\x06hello\n\x02\0\0\0\0\0\0\x03abc"), cut=st.integers(1, 20))
def test_the_frames_of_a_log(data: bytes, cut: int) -> None:
    with bounded(ValueError):
        list(lines(frames(data[at : at + cut] for at in range(0, len(data), cut))))


def test_the_place_is_short_enough_for_a_socket(place: str) -> None:
    assert len(place) < 100, Path(place)
