"""An environment on a node that is told to be offline: pip itself, which may ask no index, whatever it is set to."""

from __future__ import annotations

import hashlib
import socket
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sparkbuild.core.run import Run
from sparkbuild.images.venv import VenvKind
from tests.agent.driver import Answer, call
from tests.images.test_venv import goal

WHEEL = "tiny-1.0-py3-none-any.whl"


class Index:
    """An index that only counts who knocks."""

    def __init__(self) -> None:
        self.knocks = 0
        self._server = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._server.getsockname()[1]}/simple"
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                client, _ = self._server.accept()
            except OSError:
                return
            self.knocks += 1
            client.close()

    def close(self) -> None:
        self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()


@pytest.fixture
def index(monkeypatch: pytest.MonkeyPatch) -> Iterator[Index]:
    one = Index()
    monkeypatch.setenv("PIP_INDEX_URL", one.url)
    monkeypatch.setenv("PIP_FIND_LINKS", one.url)
    monkeypatch.setenv("PIP_RETRIES", "0")
    yield one
    one.close()


def wheel(folder: Path) -> str:
    """A wheel; its sha256."""
    folder.mkdir(parents=True, exist_ok=True)
    info = "tiny-1.0.dist-info"
    with zipfile.ZipFile(folder / WHEEL, "w") as archive:
        archive.writestr("tiny.py", "x = 1\n")
        archive.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n")
        archive.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{info}/RECORD", f"tiny.py,,\n{info}/METADATA,,\n{info}/WHEEL,,\n{info}/RECORD,,\n")
    return hashlib.sha256((folder / WHEEL).read_bytes()).hexdigest()


def build(store: Path, digest: str, *, offline: bool) -> Answer:
    request = {"store": str(store), "name": "tiny", "key": "a" * 64, "parts": {}, "files": {}, "imports": ["tiny"]}
    request |= {"requirements": f"tiny==1.0 --hash=sha256:{digest}\n", "python": "3.10", "offline": offline}
    return call("venv", request)


def test_without_its_wheels_it_is_refused_and_nobody_is_asked(tmp_path: Path, index: Index) -> None:
    answer = build(tmp_path / "store", "0" * 64, offline=True)
    assert (answer.code, answer.last["kind"]) == (1, "config")
    assert answer.last["what"] == "image tiny cannot be installed: this node is offline, and has not all of its wheels"
    assert answer.last["where"] == str(tmp_path / "store/wheels")
    assert "images/tiny/requirements.lock" in answer.last["next"]
    assert index.knocks == 0


def test_with_its_wheels_it_is_installed(tmp_path: Path, index: Index) -> None:
    digest = wheel(tmp_path / "store/wheels")
    answer = build(tmp_path / "store", digest, offline=True)
    assert answer.code == 0, answer.events
    assert index.knocks == 0


def test_a_node_that_is_not_offline_asks(tmp_path: Path, index: Index) -> None:
    assert build(tmp_path / "store", "0" * 64, offline=False).code == 1
    assert index.knocks > 0


def test_the_agent_is_told(tmp_path: Path) -> None:
    asked: list[dict[str, Any]] = []

    class Agent:
        def call(self, verb: str, request: Any, on_event: Any = None, *, final: bool = False) -> dict[str, Any]:
            del verb, on_event, final
            asked.append(dict(request))
            return {"bytes": 1}

    for path in goal().spec.files, (goal().spec.requirements,):
        for name in path:
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text("")
    run = Run(root=tmp_path, log=tmp_path / "log", agent=lambda _node: Agent())
    kind = VenvKind(str(tmp_path), lambda node: node == "dgx2")
    for node in ("dgx1", "dgx2"):
        kind.apply(goal(node), kind.judge(goal(node), {"present": False}, None), run)
    assert [one["offline"] for one in asked] == [False, True]
