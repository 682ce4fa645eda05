"""Launching a lane: the facts of its nodes, the ranks made from them, and their start, head first."""

from __future__ import annotations

import os
from base64 import b64encode
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from sparkbuild.agent.wire.lanes import PREPARE, LaneAsk, PrepareAsk, PrepareResult
from sparkbuild.agent.wire.nodes import PreflightAsk
from sparkbuild.agent.wire.records import LaneRecord
from sparkbuild.core.errors import ConfigError, NodeError, SparkbuildError
from sparkbuild.core.goal import Goal
from sparkbuild.core.run import Progress, Run
from sparkbuild.core.secrets import read_secrets
from sparkbuild.core.templates.errors import TemplateError
from sparkbuild.nodes.ask import everywhere
from sparkbuild.serving import lane, places, ranks
from sparkbuild.serving.lane import LaneSpec
from sparkbuild.serving.launch import container, fabric, preflight, render
from sparkbuild.serving.launch.asked import NodeSeen, check, see
from sparkbuild.serving.launch.elsewhere import Elsewhere
from sparkbuild.serving.launch.hold import operator
from sparkbuild.serving.launch.mounted import Mounted
from sparkbuild.serving.launch.render import Launch, Rank
from sparkbuild.serving.launch.runtime import Order, start_process
from sparkbuild.serving.ranks import LaneSeen, ranks_of
from sparkbuild.workspace.toml.tomlfile import located

if TYPE_CHECKING:
    from sparkbuild.nodes.cluster import Nodes


class Launcher:
    """What is known of the nodes is asked once per run and goal, and anew right before a launch."""

    def __init__(self, root: str, nodes: Nodes) -> None:
        self._root = root
        self._nodes = nodes
        self._known: dict[str, dict[str, NodeSeen]] = {}
        self._mounted = Mounted(nodes.agent)

    def _start(self, order: Order, run: Run) -> LaneRecord:
        """Start one rank; one that fails to start leaves nothing that runs. A third runtime is a new file and a line
        here.
        """
        if order.goal.spec.runtime == "docker":
            from sparkbuild.serving.launch.dockerruntime import start_container  # noqa: PLC0415 - docker-py, 170 ms

            return start_container(self._nodes.docker(order.rank.node).api, order, run)
        return start_process(order, run)

    def is_plain(self, goal: Goal) -> bool:
        """One process on this machine: there is nothing to ask of other nodes or of docker."""
        return (
            len(goal.nodes) == 1
            and goal.spec.runtime == "process"
            and self._nodes.place(goal.nodes[0]).connection == "local"
        )

    def facts(self, goal: Goal, *, again: bool = False) -> dict[str, NodeSeen]:
        """What the nodes of a goal say of themselves, in rank order. Raises NodeError when one is silent."""
        known = None if again else self._known.get(goal.target)
        if known is None:
            spec: LaneSpec = goal.spec
            known = see(self._nodes.agent, goal.nodes, [spec.image] if spec.runtime == "docker" else [])
            silent = [f"{node}: {fact['unreachable']}" for node, fact in known.items() if "unreachable" in fact]
            if silent:
                raise NodeError(
                    f"not all nodes of lane {spec.recipe} answer", found="\n".join(silent), next="doit health"
                )
            self._known[goal.target] = known
        return known

    def launches(self, goal: Goal, *, again: bool = False) -> tuple[tuple[Rank, Launch], ...]:
        """Every rank with its exact argv and environment. Raises ConfigError for what the recipe has wrong."""
        spec: LaneSpec = goal.spec
        secrets = read_secrets(self._root, spec.secrets, f"{spec.folder}/recipe.toml")
        fabrics: tuple[fabric.Fabric, ...] = (fabric.alone(goal.nodes[0]),)
        if not self.is_plain(goal):
            fabrics = fabric.choose(spec.cluster, spec.fabric, self.facts(goal, again=again))
        launches = []
        manifests = self._mounted.of(goal)
        for number, (node, place) in enumerate(zip(goal.nodes, fabrics, strict=True)):
            store = self._nodes.store(node)
            if self.is_plain(goal):  # the workspace itself for a process of this machine
                files = os.path.join(self._root, spec.folder)
            else:
                files = os.path.join(store, "lanes", spec.recipe, lane.files_folder(goal.inputs)) if goal.inputs else ""
            rank = Rank(
                node=node,
                rank=number,
                world_size=len(goal.nodes),
                store=store,
                host=self._nodes.address(node),
                head=fabrics[0].address,
                fabric=place,
                files=files,
            )
            try:
                launch = render.launch(spec, rank, secrets, manifests.get(node))
            except TemplateError as error:
                raise located(error, self._root) from error
            if spec.runtime == "docker":
                container.entrypoint(spec, spec.image_entrypoint, launch.argv)
            launches.append((rank, launch))
        return tuple(launches)

    def problems(self, goal: Goal, fact: LaneSeen) -> list[str]:
        """What a launch would fail of. Asks the nodes about what the launch needs of them."""
        seen = ranks_of(goal, fact)
        replaces = any(rank.alive for rank in seen)
        refusals = preflight.refusals(goal, seen, replaces=replaces)
        refusals += self.elsewhere(goal, fact).refusals(goal)
        launches = self.launches(goal)
        spec: LaneSpec = goal.spec
        if self.is_plain(goal) and not spec.min_memory:
            return refusals
        addresses = [rank.fabric.address for rank, _ in launches]
        devices = [text.partition(":")[0] for text in spec.docker.devices] if spec.runtime == "docker" else []
        asks: dict[str, PreflightAsk] = {}
        for rank, launch in launches:
            # made by the steps before the launch; what an export binds is on the NAS, and must be there
            ours = (*render.staged(rank, spec).values(), *render.exports(rank, spec).values(), rank.store)
            paths = [bind.source for bind in launch.mounts if not bind.source.startswith(ours)]
            peers = [address for address in addresses if address != rank.fabric.address]
            asks[rank.node] = PreflightAsk(paths=paths, devices=devices, peers=peers)
            if not self.is_plain(goal):  # a lane of this machine lives as long as its user's login anyway
                asks[rank.node]["runtime"] = spec.runtime
            if replaces and spec.min_memory:
                asks[rank.node]["replaces"] = spec.recipe
        checks = check(self._nodes.agent, asks)
        nodes = self.facts(goal) if not self.is_plain(goal) else dict.fromkeys(goal.nodes, NodeSeen())
        return refusals + preflight.problems(goal, launches, nodes, checks)

    def elsewhere(self, goal: Goal, fact: LaneSeen) -> Elsewhere:
        """What runs of the lane on nodes that it has no more. Asks these, if there are any."""
        named = places.elsewhere(goal, ranks_of(goal, fact), self._root)
        known = [node for node in named if node in self._nodes.names]
        ask = LaneAsk(recipe=goal.spec.recipe, port=0, runtime=goal.spec.runtime)
        facts = ranks.look(self._nodes.agent, known, ask) if known else {}
        return Elsewhere(facts, tuple(node for node in named if node not in known))

    def look(self, goal: Goal) -> LaneSeen:
        """The lane's fact, now, as the observer would give it."""
        ask = LaneAsk(recipe=goal.spec.recipe, port=goal.spec.port, runtime=goal.spec.runtime)
        return ranks.fact_of(goal, ranks.look(self._nodes.agent, goal.nodes, ask))

    def check_consistency(self, goal: Goal) -> None:
        """Raise when the ranks would not run the same."""
        if self.is_plain(goal):
            return
        facts = self.facts(goal, again=True)
        refuse(goal, preflight.before_stop(goal.spec, self.launches(goal), facts))
        reasons = preflight.consistency(goal.spec, facts)
        if reasons:
            raise SparkbuildError(
                f"lane {goal.spec.recipe} is not launched: its nodes do not agree",
                found="\n".join(reasons),
                wanted="the same image and the same driver on all ranks",
                next="doit health",
            )

    def start(self, goal: Goal, run: Run, number: str, started: list[str], check: Callable[[], None]) -> LaneRecord:
        """Start all ranks, the head first; returns the head's record. `number` names the launch. `started` gets the
        nodes on which one runs: the caller takes them down when this raises. `check` raises when the nodes are not held
        any more.
        """
        self._mounted.of(goal, again=True)
        launches = self.launches(goal)
        refuse_pending(goal, launches)
        by = operator()
        run.report(Progress("launch"))
        folders = self._prepare(goal, launches, number, run)
        orders = {
            rank.node: Order(goal, rank, launch, number, folders[rank.node]["secrets"], by) for rank, launch in launches
        }
        for order in orders.values():
            for name, value in order.launch.shown_env().items():
                run.note(f"{order.rank.node} env {name}={value}" if len(orders) > 1 else f"env {name}={value}")
        head, *workers = orders

        def start(node: str) -> LaneRecord:
            check()
            record = self._start(orders[node], run)
            started.append(node)
            return record

        record = start(head)
        if workers:
            everywhere(tuple(workers), start)
        return record

    def _prepare(
        self, goal: Goal, launches: tuple[tuple[Rank, Launch], ...], number: str, run: Run
    ) -> Mapping[str, PrepareResult]:
        spec: LaneSpec = goal.spec
        in_files = spec.runtime == "docker"
        if self.is_plain(goal) or (not goal.inputs and not (in_files and spec.secrets)):
            return dict.fromkeys(goal.nodes, PrepareResult(files="", secrets=""))
        contents = {item.path: (Path(self._root) / item.path).read_bytes() for item in goal.inputs}
        files = {path.removeprefix(f"{spec.folder}/"): b64encode(data).decode() for path, data in contents.items()}
        secrets = {rank.node: launch.secrets if in_files else {} for rank, launch in launches}

        def prepare(node: str) -> PrepareResult:
            folder = lane.files_folder(goal.inputs)
            ask = PrepareAsk(recipe=spec.recipe, launch=number, folder=folder, files=files, secrets=secrets[node])
            return run.call(node, PREPARE, ask)

        return everywhere(goal.nodes, prepare)


def refuse_pending(goal: Goal, launches: tuple[tuple[Rank, Launch], ...]) -> None:
    """Raise when a node has no manifest of an export any more: it says what is bound onto the empty files."""
    pending = [f"{rank.node}: {name}" for rank, launch in launches for name in launch.pending]
    if pending:
        raise SparkbuildError(
            f"lane {goal.spec.recipe} is not launched: its exports are not as they were made",
            found="\n".join(pending),
            wanted="each with its mount manifest",
            next=f"doit stage:{goal.spec.recipe}",
        )


def refuse(goal: Goal, reasons: list[str]) -> None:
    """Raise when there are any."""
    if reasons:
        raise refused(goal, reasons)


def refused(goal: Goal, reasons: list[str]) -> SparkbuildError:
    """All reasons in one error."""
    return ConfigError(
        f"lane {goal.spec.recipe} cannot be launched",
        where=f"cluster {goal.spec.cluster}: {', '.join(goal.nodes)}",
        found="\n".join(reasons),
        next=f"doit plan serve:{goal.spec.recipe}, when that is mended",
    )
