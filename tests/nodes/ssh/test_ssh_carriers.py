"""Why a call to a node's docker broke: only a connection that is still in use counts."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from sparkbuild.nodes.ssh import agent as ssh
from sparkbuild.nodes.ssh.agent import SshAgent


class Process:
    alive = True

    def lost(self) -> str:
        return "lost"


def test_a_connection_that_was_made_anew_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    link: Any = SimpleNamespace()
    agent = SshAgent("dgx1", "/srv", link, python="python3", docker="/run/docker.sock")
    processes = [Process(), Process()]
    made = iter(processes)
    monkeypatch.setattr(ssh, "joined", lambda _channel: None)
    monkeypatch.setattr(agent, "first_event", lambda _running: {"event": "ready"})
    monkeypatch.setattr(agent, "_begin", lambda *_: SimpleNamespace(process=next(made)))
    agent.dial()
    processes[0].alive = False
    agent.dial()
    assert agent.lost() is None, "that one was lost before, and nobody uses it"
    processes[1].alive = False
    assert agent.lost() == "lost"  # type: ignore[comparison-overlap]
