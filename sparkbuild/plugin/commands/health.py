"""`doit health [CLUSTER ...]`: which nodes are online, what holds them, and what differs between them."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, TextIO

from doit.exceptions import InvalidCommand

from sparkbuild.agent.wire.nodes import NODE, NodeAsk
from sparkbuild.app import health
from sparkbuild.app.spoken import spoken
from sparkbuild.core.errors import SparkbuildError
from sparkbuild.core.suggest import closest
from sparkbuild.nodes.ask import everywhere, look
from sparkbuild.plugin.adapters.misread import HELP, no_option
from sparkbuild.plugin.commands.base import JSON, FactCommand

if TYPE_CHECKING:
    from sparkbuild.app.catalog import Catalog
    from sparkbuild.nodes.cluster import Nodes

PREFIX = "health:"


class Health(FactCommand):
    """The command `health`."""

    name = "health"
    needs_tasks = False
    doc_purpose = "show which nodes are online, what holds them, and what differs between them"
    doc_usage = "[CLUSTER ...]"
    doc_description = "Exit code 0 when all nodes answer and nothing is wrong, 1 otherwise."
    cmd_options = (JSON,)

    def _execute(self, as_json: bool, pos_args: Any = None) -> int:  # noqa: FBT001
        return report(self, pos_args or [], self.outstream, as_json=as_json)


def spelled_as_task(command: FactCommand, words: Sequence[str], out: TextIO) -> int:
    """`doit health:4nodes health:pair --json`: the same, written as tasks are; the exit code."""
    if HELP.intersection(words):
        out.write(f"{Health(task_loader=command.loader).help()}\n")
        return 0
    names = [word for word in words if word != "--json"]
    for name in names:
        if name.startswith("-"):
            raise InvalidCommand(no_option(name.partition("=")[0], words[0], ["--json"], Health.name))
        if not name.startswith(PREFIX):
            raise InvalidCommand(
                f"{name} cannot be made along with a look at health\n  next:   doit health CLUSTER ..."
            )
    return report(command, [name.removeprefix(PREFIX) for name in names], out, as_json="--json" in words)


def report(command: FactCommand, names: Iterable[str], out: TextIO, *, as_json: bool) -> int:
    """Ask all nodes of the clusters (default: every cluster) and print; the exit code."""
    catalog, ways = command.catalog, command.opened.nodes
    chosen = _chosen(catalog, list(names))
    nodes = tuple(dict.fromkeys(node for members in chosen.values() for node in members))
    looks = everywhere(nodes, lambda node: _look(catalog, ways, node)) if nodes else {}
    every = tuple(looks.values())
    found = [health.cluster(name, [looks[node] for node in members], every) for name, members in chosen.items()]
    ok = all(one["ok"] for one in found)
    if as_json:
        out.write(json.dumps({"ok": ok, "clusters": found}, ensure_ascii=False, indent=1) + "\n")
    else:
        out.writelines(f"{spoken(line)}\n" for one in found for line in health.lines(one))
    return 0 if ok else 1


def _chosen(catalog: Catalog, names: list[str]) -> dict[str, tuple[str, ...]]:
    """The clusters that are named, with their nodes in rank order."""
    clusters = {name: cluster.nodes for name, cluster in catalog.workspace.config.clusters.items()}
    for name in names:
        if name not in clusters:
            close = closest(name, clusters)
            hint = f"\n  did you mean: {', '.join(close)}?" if close else ""
            raise InvalidCommand(f"there is no cluster {name!r}{hint}\n  wanted: {', '.join(clusters)}")
    return {name: clusters[name] for name in names} if names else clusters


def _look(catalog: Catalog, nodes: Nodes, node: str) -> health.Look:
    store = nodes.store(node)
    lanes = catalog.goals.lanes.values()
    docker = any(getattr(lane.spec, "runtime", "") == "docker" and node in lane.nodes for lane in lanes)
    began = time.time()
    try:
        fact = look(nodes.agent(node), node, NODE, NodeAsk(paths=[store]))
    except SparkbuildError as error:
        return health.Look(node, None, error)
    return health.Look(node, fact, None, began, time.time(), store, docker)
