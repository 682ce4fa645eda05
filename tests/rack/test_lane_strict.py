"""A lane on nodes that are stricter than most: one session for each connection, a firewall that lets ssh in alone."""

from __future__ import annotations

import pytest

from tests.rack.lanes import RECIPE, Lanes, record
from tests.rack.strict import firewall, sshd

pytestmark = pytest.mark.usefixtures("possible")


@pytest.mark.parametrize("sessions", [1, pytest.param(2, marks=pytest.mark.long)])
def test_from_health_to_stop_with_few_sessions_at_a_time(lanes: Lanes, sessions: int) -> None:
    first, second = lanes.nodes
    with sshd(first, f"MaxSessions {sessions}"), sshd(second, f"MaxSessions {sessions}"):
        assert "pair: 2/2 online" in lanes.ok("health:pair").out
        lanes.ok("sync:demo-ranks")
        lanes.ok(f"stage:{RECIPE}")
        assert lanes.serve()["state"] == "serving"
        assert lanes.ok("logs", RECIPE, "--rank", "1").out.strip()
        assert lanes.state() == "ok"
        lanes.ok(f"stop:{RECIPE}")
        assert lanes.left() == []


def test_a_firewall_that_lets_ssh_in_alone(lanes: Lanes) -> None:
    with firewall(lanes.nodes[0]):
        assert not lanes.answers(), "there is no direct way"
        assert lanes.serve()["state"] == "serving"
        assert lanes.state() == "ok"
        assert record(lanes.nodes[0])["gates"], "they were asked through ssh"
        assert not lanes.answers()
    assert lanes.answers(), "others reach it once they may"
