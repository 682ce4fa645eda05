"""Nothing is sent on a channel after its close, whoever is in the middle of sending when the other side closes it."""

from __future__ import annotations

import threading
from typing import Any

import paramiko
import pytest

from sparkbuild.nodes.ssh.channel import Channel, Transport, own

DATA, EOF, CLOSE = 94, 96, 97  # RFC 4254, 9


class Recorder(Transport):
    """A transport without a wire. `before` runs when a message is about to be sent, as another thread would."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.sent: list[int] = []
        self.before: Any = None
        self._channels: Any = self
        self.active = True

    def delete(self, number: int) -> None:
        """As a map of channels."""

    def get_log_channel(self) -> str:
        return "test"

    def _send_user_message(self, data: Any) -> None:
        before, self.before = self.before, None
        if before is not None:
            before()
        self._send_message(data)


@pytest.fixture
def wire(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    monkeypatch.setattr(paramiko.Transport, "_send_message", lambda self, data: self.sent.append(data.asbytes()[0]))
    return Recorder()


def channel(wire: Recorder) -> Channel:
    made = paramiko.Channel(0)
    made._set_transport(wire)  # type: ignore[attr-defined]
    made._set_window(1 << 20, 1 << 15)  # type: ignore[attr-defined]
    made._set_remote_channel(7, 1 << 20, 1 << 15)  # type: ignore[attr-defined]
    return own(made)


@pytest.mark.parametrize("what", ["data", "end", "both"])
def test_the_other_side_closes_it_between_the_look_and_the_sending(wire: Recorder, what: str) -> None:
    ours = channel(wire)
    ours.send(b"before")
    wire.before = lambda: ours._handle_close(paramiko.Message())  # type: ignore[attr-defined]
    if what == "data":
        ours.send(b"late")
    elif what == "end":
        ours.shutdown_write()
    else:
        ours.shutdown(2)
    assert wire.sent[0] == DATA
    assert wire.sent[-1] == CLOSE, "and nothing after it"
    assert wire.sent.count(CLOSE) == 1


def test_what_is_open_is_sent(wire: Recorder) -> None:
    ours = channel(wire)
    assert ours.send(b"x") == 1
    ours.shutdown_write()
    ours.close()
    assert wire.sent == [DATA, EOF, CLOSE]
