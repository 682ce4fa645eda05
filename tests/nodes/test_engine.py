"""Asking an engine: whatever it does, the answer or the reason comes in time, bounded and printable."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from sparkbuild.bench.served import identify
from sparkbuild.core.errors import GateError, NotReadyError
from sparkbuild.core.interrupt import Interrupted, cancel
from sparkbuild.gates.chat import chat
from sparkbuild.nodes.engine import Heard, SilentError, ask
from sparkbuild.serving.ready.answer import NoAnswer, check
from tests.bad_engine import MODEL_ID, MODES, Bad, running

PATIENCE = 1.0  # seconds
# seconds beside the patience that a busy machine may take
SLACK = 4.0


@pytest.fixture(scope="module")
def engine() -> Iterator[Bad]:
    with running() as bad:
        yield bad


def heard(engine: Bad, mode: str) -> Heard | SilentError:
    engine.become(mode)
    began = time.monotonic()
    try:
        return ask(engine.base_url, "/v1/models", patience=PATIENCE)
    except SilentError as error:
        return error
    finally:
        assert time.monotonic() - began < PATIENCE + SLACK


@pytest.mark.parametrize(
    ("mode", "says", "foreign", "late"),
    [
        ("hang-up", "it hangs up without an answer", False, False),
        ("silent", "it accepts requests and does not answer them within 1 s", False, True),
        ("dribble", "its answer does not end within 1 s", False, True),
        ("dribbled-head", "it accepts requests and does not answer them within 1 s", False, True),
        ("no-http", "what answers speaks no HTTP: SSH-2.0-OpenSSH_9.2p1", True, False),
        ("head-only", "its answer ends early", False, False),
        ("endless", "an answer of more than 8 MiB", False, False),
    ],
)
def test_no_answer(engine: Bad, mode: str, says: str, foreign: bool, late: bool) -> None:
    error = heard(engine, mode)
    assert isinstance(error, SilentError)
    assert (str(error), error.foreign, error.late) == (says, foreign, late)


def test_an_answer(engine: Bad) -> None:
    answer = heard(engine, "fine")
    assert isinstance(answer, Heard)
    assert answer.json()["data"][0]["id"] == MODEL_ID


def test_json_that_is_too_deep_is_none(engine: Bad) -> None:
    answer = heard(engine, "deep-json")
    assert isinstance(answer, Heard)
    with pytest.raises(ValueError, match="too deep"):
        answer.json()


def test_text_is_printable(engine: Bad) -> None:
    answer = heard(engine, "escapes")
    assert isinstance(answer, Heard)
    assert answer.text.isprintable()


def test_a_ctrl_c_ends_a_question_whatever_else_is_looked_at_meanwhile(
    engine: Bad, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine.become("silent")
    monkeypatch.setattr(cancel, "_event", threading.Event())
    monkeypatch.setattr(cancel, "_signal", 0)
    monkeypatch.setattr(cancel, "_on_stop", [])
    threading.Timer(0.2, cancel.stop, [2]).start()
    with pytest.raises(Interrupted):
        ask(engine.base_url, "/health", patience=SLACK, meanwhile=lambda: None)


def test_nobody_waits_for_a_thread_that_reads_on(engine: Bad) -> None:
    before = set(threading.enumerate())
    heard(engine, "dribble")
    time.sleep(0.5)
    assert not set(threading.enumerate()) - before


def test_who_asks_may_leave(engine: Bad) -> None:
    engine.become("silent")

    def leave() -> None:
        raise KeyError("enough")

    with pytest.raises(KeyError):
        ask(engine.base_url, "/health", patience=60, meanwhile=leave)


@pytest.mark.parametrize("mode", sorted(set(MODES) - {"fine", "talkative"}))
def test_all_who_ask_are_told_in_time(engine: Bad, mode: str) -> None:
    """Readiness, a gate and a bench: an error of their own, never another exception."""
    engine.become(mode)
    began = time.monotonic()
    with pytest.raises(NoAnswer) as told:
        check(engine.base_url, MODEL_ID, patience=PATIENCE)
    assert str(told.value).isprintable()
    with pytest.raises(GateError) as failed:
        chat(engine.base_url, {"model": MODEL_ID}, PATIENCE)
    assert failed.value.what.isprintable()
    if not mode.startswith("chat-"):
        _identify(engine)
    assert time.monotonic() - began < 3 * (PATIENCE + SLACK)


def _identify(engine: Bad, patience: float = PATIENCE) -> None:
    patch = pytest.MonkeyPatch()
    patch.setattr("sparkbuild.bench.served.TIMEOUT", patience)
    try:
        with pytest.raises(NotReadyError):
            identify(engine.base_url, MODEL_ID)
    except pytest.fail.Exception:
        assert engine.asked()
        raise
    finally:
        patch.undo()


def test_tokens_without_an_end(engine: Bad) -> None:
    engine.become("talkative")
    with pytest.raises(NoAnswer, match="its answer does not end"):
        check(engine.base_url, MODEL_ID, patience=PATIENCE)
