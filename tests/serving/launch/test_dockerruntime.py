"""Making room for a container: what is renamed, kept, removed and refused; docker's refusals in words of ours."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import docker
import pytest
import requests

from sparkbuild.agent.wire.lanelabels import store_id
from sparkbuild.core.errors import EngineDiedError, NodeError, SpaceError, SparkbuildError
from sparkbuild.core.run import Run
from sparkbuild.serving.launch.dockerruntime import make_room, told

NAME = "sparkbuild-demo"
Step = tuple[str, ...]


class Api:
    """Containers that a test makes up, in the order in which docker may list them, and what is done to them."""

    def __init__(self, *entries: dict[str, Any]) -> None:
        self.entries = entries
        self.did: list[Step] = []
        self.images: dict[str, dict[str, str]] = {}

    def containers(self, **asked: Any) -> list[dict[str, Any]]:
        assert asked == {"all": True, "filters": {"label": ["sparkbuild.recipe=demo"]}}
        return list(self.entries)

    def inspect_image(self, image: str) -> dict[str, Any]:
        if image == "gone":
            raise docker.errors.ImageNotFound("no such image")
        return {"Config": {"Labels": self.images.get(image)}}

    def remove_container(self, found: str, *, force: bool = False) -> None:
        self.did.append(("remove", found[0], *(["force"] if force else [])))

    def rename(self, found: str, name: str) -> None:
        self.did.append(("rename", found[0], name))


def entry(
    letter: str, state: str = "exited", *, created: int = 0, name: str | None = NAME, store: str = ""
) -> dict[str, Any]:
    found = {"Id": letter * 64, "State": state, "Created": created, "Names": [f"/{name}"] if name else None}
    return {**found, "Labels": {"sparkbuild.recipe": "demo", **({"sparkbuild.store": store} if store else {})}}


def old(letter: str, created: int) -> dict[str, Any]:
    return entry(letter, created=created, name=f"{NAME}-before-{letter}")


STORE = "/srv/store"
RENAMED = ("rename", "a", f"{NAME}-20231114T221320Z-aaaaaa")
LAST = entry("a", created=1_700_000_000)

# what is there, how many are kept, what is done
ROOM: dict[str, tuple[list[dict[str, Any]], int, list[Step]]] = {
    "nothing": ([], 2, []),
    "a dead one": ([LAST], 2, [RENAMED]),
    "older ones": ([old("c", 1), LAST, old("b", 2)], 2, [RENAMED, ("remove", "c")]),
    "all of them are kept": ([LAST, old("b", 2), old("c", 1)], 3, [RENAMED]),
    "none is kept": ([LAST, old("b", 2)], 0, [RENAMED, ("remove", "a"), ("remove", "b")]),
    "never started": ([entry("a", "created")], 2, [("remove", "a", "force")]),
    "never started, and older ones": (
        [entry("d", "created", created=1_700_000_001), old("b", 2), old("c", 1)],
        1,
        [("remove", "d", "force"), ("remove", "c")],
    ),
    "of another store": (
        [
            entry("a", created=1_700_000_000, store="elsewhere"),
            entry("d", "created", created=1_600_000_000, name="x", store="elsewhere"),
            entry("e", created=1, name="y", store=store_id(STORE)),
        ],
        0,
        [RENAMED, ("remove", "e")],
    ),
    "without a name": ([entry("a", "dead", name=None)], 2, []),
}


@pytest.mark.parametrize("name", ROOM)
def test_room(name: str, tmp_path: Path) -> None:
    entries, keep, expected = ROOM[name]
    api = Api(*entries)
    make_room(api, "demo", keep, Run(root=tmp_path, log=tmp_path / "log", agent=lambda _node: None), store=STORE)
    assert api.did == expected


def test_a_container_of_an_image_that_was_made_of_a_lane_is_not_ours(tmp_path: Path) -> None:
    """`docker commit` of a lane keeps the lane's labels in the image, and each container of that inherits them."""
    labels = {"sparkbuild.recipe": "demo", "sparkbuild.launch": "l1"}
    copies = [{**entry(letter, state, name=letter), "ImageID": "copy", "Labels": labels}
              for letter, state in (("a", "running"), ("b", "exited"), ("c", "created"))]  # fmt: skip
    lane = {**entry("d"), "ImageID": "copy", "Labels": {**labels, "sparkbuild.launch": "l2"}}
    strange = {**entry("e", "running", name="else"), "ImageID": "gone"}
    api = Api(*copies, lane, strange)
    api.images["copy"] = labels
    make_room(api, "demo", 0, Run(root=tmp_path, log=tmp_path / "log", agent=lambda _node: None), store=STORE)
    assert [step[:2] for step in api.did] == [("rename", "d"), ("remove", "d")]


@pytest.mark.parametrize("state", ["running", "paused", "restarting"])
def test_one_that_lives_is_left_alone(state: str, tmp_path: Path) -> None:
    api = Api(entry("a", state, created=9, name="renamed"))
    with pytest.raises(EngineDiedError) as raised:
        make_room(api, "demo", 0, Run(root=tmp_path, log=tmp_path / "log", agent=lambda _node: None), store=STORE)
    assert raised.value.what == "container renamed of lane demo runs"
    assert api.did == []


TAKEN = 'Conflict. The container name "/sparkbuild-demo" is already in use by container "0123". You have to remove it'
TOLD: dict[str, tuple[Exception, type[SparkbuildError], list[str]]] = {
    "a name": (
        docker.errors.APIError("409", explanation=TAKEN),
        SparkbuildError,
        [
            "its container's name is taken by one that is not ours",
            "node dgx1",
            TAKEN,
            "next:   on dgx1: docker rename sparkbuild-demo sparkbuild-demo-old, or docker rm -f sparkbuild-demo when",
        ],
    ),
    "anything": (
        docker.errors.APIError("500", explanation="no such device"),
        SparkbuildError,
        ["lane demo: docker refuses", "node dgx1", "no such device", "next:   mend what docker names"],
    ),
    "a full disk": (
        docker.errors.APIError("500", explanation="mkdir /var/lib/docker/overlay2/x: no space left on device"),
        SpaceError,
        ["lane demo: docker's disk is full", "node dgx1", "overlay2/x", "next:   on dgx1: docker system df"],
    ),
    "no words": (docker.errors.APIError("500 Server Error"), SparkbuildError, ["docker refuses", "500 Server Error"]),
    "an image": (
        docker.errors.ImageNotFound("404", explanation="No such image: x"),
        SparkbuildError,
        ["No such image"],
    ),
    "docker-py": (docker.errors.DockerException("x"), NodeError, ["docker on dgx1 does not answer", "x"]),
    "time": (requests.exceptions.ReadTimeout("read timed out"), NodeError, ["does not answer", "read timed out"]),
    "the connection": (ConnectionResetError("reset"), NodeError, ["does not answer", "reset"]),
}


@pytest.mark.parametrize("name", TOLD)
def test_what_is_told(name: str) -> None:
    error, kind, texts = TOLD[name]
    with pytest.raises(SparkbuildError) as raised, told("dgx1", "lane demo"):
        raise error
    assert type(raised.value) is kind
    for text in texts:
        assert text in str(raised.value)


def test_what_is_ours_is_told_as_it_is() -> None:
    with pytest.raises(SparkbuildError, match="already told"), told("dgx1", "lane demo"):
        raise SparkbuildError("already told")
