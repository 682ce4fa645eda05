"""What tests of connections share: a rack's nodes as config.toml would name them, a home of their own, a long call."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sparkbuild.nodes.cluster import Nodes, Place
from tests.rack.node import Node
from tests.rack.proc import wait_for
from tests.rack.rack import Rack

STORE = "/srv/sparkbuild"
SYSTEM_PYTHON = "/usr/bin/python3"
LOOK = {"queries": [{"scheme": "artifact", "sha256": "a" * 64, "filename": "x"}]}
NOTHING = {"facts": [{"present": False, "bytes": 0}]}


def place(node: Node, **fields: Any) -> Place:
    """The node by its address, opened by the rack's key."""
    given = {"address": node.address, "user": "root", "key": str(node.key_file), "python": SYSTEM_PYTHON}
    return Place(**{"connection": "ssh", "store": STORE, **given, **fields})


def workspace(root: Path, rack: Rack) -> Path:
    """A folder whose known_hosts has the keys the rack's nodes have now."""
    root.mkdir(parents=True, exist_ok=True)
    lines = [f"{node.address} {node.host_key}\n" for node in rack.nodes]
    (root / "known_hosts").write_text("".join(lines))
    return root


@contextmanager
def reached(root: Path, places: dict[str, Place]) -> Iterator[Nodes]:
    nodes = Nodes(root, places)
    try:
        yield nodes
    finally:
        nodes.close()


# A call that goes on until it is ended: it opens a pipe that nobody writes to.
ENDLESS = {"sha256": "b" * 64, "filename": "endless", "wheel": "", "url": "file:/srv/endless", "root": "/"}


def endless(node: Node) -> None:
    node.run(["sh", "-c", "test -p /srv/endless || mkfifo /srv/endless"], check=True)


def agents(node: Node, verb: str = "fetch") -> list[str]:
    """The pids of what is at work on a node with a verb."""
    lines = node.run(["ps", "-eo", "pid,comm"]).out.splitlines()
    return [line.split()[0] for line in lines if line.split()[1:] == ["agent", verb]]


def wait_for_agents(node: Node, count: int, verb: str = "fetch", timeout: float = 15) -> None:
    wait_for(f"{count} agents at work on {node.name}", lambda: len(agents(node, verb)) == count, timeout)


@contextmanager
def ssh_agent(folder: Path) -> Iterator[dict[str, str]]:
    """A running ssh-agent without keys; its environment."""
    path = folder / "agent.sock"
    with subprocess.Popen(["ssh-agent", "-D", "-a", str(path)], stdout=subprocess.DEVNULL) as process:
        try:
            wait_for("the ssh-agent starts", path.exists)
            yield {**os.environ, "SSH_AUTH_SOCK": str(path)}
        finally:
            process.terminate()
