"""Blobs on their way to a node: whether they have arrived, or why they will not."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from sparkbuild.agent.wire.store import Place
from sparkbuild.core.interrupt import cancel


class Arrival:
    """Blobs on their way to a node. `sources` and `token` are where the node can ask for others of the same holder."""

    def __init__(self, sources: Sequence[Place], token: str) -> None:
        self.sources = list(sources)
        self.token = token
        self.received = 0  # bytes over the wire, once all have arrived
        self.complete = threading.Event()
        self._failed: BaseException | None = None

    def fail(self, error: BaseException) -> None:
        """They will not arrive."""
        self._failed = error
        self.complete.set()

    def check(self) -> None:
        """Raise what keeps them from arriving, if anything does."""
        if self._failed is not None:
            raise self._failed

    def wait(self) -> int:
        """Until all have arrived; returns the bytes that were received."""
        while not self.complete.wait(0.2):
            cancel.check()
        self.check()
        return self.received
