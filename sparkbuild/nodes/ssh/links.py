"""The ssh connections of one run: one to each server, nodes and jump hosts alike."""

from __future__ import annotations

import threading

from sparkbuild.nodes.ssh.config import Target
from sparkbuild.nodes.ssh.link import Link


class Network:
    """Links by target; making one connects nowhere. `own` is the workspace's known_hosts file."""

    def __init__(self, own: str) -> None:
        self._own = own
        self._links: dict[Target, Link] = {}
        self._guard = threading.Lock()

    def link(self, target: Target) -> Link:
        """The connection to a server."""
        via = self.link(target.via) if target.via else None
        with self._guard:
            if target not in self._links:
                self._links[target] = Link(target, via, self._own)
            return self._links[target]

    def close(self) -> None:
        """End all of them, those through others first."""
        with self._guard:
            links, self._links = self._links, {}
        for link in sorted(links.values(), key=lambda link: -_depth(link.target)):
            link.close()


def _depth(target: Target) -> int:
    return 1 + _depth(target.via) if target.via else 0
