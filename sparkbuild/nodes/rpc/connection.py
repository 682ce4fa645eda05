"""What a connection to a node can do: run the agent, carry bytes to the node's docker engine, and send files."""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from sparkbuild.core.errors import NodeError

OnEvent = Callable[[dict[str, Any]], None]


class Connection(Protocol):
    """The way to one node; the same for this machine and for one that is reached over ssh.

    `store` is absolute on the node. All methods may be called by several threads at once. They raise NodeError when
    the node cannot be reached, or is lost meanwhile.
    """

    name: str
    store: str

    def call(
        self,
        verb: str,
        request: Mapping[str, Any],
        on_event: OnEvent | None = None,
        *,
        final: bool = False,
    ) -> dict[str, Any]:
        """Run a verb of the agent; see core.run.Agent. The agent also learns `store` and `docker`, the path of the
        engine's socket.
        """

    def dial(self) -> socket.socket:
        """A new connection to the node's docker engine, as a connected stream socket of this machine."""

    def lost(self) -> NodeError | None:
        """Why a connection that `dial` made broke, when that is because the way to the node did; told once."""

    def put(self, path: str, source: str, sha256: str, on_event: OnEvent | None = None) -> int:
        """Send the file `source` of this machine to `path` in the node's store; returns the bytes that were sent. It
        gets its name only when it is whole and has that sha256; a broken transfer is resumed by the next.
        """

    def close(self) -> None:
        """End it; a later call would connect anew."""
