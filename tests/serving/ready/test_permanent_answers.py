"""Waiting for an engine that will never be ready as it is: the wait ends, and says what was answered."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest

from sparkbuild.core.errors import EngineDiedError, NotReadyError, SparkbuildError
from sparkbuild.serving.ready import readiness
from tests.bad_engine import MODEL_ID, Bad, running
from tests.serving.lanes import spec
from tests.serving.ready.ranks import ranks
from tests.workspace_tool import until


@pytest.fixture(scope="module")
def engine() -> Iterator[Bad]:
    with running() as bad:
        yield bad


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readiness, "SETTLED", 0.3)


def waited(engine: Bad, folder: Path, ready_timeout: float = 60.0) -> SparkbuildError | dict[str, object]:
    nodes = ranks(1)
    (node,) = nodes.values()
    node.set(listening=True)
    lane = spec(ready_timeout=ready_timeout, model_id=MODEL_ID)
    record = {"launched_at": time.time(), "launch": "l1", "host": engine.host, "port": engine.port}
    try:
        return readiness.wait(lane, tuple(nodes), record, lambda: nullcontext(engine.base_url), nodes.run(folder))
    except SparkbuildError as error:
        return error
    finally:
        until(lambda: not node.watchers)


@pytest.mark.parametrize(
    ("mode", "found", "next_"),
    [
        ("401", "/health answers 401: ", "wants a key"),
        ("403", "/health answers 403: ", "wants a key"),
        ("guarded", "/v1/models answers 401: ", "wants a key"),
        ("404", "/health and /v1/models answer 404", "no engine"),
        ("html", "/v1/models answers with a page: <!doctype html>", "no engine"),
        ("no-http", "what answers speaks no HTTP: SSH-2.0-OpenSSH", "no engine"),
        ("chat-404", "a chat completion answers 404: ", "what the engine says"),
        ("chat-400", "this model has no chat template", "what the engine says"),
    ],
)
def test_what_waiting_does_not_change(engine: Bad, tmp_path: Path, mode: str, found: str, next_: str) -> None:
    engine.become(mode)
    began = time.monotonic()
    error = waited(engine, tmp_path)
    assert time.monotonic() - began < 20
    assert isinstance(error, NotReadyError), error
    assert "will not be ready by waiting; it is left running" in error.what
    assert found in error.found
    assert next_ in error.next


@pytest.mark.parametrize("mode", ["500", "503", "hang-up", "chat-500", "deep-json", "dribble", "chat-silent", "silent"])
def test_what_may_change_is_waited_for(engine: Bad, tmp_path: Path, mode: str) -> None:
    engine.become(mode)
    error = waited(engine, tmp_path, 1.5)
    assert isinstance(error, NotReadyError), error
    assert "was not ready after 1.5 s; it is left running" in error.what


def test_a_key_that_was_wanted_for_a_moment_alone(engine: Bad, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy that is there before the engine."""
    monkeypatch.setattr(readiness, "SETTLED", 3.0)
    engine.become("401")
    asked = engine.asked()

    def mend() -> None:
        until(lambda: engine.asked() > asked + 2)
        engine.become("fine")

    threading.Thread(target=mend).start()
    ready = waited(engine, tmp_path)
    assert isinstance(ready, dict), ready
    assert ready["text"] == "4"


def test_a_rank_that_dies_while_it_is_asked(engine: Bad, tmp_path: Path) -> None:
    engine.become("silent")
    nodes = ranks(1)
    (node,) = nodes.values()
    node.set(listening=True)
    asked = engine.asked()

    def kill() -> None:
        until(lambda: engine.asked() > asked)
        node.die("CUDA error")

    threading.Thread(target=kill).start()
    record = {"launched_at": time.time(), "host": engine.host, "port": engine.port}
    with pytest.raises(EngineDiedError):
        readiness.wait(
            spec(ready_timeout=60.0), tuple(nodes), record, lambda: nullcontext(engine.base_url), nodes.run(tmp_path)
        )
