"""The nodes of a workspace and the connection to each, made when first used."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from sparkbuild.agent.wire.nodes import LISTENER, ListenerAsk
from sparkbuild.core.errors import NodeError, SparkbuildError
from sparkbuild.nodes.ask import look
from sparkbuild.nodes.local.agent import LocalAgent
from sparkbuild.nodes.local.early import Early
from sparkbuild.nodes.rpc.connection import Connection

if TYPE_CHECKING:
    import docker

    from sparkbuild.nodes.ssh.config import Target, Targets
    from sparkbuild.nodes.ssh.link import Link
    from sparkbuild.nodes.ssh.links import Network

LOCAL = "local"  # the node that every workspace has
KNOWN_HOSTS = "known_hosts"  # of the workspace: what `doit trust` recorded


class Place(msgspec.Struct, frozen=True):
    """How a node is reached and where its store is, as config.toml says it; see workspace.shapes.schema.Node."""

    connection: str
    store: str
    address: str = ""
    user: str = ""
    port: int = 0
    key: str = ""
    jump: str = ""
    host_key: str = ""
    python: str = "python3"
    docker: str = "/var/run/docker.sock"
    offline: bool = False


class Nodes:
    """One connection per node and run. Making this object, and asking for a connection, reaches no node: the first
    call does. Connecting to one node never waits for another.
    """

    def __init__(
        self, root: Path, places: Mapping[str, Place], early: Early | None = None, fabrics: Sequence[str] = ()
    ) -> None:
        self.fabrics = tuple(fabrics)  # networks that nodes talk to each other over, before any other that they share
        self._root = root
        self._early = early
        self._places = dict(places)
        self._agents: dict[str, Connection] = {}
        self._dockers: dict[str, docker.DockerClient] = {}
        self._network: Network | None = None
        self._guard = threading.Lock()  # of the dicts only: nothing is waited for while it is held

    def place(self, node: str) -> Place:
        """What config.toml says of a node."""
        if node not in self._places:
            raise NodeError(f"there is no node {node!r}", wanted=", ".join(self._places), where="config.toml")
        return self._places[node]

    def store(self, node: str) -> str:
        """The node's store as an absolute path on the node."""
        return os.path.normpath(os.path.join(self._root, self.place(node).store))

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

    def agent(self, node: str) -> Connection:
        """The connection to a node."""
        place = self.place(node)
        with self._guard:
            if node in self._agents:
                return self._agents[node]
            if place.connection == "local":
                self._refuse_open(node)
                self._agents[node] = LocalAgent(node, self.store(node), self._early, docker=place.docker)
                return self._agents[node]
        store, target = self.store(node), self.target(node)
        agent = self._ssh().agent(node, target, store, python=place.python, docker=place.docker)
        with self._guard:
            return self._agents.setdefault(node, agent)

    def _refuse_open(self, node: str) -> None:
        """Raise NodeError when others may change what lies in a store of this machine. One in the workspace is as open
        as that is: who may write there decides what runs anyway, by dodo.py.
        """
        store = self.store(node)
        if os.path.isabs(self.place(node).store):
            from sparkbuild.nodes.rpc import whose  # noqa: PLC0415 - 2 ms, and most stores are in the workspace

            found = whose.open_step(store, os.stat(self._root).st_uid)  # root works in the workspaces of users
            if found is not None:
                raise whose.refusal(f"the store of {node} is not used", node, store, found)

    def docker(self, node: str) -> docker.DockerClient:
        """The docker engine of a node: API calls only, over the node's connection. Connects; NodeError when there is
        no engine, or it may not be used. One client per node and run, for all threads.
        """
        with self._guard:
            found = self._dockers.get(node)
        if found is None:
            from sparkbuild.nodes.docker import client  # noqa: PLC0415 - costs docker

            made = client(self.agent(node), self.place(node).docker)
            with self._guard:
                found = self._dockers.setdefault(node, made)
            if found is not made:
                made.close()
        return found

    def address(self, node: str) -> str:
        """What clients use to reach the node's ports: a host name or address. Nothing is connected to."""
        place = self.place(node)
        return (place.address or "127.0.0.1") if place.connection == "local" else self.target(node).host

    @contextmanager
    def door(self, node: str, host: str, port: int) -> Iterator[str]:
        """The base URL ("http://10.0.0.11:8000") under which `host:port`, as the node listens on it, is reached from
        here while the block runs. Where there is no direct way (a loopback address of another machine, a node behind
        a jump host, a firewall that lets nothing in but ssh), connections are carried by the node's own. To be opened
        when something listens there: which of the two it is is found out by trying. NodeError when neither works.
        """
        wildcard = host in {"", "0.0.0.0", "::", "*"}  # noqa: S104 - recognised, not bound to
        if self.place(node).connection == "local":
            yield _url("127.0.0.1" if wildcard else host, port)
            return
        target, asked = self.target(node), "" if wildcard else host
        with self._ssh().door(target, asked, port, lambda: self._listens_on(node, port)) as (here, at):
            yield _url(here, at)

    def forwarded(self, node: str, host: str, port: int) -> AbstractContextManager[tuple[str, int]]:
        """The address here that leads to `host:port` as a node that is not this machine sees it, while the block runs;
        carried by its ssh connection. NodeError when its server forwards nothing.
        """
        return self._ssh().forwarded(self.target(node), host, port)

    def carried_back(self, node: str, port: int) -> tuple[int, Callable[[], None]]:
        """A port of a node's 127.0.0.1 that leads to one of this machine's, and what ends that."""
        return self._ssh().carried_back(self.target(node), port)

    def _listens_on(self, node: str, port: int) -> list[str]:
        """[] also where the node does not say."""
        try:
            return look(self.agent(node), node, LISTENER, ListenerAsk(port=port))["addresses"]
        except SparkbuildError:
            return []

    @cached_property
    def _targets(self) -> Targets:
        from sparkbuild.nodes.ssh.config import Targets  # noqa: PLC0415 - 2 ms, and many workspaces have this machine alone

        return Targets(self._places)

    def target(self, node: str) -> Target:
        """The ssh server of a node that is not this machine. Nothing is connected to; OpenSSH is asked once for it."""
        self.place(node)
        return self._targets.target(node)

    def link_to(self, target: Target) -> Link:
        """The ssh connection to a server; made when it is first used."""
        return self._ssh().link(target)

    def _ssh(self) -> Network:
        from sparkbuild.nodes.ssh.links import Network  # noqa: PLC0415 - costs paramiko

        with self._guard:
            if self._network is None:
                self._network = Network(str(self.known_hosts))
            return self._network

    def hops(self) -> dict[str, Target]:
        """The jump hosts on the way to nodes that are no nodes themselves, by name."""
        found: dict[str, Target] = {}
        for node, place in self._places.items():
            via = self.target(node).via if place.connection == "ssh" else None
            while via is not None:
                if via.name not in self._places:
                    found[via.name] = via
                via = via.via
        return found

    @property
    def known_hosts(self) -> Path:
        """The workspace's file of host keys, which `doit trust` writes."""
        return self._root / KNOWN_HOSTS

    @property
    def names(self) -> tuple[str, ...]:
        """All nodes, as config.toml has them."""
        return tuple(self._places)

    def close(self) -> None:
        """End all connections. A later call connects anew."""
        with self._guard:
            dockers, self._dockers = self._dockers, {}
            agents, self._agents = self._agents, {}
            network, self._network = self._network, None
        for client in dockers.values():
            client.close()
        for agent in agents.values():
            agent.close()
        if network is not None:
            network.close()
        if self._early is not None:
            self._early.close()


def _url(host: str, port: int) -> str:
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _is_open(path: str) -> bool:
    try:
        with open(path, "rb") as file:
            record = msgspec.json.decode(file.read())
        return record.get("stopped_at") is None
    except (OSError, ValueError, AttributeError, RecursionError):
        return False
