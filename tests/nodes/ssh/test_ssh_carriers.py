"""Why a call to a node's docker broke: only a connection that is still in use counts."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from sparkbuild.nodes.ssh import agent as ssh
from sparkbuild.nodes.ssh.agent import SshAgent


class Transport:
    def __init__(self, *, active: bool) -> None:
        self.active = active

    def is_active(self) -> bool:
        return self.active

    def get_exception(self) -> None:
        return None


def test_a_connection_that_was_made_anew_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    link: Any = SimpleNamespace(lost=lambda _error: "lost")
    agent = SshAgent("dgx1", "/srv", link, python="python3", docker="/run/docker.sock")
    transports = [Transport(active=True), Transport(active=True)]
    made: Any = iter(transports)
    monkeypatch.setattr(ssh, "joined", lambda _channel: None)
    monkeypatch.setattr(ssh, "_NOTICED", 0.0)
    monkeypatch.setattr(agent, "_first_event", lambda _running, _verb: {"event": "ready"})

    def start(*_: Any) -> Any:
        transport = next(made)
        return SimpleNamespace(channel=SimpleNamespace(get_transport=lambda: transport))

    monkeypatch.setattr(agent, "_start", start)
    agent.dial()
    transports[0].active = False
    agent.dial()
    assert agent.lost() is None, "that one was lost before, and nobody uses it"
    transports[1].active = False
    assert agent.lost() == "lost"  # type: ignore[comparison-overlap]
