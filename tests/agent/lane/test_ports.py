"""Who holds a port, when it is a container whose processes are hidden from us."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sparkbuild.agent.lane import ports
from sparkbuild.agent.wire.lanelabels import store_id
from tests.agent.fake_docker import Engine, running

STORE = "/srv/sparkbuild"
HIDDEN = {"pid": 0, "command": "a process of another user", "user": ""}
SEEN = {"pid": 77, "command": "python serve.py", "user": "root"}


@pytest.fixture
def docker(tmp_path: Path) -> Iterator[Engine]:
    with running(tmp_path) as made:
        made.add("a", "exited", recipe="old", port="8000")
        made.add("b", "running", recipe="else", port="9000")
        made.add("c", "running", recipe="demo", port="8000")
        made.add("d", "running", recipe="worker", port="0")
        made.add("e", "running", recipe="his", port="7000", store=store_id("/home/ann/store"))
        made.add("f", "running", recipe="mine", port="6000", store=store_id(STORE))
        made.add("9", "running", recipe="x", ours=False)
        yield made


@pytest.mark.parametrize(
    ("port", "found"),
    [
        (8000, {"container": "sparkbuild-demo", "lane": "demo"}),
        (7000, {"container": "sparkbuild-his", "lane": ""}),
        (6000, {"container": "sparkbuild-mine", "lane": "mine"}),
        (5000, {}),
    ],
)
def test_one_that_is_hidden(docker: Engine, port: int, found: dict[str, str]) -> None:
    assert ports.container_of(STORE, HIDDEN, port, docker.path) == found


@pytest.mark.parametrize(
    ("group", "found"),
    [
        (f"0::/system.slice/docker-{'b' * 64}.scope\n", {"container": "sparkbuild-else", "lane": "else"}),
        (f"0::/docker/{'9' * 64}\n", {}),  # a stranger's
        ("0::/user.slice\n", {}),  # no container, though the label of one names the port
    ],
)
def test_one_that_is_seen(docker: Engine, monkeypatch: pytest.MonkeyPatch, group: str, found: dict[str, str]) -> None:
    monkeypatch.setattr(ports, "text", lambda _path: group)
    assert ports.container_of(STORE, SEEN, 8000, docker.path) == found


def test_without_docker(tmp_path: Path) -> None:
    assert ports.container_of(STORE, HIDDEN, 8000, str(tmp_path / "none")) == {}
