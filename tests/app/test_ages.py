"""How long a lane has been up: from its launch on, by the clock of the node that wrote the times down."""

from __future__ import annotations

import io
import time
from types import SimpleNamespace
from typing import Any

import pytest

from sparkbuild.app.stops import Stop
from sparkbuild.plugin.commands import status
from sparkbuild.plugin.commands.status import Status
from tests.serving.test_state import lives, record

BEHIND = 5 * 3600.0  # seconds that the node's clock is behind ours


def shown(monkeypatch: pytest.MonkeyPatch, now: float, **times: float) -> str:
    fact = lives(of=record(container="", pid=4711, host="127.0.0.1", model_id="m", lock="l@12", **times), now=now)
    monkeypatch.setattr(status, "look", lambda _agent, nodes, _ask: dict.fromkeys(nodes, fact))
    command: Any = Status.__new__(Status)
    opened = SimpleNamespace(
        stops=lambda: {"demo": Stop(("dgx1",), 15.0)},
        nodes=SimpleNamespace(agent=None),
        catalog=SimpleNamespace(names=SimpleNamespace(problems={})),
    )
    monkeypatch.setattr(Status, "opened", opened)
    command.outstream = io.StringIO()
    command._print_living(command._row("demo", None))
    return str(command.outstream.getvalue())


def test_up_is_from_the_launch_and_not_from_its_gates(monkeypatch: pytest.MonkeyPatch) -> None:
    now = time.time()
    assert ", up 10 min" in shown(monkeypatch, now, launched_at=now - 600, served_at=now - 23)


def test_ages_are_by_the_clock_of_the_node(monkeypatch: pytest.MonkeyPatch) -> None:
    now = time.time() - BEHIND
    assert ", up 10 min" in shown(monkeypatch, now, launched_at=now - 600, served_at=now - 23)
