"""The ssh connections of one run, one to each server, nodes and jump hosts alike; and what is done over them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

from sparkbuild.nodes.ssh import forward, reverse
from sparkbuild.nodes.ssh.agent import SshAgent
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

    def agent(self, name: str, target: Target, store: str, *, python: str, docker: str) -> SshAgent:
        """The connection to the node of a server."""
        return SshAgent(name, store, self.link(target), python=python, docker=docker)

    def forwarded(self, target: Target, host: str, port: int) -> AbstractContextManager[tuple[str, int]]:
        """See forward.forwarded."""
        return forward.forwarded(self.link(target), host, port)

    @contextmanager
    def door(
        self, target: Target, host: str, port: int, listens_on: Callable[[], list[str]]
    ) -> Iterator[tuple[str, int]]:
        """The address here that leads to a port of a server while the block runs, its own where that is open. `host`:
        where something listens on it, as the server names it, "" for all of its addresses; `listens_on` asks it that.
        """
        is_loopback = forward.is_loopback(host)
        if not is_loopback and target.is_direct:
            outside = host or target.host
            if forward.is_open(outside, port):
                yield outside, port
                return
        inside = host or "127.0.0.1"
        if not is_loopback:  # `host` may be a name that the node does not know
            inside = next(iter(listens_on()), inside)
        with self.forwarded(target, inside, port) as place:
            yield place

    def carried_back(self, target: Target, port: int) -> tuple[int, Callable[[], None]]:
        """See reverse.carried_back."""
        return reverse.carried_back(self.link(target), port)

    def close(self) -> None:
        """End all of them, those through others first."""
        with self._guard:
            links, self._links = self._links, {}
        for link in sorted(links.values(), key=lambda link: -_depth(link.target)):
            link.close()


def _depth(target: Target) -> int:
    return 1 + _depth(target.via) if target.via else 0
