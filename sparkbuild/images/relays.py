"""One relay for an image in a run: the first node that needs it starts it, the others join while it is open."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from sparkbuild.nodes.relay.relay import Blob, Relay

if TYPE_CHECKING:
    from sparkbuild.nodes.cluster import Nodes


class _Open:
    def __init__(self, relay: Relay) -> None:
        self.relay = relay
        self.users = 0


class Relays:
    """The relays that are open, by holder and image."""

    def __init__(self, nodes: Nodes) -> None:
        self._nodes = nodes
        self._open: dict[tuple[str, str], _Open] = {}
        self._guard = threading.Lock()

    @contextmanager
    def join(self, holder: str, key: str, folder: str, blobs: tuple[Blob, ...]) -> Iterator[Relay]:
        """The relay of an image while the block runs. Whoever leaves last ends it."""
        with self._guard:
            shared = self._open.setdefault((holder, key), _Open(Relay(self._nodes, holder, folder, blobs)))
            shared.users += 1
        try:
            yield shared.relay
        finally:
            with self._guard:
                shared.users -= 1
                last = shared.users == 0
                if last:
                    del self._open[holder, key]
            if last:
                shared.relay.close()
