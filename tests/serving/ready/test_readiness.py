"""Waiting for a lane: how long it took is said by one clock, and the way to it is opened when it listens."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from sparkbuild.core.errors import NodeError, NotReadyError
from sparkbuild.serving.ready import readiness
from sparkbuild.serving.ready.answer import NoAnswer
from tests.serving.lanes import spec
from tests.serving.ready.ranks import Ranks, ranks
from tests.serving.ready.test_answer import Server

NODE = "dgx1"


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as running:
        threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        yield running
        running.shutdown()


def record(**changes: Any) -> dict[str, Any]:
    """Of a node whose clock is five hours behind."""
    return {"launch": "l1", "host": "far.invalid", "port": 8000, "launched_at": time.time() - 5 * 3600, **changes}


def wait(nodes: Ranks, door: Any, folder: Path, timeout: float = 20) -> dict[str, Any]:
    wanted = spec(ready_timeout=timeout, model_id="m")
    return readiness.wait(wanted, (NODE,), record(), door, nodes.run(folder))


@pytest.mark.parametrize(("age", "least", "most"), [(None, 0.3, 10), (100.0, 100, 110)])
def test_seconds_are_by_the_clock_of_whoever_counts(
    server: Server, tmp_path: Path, age: float | None, least: float, most: float
) -> None:
    nodes = ranks(1)
    nodes[NODE].set(age=age)
    opened = []

    @contextmanager
    def door() -> Iterator[str]:
        opened.append(nodes[NODE].listening)
        yield f"http://127.0.0.1:{server.server_address[1]}"

    threading.Timer(0.4, nodes[NODE].set, kwargs={"listening": True}).start()
    ready = wait(nodes, door, tmp_path)
    assert least <= ready["seconds"] < most
    assert opened == [True], "not before something listens there"


def test_a_way_that_is_shut_is_tried_again_and_told(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readiness, "AGAIN", 0.3)
    nodes = ranks(1)
    nodes[NODE].set(listening=True)
    tries = []

    @contextmanager
    def door() -> Iterator[str]:
        tries.append(time.monotonic())
        if len(tries) < 3:
            raise NodeError("dgx1 does not lead on", found="its sshd forbids it (AllowTcpForwarding)")
        yield f"http://127.0.0.1:{server.server_address[1]}"

    assert wait(nodes, door, tmp_path)["text"]
    assert len(tries) == 3

    @contextmanager
    def shut() -> Iterator[str]:
        raise NodeError("dgx1 does not lead on", found="its sshd forbids it (AllowTcpForwarding)")
        yield ""

    with pytest.raises(NotReadyError) as raised:
        wait(nodes, shut, tmp_path, 1.0)
    assert "it listens, and is not reached from here" in raised.value.found
    assert "AllowTcpForwarding" in raised.value.found


def test_a_last_try_without_time_does_not_hide_what_was_answered(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes = ranks(1)
    nodes[NODE].set(listening=True)
    end = time.monotonic() + 1.0

    def answers(*_args: object, **_options: object) -> None:
        if time.monotonic() < end:
            raise NoAnswer("an answer of more than 8 MiB")
        raise NoAnswer("its answer does not end within 0.1 s", late=True)

    @contextmanager
    def door() -> Iterator[str]:
        yield f"http://127.0.0.1:{server.server_address[1]}"

    monkeypatch.setattr(readiness, "check", answers)
    with pytest.raises(NotReadyError) as raised:
        wait(nodes, door, tmp_path, timeout=1.5)
    assert raised.value.found.startswith("an answer of more than 8 MiB;")
