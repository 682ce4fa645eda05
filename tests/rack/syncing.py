"""The operator's side of images on a rack: a store with images in it, the goals of having them on nodes, and what
crosses the wires.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sparkbuild.app.kinds import kinds
from sparkbuild.core.goal import Goal
from sparkbuild.core.plan import OK, Verdict
from sparkbuild.core.pools import Pools
from sparkbuild.core.run import Kind, Progress, Run
from sparkbuild.nodes.cluster import Nodes, Place
from sparkbuild.nodes.facts import Observer
from tests.rack.made import Made
from tests.rack.node import Node
from tests.rack.rack import Rack

STORE = "/srv/sparkbuild"
QUIET = {"22"}  # ports that a node listens on when nothing of ours is at work


@dataclass
class Yard:
    """One run of one operator; `store` is that of this machine."""

    nodes: Nodes
    kinds: Any
    store: Path
    folder: Path

    def look(self, goal: Goal) -> Verdict:
        kind: Kind[Any] = self.kinds[goal.uri.scheme]
        return kind.judge(goal, Observer(self.kinds, self.nodes.agent).fact(goal), None)

    def why(self, goal: Goal) -> str:
        verdict = self.look(goal)
        assert verdict.state != OK
        return f"{verdict.state}: " + "; ".join(reason.text for reason in verdict.reasons)

    def sync(self, goal: Goal, report: Callable[[Progress], None] | None = None) -> int:
        """As a step does it: look, apply, look."""
        run = Run(root=self.folder, log=self.folder / f"log-{goal.node}", agent=self.nodes.agent, report=report)
        moved = int(self.kinds[goal.uri.scheme].apply(goal, self.look(goal), run))
        after = self.look(goal)
        assert after.state == OK, [reason.text for reason in after.reasons]
        return moved

    def sync_all(self, goals: Sequence[Goal]) -> list[int]:
        """At the same time."""
        with ThreadPoolExecutor(len(goals)) as pool:
            return list(pool.map(self.sync, goals))

    @property
    def log(self) -> str:
        return "".join(path.read_text() for path in sorted(self.folder.glob("log-*")))


@contextmanager
def yard(rack: Rack, folder: Path, *, user: str = "", store: str = STORE) -> Iterator[Yard]:
    """An operator of the rack, whose store is `folder/store`."""
    here = folder / "store"
    here.mkdir(parents=True, exist_ok=True)
    places = {"local": Place("local", str(here))}
    for node in rack.nodes:
        places[node.name] = Place(
            "ssh", store, node.address, user or node.user, node.port, str(node.key_file), host_key=node.host_key
        )
    nodes = Nodes(folder, places)
    try:
        yield Yard(nodes, kinds(str(folder), nodes, Pools({}), None), here, folder)
    finally:
        nodes.close()


def received(node: Node) -> int:
    """Bytes that came in over the node's cable since it booted."""
    return int(node.run(["cat", "/sys/class/net/eth0/statistics/rx_bytes"], check=True).out)


def sent(node: Node) -> int:
    return int(node.run(["cat", "/sys/class/net/eth0/statistics/tx_bytes"], check=True).out)


def listening(node: Node) -> set[str]:
    """Ports of TCP that somebody listens on."""
    out = node.run(["ss", "-Hltn"], check=True).out
    return {line.split()[3].rpartition(":")[2] for line in out.splitlines()}


def names(node: Node) -> set[str]:
    """Names of images in the node's docker."""
    return set(node.docker("images", "--format", "{{.Repository}}:{{.Tag}}").out.split())


def spool(node: Node) -> list[str]:
    """What lies where blobs arrive."""
    folder = node.path(f"{STORE}/incoming")
    return sorted(path.name for path in folder.iterdir() if path.name != ".lock") if folder.exists() else []


def forget(node: Node, *made: Made) -> None:
    """The node as before: without these images, and without what arrived of them."""
    node.docker.start()
    for image in made:
        node.docker("image", "rm", "-f", image.reference, check=False)
    node.docker("image", "prune", "-f")
    node.run(["rm", "-rf", f"{STORE}/incoming"], check=True)
