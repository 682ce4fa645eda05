"""A transport and channels that never send on a channel which is closed by now.

paramiko looks whether a channel is open, lets go of the channel's lock, and sends. When the other side closes it in
between, the transport's thread has answered that already, and the data comes after our own close: to sshd a "packet
referred to nonexistent channel", for which it ends the whole connection. The lock cannot be held while sending (a new
exchange of keys would wait for it), so a message knows its channel, and is looked at once more where all messages are
sent one after the other: there, whoever sees the channel open is in front of its close.
"""

from __future__ import annotations

import time
from typing import Any

import paramiko
from paramiko.packet import Packetizer

from sparkbuild.nodes.ssh import certificates

_CONNECT_FAILED = 2  # RFC 4254, 5.1


class Ears(Packetizer):  # type: ignore[misc, unused-ignore]
    """Knows when the other side was last heard."""

    heard = 0.0

    def read_message(self) -> tuple[int, paramiko.Message]:
        """As paramiko's."""
        found: tuple[int, paramiko.Message] = super().read_message()
        self.heard = time.monotonic()
        return found


class Transport(paramiko.Transport):
    """See above. What takes a channel from it that the other side has opened makes it a `Channel` by `own`."""

    prefers_certificates = False  # of the server, to its keys alone

    @property
    def preferred_keys(self) -> tuple[str, ...]:
        """As paramiko's, which has certificates last."""
        names = tuple(super().preferred_keys)
        if not self.prefers_certificates:
            return names
        return tuple(sorted(names, key=lambda name: not name.endswith(certificates.SUFFIX)))

    def opened(self, kind: str, timeout: float, to: tuple[str, int] | None = None) -> Channel:
        """A new channel. ChannelException when the other side refuses it, whoever else is refused at the same time."""
        try:
            return own(self.open_channel(kind, to, ("127.0.0.1", 0), timeout=timeout))
        except paramiko.ChannelException:
            raise
        except paramiko.SSHException as error:
            # of several refusals at once, paramiko tells one thread why, and the others this
            if str(error) == "Unable to open channel." and self.is_active():
                raise paramiko.ChannelException(_CONNECT_FAILED, str(error)) from error
            raise

    def _send_message(self, data: Any) -> None:
        # called with the lock that all of a transport's messages are sent under
        channel = getattr(data, "channel", None)
        if channel is None or not channel.closed:
            super()._send_message(data)  # type: ignore[misc]


class Channel(paramiko.Channel):
    """See above."""

    def _send(self, data: bytes, message: Any) -> int:
        message.channel = self
        return super()._send(data, message)  # type: ignore[misc, no-any-return]

    def shutdown(self, how: int) -> None:
        """As paramiko's; the end of what is sent is a message as well."""
        if how == 0:
            super().shutdown(how)
            return
        with self.lock:
            self.eof_received = self.eof_received or how == 2
            message = self._send_eof()  # type: ignore[attr-defined]
        if message is not None and self.transport is not None:
            message.channel = self
            self.transport._send_user_message(message)  # type: ignore[attr-defined] # noqa: SLF001 - as paramiko's own


def own(channel: paramiko.Channel) -> Channel:
    """A channel that paramiko made, as one of ours; nothing was sent on it yet."""
    channel.__class__ = Channel
    return channel  # type: ignore[return-value]
