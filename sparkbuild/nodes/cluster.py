"""The nodes of a workspace and the connection to each, made when first used."""

from __future__ import annotations

import os
import threading
from collections.abc import Container, Mapping
from pathlib import Path

import msgspec

from sparkbuild.core.errors import NodeError
from sparkbuild.nodes.ahead import Ahead
from sparkbuild.nodes.local import LocalAgent


class Place(msgspec.Struct, frozen=True):
    """How a node is reached and where its store is, as config.toml says it."""

    connection: str
    store: str


class Nodes:
    """One connection per node and run."""

    def __init__(self, root: Path, places: Mapping[str, Place], ahead: Ahead | None = None) -> None:
        self._root = root
        self._ahead = ahead
        self._places = dict(places)
        self._agents: dict[str, LocalAgent] = {}
        self._guard = threading.Lock()

    def store(self, node: str) -> str:
        """The node's store as an absolute path on the node."""
        if node not in self._places:
            raise NodeError(f"there is no node {node!r}", wanted=", ".join(self._places), where="config.toml")
        return os.path.normpath(os.path.join(self._root, self._places[node].store))

    def orphans(self, recipes: Container[str]) -> dict[str, str]:
        """Lanes of this machine's nodes that were launched, never stopped, and belong to no recipe any more (renamed,
        removed): recipe name to node. Only files are read; whether such a lane still runs is for the agent to say.
        """
        found = {}
        for node, place in self._places.items():
            folder = os.path.join(self.store(node), "lanes")
            names = os.listdir(folder) if place.connection == "local" and os.path.isdir(folder) else []
            for name in names:
                if name not in recipes and _is_open(os.path.join(folder, name, "lane.json")):
                    found[name] = node
        return found

    def agent(self, node: str) -> LocalAgent:
        """The node's agent."""
        with self._guard:
            if node not in self._agents:
                self._agents[node] = LocalAgent(node, self.store(node), self._ahead)
                self._ahead = None  # the first node's: one shortcut is what one machine needs
            return self._agents[node]


def _is_open(path: str) -> bool:
    try:
        with open(path, "rb") as file:
            record = msgspec.json.decode(file.read())
        return record.get("stopped_at") is None
    except (OSError, ValueError, AttributeError):
        return False
