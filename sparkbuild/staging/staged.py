"""Staged data of every kind: the goal's spec, and how it is looked at and made on its node."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from sparkbuild.agent.wire.staging.sources import What
from sparkbuild.agent.wire.staging.staged import (
    STAGE,
    STAGED,
    Found,
    NotStaged,
    StageAsk,
    StagedAsk,
    StagedFact,
    StageResult,
)
from sparkbuild.core.errors import SparkbuildError
from sparkbuild.core.goal import Goal
from sparkbuild.core.plan import OK, RUN, Verdict
from sparkbuild.core.pools import Pools
from sparkbuild.core.reasons import Reason, differences
from sparkbuild.core.run import Run
from sparkbuild.core.state import Made
from sparkbuild.core.units import count, size
from sparkbuild.nodes.rpc.reply import error_of
from sparkbuild.nodes.unreached import Unreached, unreached
from sparkbuild.staging import words
from sparkbuild.staging.eviction import gone, owner

if TYPE_CHECKING:
    from sparkbuild.nodes.cluster import Nodes
    from sparkbuild.staging.chain import Chains

STREAMS = 4  # files that one step reads at once, where the pool has as many places


class StagedSpec(msgspec.Struct, frozen=True):
    """`dst` is the folder (relative: inside the node's store) and `what` what it is staged from. `verify` is how found
    data is compared before it is adopted, `min_free` in bytes, `bwlimit` in bytes per second (0: none). `linked`: its
    files may have more names, hard links of exports. `shared`: other nodes want the same bytes, and take them from each
    other.
    """

    dst: str
    what: What
    verify: str = "quick"
    min_free: int = 0
    bwlimit: int = 0
    linked: bool = False
    shared: bool = False


StagedSeen = StagedFact | NotStaged | Unreached


class StagedKind:
    """How staged data is looked at and made. `pools` bounds how many files are read at once; `nodes` are the ways by
    which nodes take from each other, `holders` those that have it: without them a step is on its own. `root`: the
    workspace, whose the folders are. `forced`: it is staged though it may be whole, so that the source is looked at.
    """

    scheme = STAGED

    def __init__(
        self,
        pools: Pools | None = None,
        nodes: Nodes | None = None,
        holders: Callable[[Goal], list[tuple[str, str]]] = lambda _goal: [],
        root: str = "",
        forced: Callable[[Goal], bool] = lambda _goal: False,
    ) -> None:
        self._pools = pools or Pools({"nas": STREAMS})
        self._nodes = nodes
        self._holders = holders
        self._root = root
        self._forced = forced
        self._chains: Chains | None = None
        self._guard = threading.Lock()

    def query(self, goal: Goal) -> StagedAsk:
        """What the agent needs to look."""
        spec: StagedSpec = goal.spec
        query = StagedAsk(
            dst=spec.dst, key=goal.key.digest, full=False, linked=spec.linked, what=spec.what, of=goal.uri.path
        )
        if self._root:
            query["owner"] = owner(goal, Path(self._root))
        if self._forced(goal):
            query["source"] = True
        return query

    def judge(self, goal: Goal, fact: StagedSeen, last: Made | None) -> Verdict:
        """Staged from this source and unchanged since, or why not and what it would write.

        Not from `last`: after a mending it knows the bytes of a few chunks only.
        """
        if "unreachable" in fact:
            return unreached(goal, fact)
        if not fact["present"]:
            reasons = (_absent(goal, fact, last), *_source(fact))
            return Verdict(RUN, reasons, fact.get("to_write"), fact)
        if fact["key"] != goal.key.digest:
            reasons = differences(fact.get("parts") or {}, goal.key.parts)
            unexplained = Reason("key", "its ledger has another key with the same parts: it was edited by hand")
            return Verdict(RUN, (*(reasons or (unexplained,)), *_source(fact)), fact.get("to_write"), fact)
        if fact["problems"]:
            reasons = tuple(Reason(problem["file"], problem["text"]) for problem in fact["problems"])
            return Verdict(RUN, reasons, sum(problem["bytes"] for problem in fact["problems"]), fact)
        read = f"{size(fact['checked']['bytes'])} of it read just now"
        how = "with the files that were touched" if fact["checked"]["whole"] else "as a sample"
        closed = f"; {text}" if (text := words.closed(fact, goal.spec.dst)) else ""
        return Verdict(OK, (), 0, fact, f"{size(fact['bytes'])}, as its ledger says; {read}, {how}{closed}")

    def preflight(self, goal: Goal, verdict: Verdict) -> SparkbuildError | None:
        """Why it cannot be staged: what it is to be staged from, or into, is not as it must be."""
        return refused(goal, verdict)

    def apply(self, goal: Goal, verdict: Verdict, run: Run) -> int:
        """Stage what is missing or damaged; returns the bytes written."""
        del verdict
        spec: StagedSpec = goal.spec
        request = StageAsk(
            dst=spec.dst,
            key=goal.key.digest,
            parts=goal.key.parts,
            what=spec.what,
            verify=spec.verify,
            min_free=spec.min_free,
            bwlimit=spec.bwlimit,
            linked=spec.linked,
            full=run.force or bool(run.options.get("full")),
            owner=owner(goal, run.root),
            task=goal.task,
        )
        givers: tuple[str, ...] = ()
        if spec.shared and self._nodes is not None:
            result, givers = self._together(self._chains_of(self._nodes), goal, request, run)
        else:
            result = self._alone(goal, request, run)
        files, chunks = count(result["files"], "file"), count(result["repaired_chunks"], "chunk")
        run.note(
            f"{files}, {result['total']} bytes in {spec.dst}: {result['copied']} copied, {chunks} mended, "
            f"{result['removed']} removed, {result['bytes']} bytes written, {result['read']} read from the source, "
            f"{result['received']} received from {_others(goal.node, givers)}"
        )
        for text in words.unchecked(result["about"]):
            run.note(text)
        return result["bytes"]

    def _alone(self, goal: Goal, request: StageAsk, run: Run) -> StageResult:
        with self._pools.take("nas", STREAMS) as streams:
            return run.call(goal.node, STAGE, StageAsk(**{**request, "streams": streams}))

    def _chains_of(self, nodes: Nodes) -> Chains:
        """Those of this run, made when the first step stages something that others may want."""
        from sparkbuild.staging.chain import Chains  # noqa: PLC0415 - looking needs none of it

        with self._guard:
            self._chains = self._chains or Chains(nodes)
            return self._chains

    def _together(self, chains: Chains, goal: Goal, request: StageAsk, run: Run) -> tuple[StageResult, tuple[str, ...]]:
        """One of the steps that want the same reads the source, the others take from it what has arrived; the result,
        and the nodes that were asked.
        """
        with chains.join(goal.key.digest, goal.node, goal.spec.dst, run, self._holders(goal)) as seat:
            if seat.peers is None:
                return self._alone(goal, request, run), ()
            together = StageAsk(**{**request, "streams": STREAMS, "peers": seat.peers})
            return run.call(goal.node, STAGE, together), seat.givers


def _others(node: str, givers: tuple[str, ...]) -> str:
    """Whom bytes were received from, in words."""
    if node not in givers:
        return "other nodes"
    return "another folder of this node" if set(givers) == {node} else "another folder of this node and other nodes"


def refused(goal: Goal, verdict: Verdict) -> SparkbuildError | None:
    """The error that making it would end with, when the look at the node has found that."""
    refusal = (verdict.fact or {}).get("refused") if verdict.state == RUN else None
    return error_of(goal.node, refusal) if refusal else None


def _source(fact: StagedFact | NotStaged) -> tuple[Reason, ...]:
    """What the source is, and what the folder has of it, as far as a look could tell; why it cannot be staged from says
    `preflight`.
    """
    there = fact.get("found") or {"files": 0, "bytes": 0}
    kept = [Reason("found", _kept(there))] if there["files"] else []
    return (*(Reason("source", text) for text in words.lines(fact.get("about") or {})), *kept)


def _kept(there: Found) -> str:
    """What was not staged from here, or lost its ledger, and is kept when it proves right."""
    be = "is" if there["files"] == 1 else "are"
    files = count(there["files"], "file")
    return f"{size(there['bytes'])} in {files} {be} there already and will be compared with the source"


def _absent(goal: Goal, fact: NotStaged, last: Made | None) -> Reason:
    if fact.get("problem"):
        return Reason("ledger", str(fact["problem"]))
    if fact.get("busy"):
        return Reason("staged", f"is being staged by another process ({fact['busy']})")
    if evicted := gone(fact):
        return Reason("staged", evicted)
    if fact.get("begun"):
        return Reason("staged", f"interrupted: {_begun(fact)}")
    return Reason("staged", _staged_before(goal.spec.dst, fact, last))


def _staged_before(dst: str, fact: NotStaged, last: Made | None) -> str:
    if last is None or not fact.get("before"):
        return "not staged yet"
    if fact.get("here"):
        removed = "" if (fact.get("refused") or {}).get("part") == "dst" else ": it was removed"
        return f"was staged before, {dst} has no ledger now{removed}"
    return f"not staged there yet; it was staged to {fact['before']} before"


def _begun(fact: NotStaged) -> str:
    wanted, to_write = fact.get("wanted"), fact.get("to_write")
    if wanted is None or to_write is None:
        return "a staging ended before all was there"
    return f"{size(wanted - to_write)} of {size(wanted)} are there"
