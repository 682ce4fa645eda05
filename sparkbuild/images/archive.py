"""How docker images are made, before they are on any node: assembled, or built on their build node; and when that is
right: by the receipt and the sha256 of each layer.
"""

from __future__ import annotations

import base64
import os
from typing import TYPE_CHECKING

from sparkbuild.agent.wire.images import (
    ARCHIVE,
    ASSEMBLE,
    ArchiveAbsent,
    ArchiveAsk,
    ArchiveFact,
    AssembleAsk,
    BuildEngine,
    DebFile,
)  # fmt: skip
from sparkbuild.core.errors import SparkbuildError
from sparkbuild.core.goal import Goal
from sparkbuild.core.plan import OK, RUN, UNKNOWN, Verdict
from sparkbuild.core.reasons import Reason, differences
from sparkbuild.core.run import Run
from sparkbuild.core.state import Made, size_again
from sparkbuild.core.units import count
from sparkbuild.images.docker import FILES, DockerSpec, reference
from sparkbuild.images.dockerfile import DockerfileSpec, missing
from sparkbuild.nodes.cluster import Nodes
from sparkbuild.nodes.unreached import Unreached, unreached

if TYPE_CHECKING:
    from sparkbuild.images.building import Builder

_EXPORT = Reason("docker", "docker has it as it was built: only the export is made", remark=True)


class ArchiveKind:
    """How docker images in stores are looked at and made."""

    scheme: str = ARCHIVE
    preflight_needs_no_node = True  # a template is filled in here

    def __init__(self, root: str, nodes: Nodes | None = None) -> None:
        self._root = root
        self._nodes = nodes  # None: nothing is built

    def query(self, goal: Goal) -> ArchiveAsk:
        """What the agent needs to look."""
        asked = ArchiveAsk(name=goal.spec.name, key=goal.key.digest)
        if isinstance(goal.spec, DockerfileSpec):
            asked |= {"builds": True, "reference": reference(goal.spec.name, goal.key)}
        return asked

    def judge(self, goal: Goal, fact: ArchiveFact | ArchiveAbsent | Unreached, last: Made | None) -> Verdict:
        """Assembled with this key and unchanged since, or why not."""
        if "unreachable" in fact:
            return unreached(goal, fact)
        if fact["present"]:
            text = f"{count(len(fact['layers']), 'layer')}, {fact['bytes'] / 1e6:.1f} MB"
            gates = f", {count(len(fact['gates']), 'gate')} passed" if fact["gates"] else ""
            return Verdict(OK, (), 0, fact, text + gates)
        if isinstance(goal.spec, DockerfileSpec) and (blocked := _blocked(goal, goal.spec, fact)):
            return Verdict(UNKNOWN, (blocked,), None, fact)
        size = fact["bytes"] if "bytes" in fact else size_again(last, goal.key.digest)
        built = (_EXPORT,) if fact.get("built") else ()
        if fact.get("problem"):
            return Verdict(RUN, (Reason("content", str(fact["problem"])), *built), size, fact)
        other = fact.get("other")
        before = other["parts"] if other else last.parts if last else None
        reasons = differences(before, goal.key.parts) if before and not built else built
        if not reasons:
            done = "assembled" if isinstance(goal.spec, DockerSpec) else "built"
            reasons = (Reason("image", f"was {done} before, is gone" if last else f"not {done} yet"),)
        return Verdict(RUN, reasons, size, fact)

    def preflight(self, goal: Goal, verdict: Verdict) -> SparkbuildError | None:
        """Why building it would fail, as far as its template tells: names that nobody knows, what it may not say."""
        if not isinstance(goal.spec, DockerfileSpec) or verdict.state == OK:
            return None
        try:
            _builder().rendered(self._root, goal.spec)
        except SparkbuildError as error:
            return error
        return None

    def apply(self, goal: Goal, verdict: Verdict, run: Run) -> int:
        """Make it; returns the bytes of its layers."""
        del verdict
        if isinstance(goal.spec, DockerfileSpec):
            if self._nodes is None:
                raise RuntimeError("there are no nodes to build on")
            return _builder()(self._root, self._nodes).build(goal.node, goal.spec, goal.key, run)
        spec: DockerSpec = goal.spec
        request = AssembleAsk(
            name=spec.name,
            reference=reference(spec.name, goal.key),
            key=goal.key.digest,
            parts=goal.key.parts,
            lock=spec.lock,
            platform=spec.platform,
            python=spec.python,
            debs=[DebFile(sha256=deb.sha256, filename=deb.filename) for deb in spec.debs],
            requirements=self._read(spec.requirements).decode() if spec.requirements else "",
            folder=FILES,
            files={os.path.basename(path): base64.b64encode(self._read(path)).decode() for path in spec.files},
            env=dict(spec.env),
            entrypoint=list(spec.entrypoint),
            command=list(spec.command),
        )
        return run.call(goal.node, ASSEMBLE, request)["bytes"]

    def _read(self, path: str) -> bytes:
        with open(os.path.join(self._root, path), "rb") as file:
            return file.read()


def _builder() -> type[Builder]:
    from sparkbuild.images.building import Builder  # noqa: PLC0415 - 10 ms, and only where something is built

    return Builder


def _advice(engine: BuildEngine, elsewhere: str) -> str:
    return f"{elsewhere} has docker" + (f"; or, on this one: {engine['next']}" if engine.get("next") else "")


def _blocked(goal: Goal, spec: DockerfileSpec, fact: ArchiveAbsent) -> Reason | None:
    """Why the image cannot be built there, as far as that can be told beforehand."""
    if problem := missing(spec):
        return Reason("lock", problem)
    engine = fact.get("engine") or BuildEngine()
    elsewhere = f"set `build_node` in {spec.folder}/image.toml to a node that"
    if "silent" in engine:
        text = f"docker on {goal.node} cannot be asked: {engine['silent']}; image {spec.name} is built there"
        return Reason("build_node", f"{text}\n  next:   {_advice(engine, elsewhere)}")
    architecture = engine.get("architecture")
    if architecture and architecture != spec.architecture:
        text = f"image for {spec.architecture}, build node {goal.node} is {architecture}"
        return Reason("architecture", f"{text}\n  next:   {elsewhere} is {spec.architecture}")
    return None
