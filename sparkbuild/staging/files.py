"""Staging of kind `files`: an artifact, or what an archive holds, as plain files in a folder of a node."""

from __future__ import annotations

import os
from typing import Any

import msgspec

from sparkbuild.core.goal import Goal
from sparkbuild.core.key import Key
from sparkbuild.core.plan import OK, RUN, UNKNOWN, Verdict
from sparkbuild.core.reasons import Reason, differences
from sparkbuild.core.run import Run
from sparkbuild.core.state import Made
from sparkbuild.core.uri import Uri

# The version of the ledger that the agent writes (agent.ledger.VERSION; a test holds the two together): a new one is
# written by staging again, which keeps the files and makes their ledger anew.
LEDGER = 2


class FilesSpec(msgspec.Struct, frozen=True):
    """`dst` is the folder, `archive` the artifact on the node (relative paths are inside the node's store), `sha256`
    the artifact's. `members` are globs over the names in it, or over its own name when it is no archive. `min_free`
    bytes stay free on the folder's file system.
    """

    dst: str
    archive: str
    members: tuple[str, ...]
    sha256: str
    min_free: int = 0


def files_goal(*, recipe: str, node: str, block_id: str, spec: FilesSpec, artifact_goal: Goal) -> Goal:
    """The goal of having the members staged on a node.

    Folder and free space are not in the key: they decide where the bytes are, not which. Another folder has no ledger,
    so a new `dst` is stale by what is seen.
    """
    path = f"{recipe}/{block_id}"
    parts = {"kind": "files", "source": spec.sha256, "members": list(spec.members), "format": LEDGER}
    spec = msgspec.structs.replace(spec, dst=spec.dst or os.path.join("staged", path))
    return Goal(
        task=f"stage:{recipe}:{node}:{block_id}",
        uri=Uri("staged", node, path),
        key=Key(parts),
        doc=f"stage {', '.join(spec.members)} of {os.path.basename(spec.archive)} on {node}",
        spec=spec,
        needs=(artifact_goal,),
        pools=("nas", node),
    )


class FilesKind:
    """How staged files are looked at and made."""

    scheme = "staged"

    def query(self, goal: Goal) -> dict[str, Any]:
        """What the agent needs to look; see agent.verify. `what` only tells what staging would write."""
        spec: FilesSpec = goal.spec
        return {"dst": spec.dst, "key": goal.key.digest, "full": False, "what": _what(spec)}

    def judge(self, goal: Goal, fact: dict[str, Any], last: Made | None) -> Verdict:
        """Staged from this source and unchanged since, or why not and what it would write.

        Not from `last`: after a mending it knows the bytes of a few chunks only.
        """
        if "unreachable" in fact:
            return Verdict(UNKNOWN, (Reason("node", f"{goal.node} does not answer: {fact['unreachable']}"),), None)
        if not fact["present"]:
            return Verdict(RUN, (_absent(goal, fact, last),), fact.get("to_write"), fact)
        if fact["key"] != goal.key.digest:
            reasons = differences(fact["parts"], goal.key.parts)
            unexplained = Reason("key", "its ledger has another key with the same parts: it was edited by hand")
            return Verdict(RUN, reasons or (unexplained,), fact.get("to_write"), fact)
        if fact["problems"]:
            reasons = tuple(Reason(problem["file"], problem["text"]) for problem in fact["problems"])
            return Verdict(RUN, reasons, sum(problem["bytes"] for problem in fact["problems"]), fact)
        checked = fact["checked"]["bytes"]
        return Verdict(
            OK, (), 0, fact, f"{fact['bytes'] / 1e6:.1f} MB, {checked / 1e6:.1f} MB of it read again just now"
        )

    def apply(self, goal: Goal, verdict: Verdict, run: Run) -> int:
        """Stage what is missing or damaged; returns the bytes written."""
        del verdict
        spec: FilesSpec = goal.spec
        request = {
            "dst": spec.dst,
            "key": goal.key.digest,
            "parts": goal.key.parts,
            "what": _what(spec),
            "min_free": spec.min_free,
            "full": run.force or bool(run.options.get("full")),
        }
        result = run.call(goal.node, "stage", request)
        run.note(
            f"{result['files']} files, {result['total']} bytes in {spec.dst}: {result['copied']} copied, "
            f"{result['repaired_chunks']} chunks mended, {result['removed']} removed, {result['bytes']} bytes written"
        )
        return int(result["bytes"])


def _what(spec: FilesSpec) -> dict[str, Any]:
    return {"kind": "artifact", "archive": spec.archive, "members": list(spec.members), "sha256": spec.sha256}


def _absent(goal: Goal, fact: dict[str, Any], last: Made | None) -> Reason:
    if fact.get("problem"):
        return Reason("ledger", str(fact["problem"]))
    if fact.get("busy"):
        return Reason("staged", f"is being staged by another process ({fact['busy']})")
    if last is None:
        return Reason("staged", "not staged yet")
    text = f"was staged before, {goal.spec.dst} has no ledger now: removed, or a staging was interrupted"
    return Reason("staged", text)
