"""What a node makes of an engine's answers: a state and a reason, in seconds, whatever comes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import cast

import pytest

from sparkbuild.agent.lane.answers import TIMEOUT, answers
from sparkbuild.agent.wire.records import LaneRecord
from tests.bad_engine import MODEL_ID, MODES, Bad, running


@pytest.fixture(scope="module")
def engine() -> Iterator[Bad]:
    with running() as bad:
        yield bad


@pytest.mark.parametrize("mode", sorted(MODES))
def test_an_answer_or_a_problem(engine: Bad, mode: str) -> None:
    engine.become(mode)
    began = time.monotonic()
    fact = answers(cast("LaneRecord", {"host": engine.host, "port": engine.port}), [engine.host])
    assert time.monotonic() - began < 2 * TIMEOUT + 4
    if mode == "fine" or mode.startswith(("chat-", "talkative")):
        assert fact == {"answers": True, "served_ids": [MODEL_ID]}
    else:
        assert fact["answers"] is False
        assert 0 < len(fact["problem"]) < 300
        assert fact["problem"].isprintable()


def test_a_guarded_engine_says_so(engine: Bad) -> None:
    engine.become("guarded")
    fact = answers(cast("LaneRecord", {"host": engine.host, "port": engine.port}), [engine.host])
    assert fact["problem"] == "/v1/models answers 401"
