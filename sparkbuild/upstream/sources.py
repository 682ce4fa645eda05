"""Git sources: what a lock pins of a repository, fetched into a node's mirror and exported as one archive."""

from __future__ import annotations

import base64
import hashlib
import os

import msgspec

from sparkbuild.agent.wire.store import (
    EXPORT_SOURCE,
    SOURCE,
    Source,
    SourceAbsent,
    SourceAsk,
    SourceFact,
    SourceLookAsk,
    SourcePatch,
    Submodule,
)  # fmt: skip
from sparkbuild.core.errors import IntegrityError
from sparkbuild.core.goal import Goal, Input, Uri
from sparkbuild.core.key import Key
from sparkbuild.core.plan import OK, RUN, Verdict
from sparkbuild.core.reasons import Reason, differences
from sparkbuild.core.run import Run
from sparkbuild.core.state import Made, size_again
from sparkbuild.nodes.ask import look
from sparkbuild.nodes.cluster import LOCAL, Nodes
from sparkbuild.nodes.unreached import Unreached, unreached

# Raise it when the agent makes another archive of the same source: every source is then exported anew.
EXPORTER = 1


class SubmoduleSpec(msgspec.Struct, frozen=True):
    """A submodule at `path` of the source."""

    path: str
    repository: str
    commit: str
    tree: str


class SourceSpec(msgspec.Struct, frozen=True):
    """A component of a lock. `patches` are files of the workspace, in order; `tree` "" and `time` 0: not pinned."""

    lock: str
    component: str
    repository: str
    ref: str
    commit: str
    tree: str
    time: int
    submodules: tuple[SubmoduleSpec, ...] = ()
    patches: tuple[Input, ...] = ()
    lfs: str = "refused"


def path_in_store(goal: Goal) -> str:
    """Where the archive of a source goal lies, relative to the store of its node: an uncompressed tar without a folder
    above its files.
    """
    digest = goal.key.digest
    return os.path.join("sources", digest[:2], digest, "source.tar")


def source_goal(node: str, spec: SourceSpec, *, suffix: str = "", source: Goal | None = None) -> Goal:
    """The goal of having the source on a node. `suffix` tells the tasks of several nodes apart; `source` is the same
    on the machine that sends it, for a node without internet.

    The key has the trees, not the commits: a rebase to the same content is the same source. Only where the lock pins
    no tree does the commit stand for it.
    """
    parts: dict[str, object] = {"tree": spec.tree} if spec.tree else {"commit": spec.commit}
    parts["submodules"] = {module.path: module.tree for module in spec.submodules}
    parts["patches"] = [patch.sha256 for patch in spec.patches]
    parts["exporter"] = EXPORTER
    return Goal(
        task=f"source:{spec.lock}:{spec.component}{suffix}",
        uri=Uri("source", node, f"{spec.lock}/{spec.component}"),
        key=Key(parts),
        doc=f"fetch {spec.repository} at {spec.commit[:12]} as pinned in locks/{spec.lock}.source.lock",
        spec=spec,
        needs=(source,) if source else (),
        inputs=spec.patches,
        pools=("fetch",),
        transient=True,
    )


class SourceKind:
    """How sources are looked at, fetched and exported."""

    scheme: str = SOURCE

    def __init__(self, root: str, nodes: Nodes | None = None) -> None:
        self._root = root
        self._nodes = nodes  # None: every node fetches for itself

    def query(self, goal: Goal) -> SourceLookAsk:
        """What the agent needs to look."""
        spec: SourceSpec = goal.spec
        pins = [(spec.commit, spec.time), *((module.commit, 0) for module in spec.submodules)]
        return {"key": goal.key.digest, "pins": pins}

    def judge(self, goal: Goal, fact: SourceFact | SourceAbsent | Unreached, last: Made | None) -> Verdict:
        """Exported as it should be, or not."""
        if "unreachable" in fact:
            return unreached(goal, fact)
        if fact["present"]:
            return Verdict(OK, (), 0, fact, f"files: {fact['files']}, {fact['bytes'] / 1e6:.1f} MB")
        if fact.get("problem"):
            return Verdict(RUN, (Reason("content", str(fact["problem"])),), size_again(last, goal.key.digest), fact)
        reasons = differences(last.parts, goal.key.parts) if last else ()
        text = "was exported before, is gone" if last else "not fetched yet"
        return Verdict(RUN, reasons or (Reason("content", text),), size_again(last, goal.key.digest), fact)

    def apply(self, goal: Goal, verdict: Verdict, run: Run) -> int:
        """Fetch and export it; the bytes of the archive. What a node without internet needs, this machine sends."""
        del verdict
        if self._nodes is not None and self._nodes.place(goal.node).offline:
            return self._send(self._nodes, goal, run)
        spec: SourceSpec = goal.spec
        source = Source(
            component=spec.component,
            repository=spec.repository,
            ref=spec.ref,
            commit=spec.commit,
            tree=spec.tree,
            time=spec.time,
            lfs=spec.lfs,
            submodules=[
                Submodule(path=module.path, repository=module.repository, commit=module.commit, tree=module.tree)
                for module in spec.submodules
            ],
            patches=[self._read(patch) for patch in spec.patches],
        )
        request = SourceAsk(root=self._root, key=goal.key.digest, lock=spec.lock, source=source)
        return run.call(goal.node, EXPORT_SOURCE, request)["bytes"]

    def _read(self, patch: Input) -> SourcePatch:
        with open(os.path.join(self._root, patch.path), "rb") as file:
            text = base64.b64encode(file.read()).decode()
        return SourcePatch(path=patch.path, sha256=patch.sha256, text=text)

    def _send(self, nodes: Nodes, goal: Goal, run: Run) -> int:
        """The archive, then its receipt, which says what the archive must be."""
        here = nodes.agent(LOCAL)
        run.note(f"{goal.node} is offline: fetched by this machine, which sends it now")
        fact = look(here, LOCAL, SOURCE, self.query(goal))
        if not fact["present"]:
            raise IntegrityError(f"{goal.task} is not on this machine", found=str(fact.get("problem", "")))
        path, on_event = path_in_store(goal), run.passing(f"send to {goal.node}")
        receipt = os.path.join(os.path.dirname(path), "receipt.json")
        with open(os.path.join(here.store, receipt), "rb") as file:
            digest = hashlib.sha256(file.read()).hexdigest()
        there = nodes.agent(goal.node)
        sent = there.put(path, os.path.join(here.store, path), fact["sha256"], on_event)
        return sent + there.put(receipt, os.path.join(here.store, receipt), digest, on_event)
