"""Exports of a mirror on a node: the goal, and how it is looked at and made. Making one moves names and no bytes."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import msgspec

from sparkbuild.agent.wire.layout import EXPORT as FORMAT
from sparkbuild.agent.wire.staging.exports import (
    EXPORT,
    LINKTREE,
    Composed,
    ExportAsk,
    ExportFact,
    Linked,
    LinktreeAsk,
    NotExported,
    Snapshot,
    Tree,
)
from sparkbuild.core.errors import ConfigError, SparkbuildError
from sparkbuild.core.goal import Goal, Uri
from sparkbuild.core.key import Key
from sparkbuild.core.plan import OK, RUN, Verdict
from sparkbuild.core.reasons import Reason, differences
from sparkbuild.core.run import Run
from sparkbuild.core.state import Made
from sparkbuild.core.units import count
from sparkbuild.nodes.unreached import Unreached, unreached
from sparkbuild.staging.blocks import Place, Staged
from sparkbuild.staging.eviction import gone, owner
from sparkbuild.staging.staged import refused
from sparkbuild.workspace.shapes.stagingschema import ComposedExport, HubStaging, TreeExport


class ExportSpec(msgspec.Struct, frozen=True):
    """`dst` is the folder (relative: inside the node's store), `what` is what the agent links there."""

    dst: str
    what: Linked


class Export(msgspec.Struct, frozen=True):
    """An export on a node: its folder (relative: inside the store), where a container sees it, its block, its goal."""

    id: str
    block: str
    path: str
    target: str
    goal: Goal


def exports(block: HubStaging, place: Place, blocks: Mapping[str, Staged]) -> tuple[Export, ...]:
    """The exports of a block on a node. `blocks` are those that the node stages, by id, this one among them. Raises
    ConfigError when a block that is laid over the snapshot is not for this rank.
    """
    return tuple(_export(block, export, place, blocks) for export in block.exports)


def _export(
    block: HubStaging, export: TreeExport | ComposedExport, place: Place, blocks: Mapping[str, Staged]
) -> Export:
    repo = export.repo or block.repos[0]
    mirror = blocks[block.id].goals[block.repos.index(repo)]
    path = export.path or os.path.join("exported", place.recipe, block.id, export.id)
    kind = "tree" if isinstance(export, TreeExport) else "composed"
    parts: dict[str, object] = {"kind": kind, "mirror": mirror.key.short}
    needs = [mirror]
    what: Linked
    if isinstance(export, TreeExport):
        what = Tree(
            kind="tree",
            mirror=mirror.spec.dst,
            target=export.target,
            subtree=export.subtree.strip("/"),
            binds=list(export.binds),
            source=Snapshot(cache=block.src, repo=repo, revision=block.revision),
        )
        parts |= {"subtree": what["subtree"], "binds": what["binds"]}
    else:
        missing = [name for name in export.over if name not in blocks]
        if missing:
            raise ConfigError(
                f"export `{export.id}` wants block `{missing[0]}`, which rank {place.rank} has not",
                where=f"recipes/{place.recipe}/recipe.toml",
                wanted=f"both on the same ranks: only_ranks of `{block.id}` and `{missing[0]}`",
            )
        over = [blocks[name].path for name in export.over]
        what = Composed(kind="composed", mirror=mirror.spec.dst, target=export.target, over=over)
        needs += [goal for name in export.over for goal in blocks[name].goals]
        parts["over"] = {name: "+".join(goal.key.short for goal in blocks[name].goals) for name in export.over}
    goal = Goal(
        task=f"stage:{place.recipe}:{place.node}:{block.id}:{export.id}",
        uri=Uri("export", place.node, f"{place.recipe}/{block.id}/{export.id}"),
        key=Key({**parts, "target": export.target, "format": FORMAT}),
        doc=f"link {repo} as {'a tree of files' if kind == 'tree' else 'a composed folder'} on {place.node}",
        spec=ExportSpec(path, what),
        needs=tuple(needs),
        pools=(place.node,),
    )
    return Export(export.id, block.id, path, export.target, goal)


ExportSeen = ExportFact | NotExported | Unreached


class ExportKind:
    """How exports are looked at and made. `root`: the workspace, whose the folders are."""

    scheme = EXPORT

    def __init__(self, root: str = "") -> None:
        self._root = root

    def query(self, goal: Goal) -> ExportAsk:
        """What the agent needs to look."""
        keys = {need.spec.dst: need.key.digest for need in goal.needs}
        spec: ExportSpec = goal.spec
        over = spec.what["over"] if spec.what["kind"] == "composed" else ()
        query = ExportAsk(
            dst=spec.dst,
            key=goal.key.digest,
            what=spec.what,
            of=goal.uri.path,
            keys=[keys.get(path, "") for path in (spec.what["mirror"], *over)],
        )
        if self._root:
            query["owner"] = owner(goal, Path(self._root))
        return query

    def judge(self, goal: Goal, fact: ExportSeen, last: Made | None) -> Verdict:
        """Made of these folders as they are now, or why not. It writes no bytes."""
        if "unreachable" in fact:
            return unreached(goal, fact)
        if not fact["present"]:
            return Verdict(RUN, (_absent(fact, last),), 0, fact)
        if fact["key"] != goal.key.digest:
            unexplained = Reason("key", "its manifest has another key with the same parts: it was edited by hand")
            return Verdict(RUN, differences(fact.get("parts") or {}, goal.key.parts) or (unexplained,), 0, fact)
        if fact["problems"]:
            return Verdict(RUN, tuple(Reason(one["file"], one["text"]) for one in fact["problems"]), 0, fact)
        return Verdict(OK, (), 0, fact, f"{count(fact['files'], 'file')}, {count(len(fact['mounts']), 'mount')}")

    def preflight(self, goal: Goal, verdict: Verdict) -> SparkbuildError | None:
        """Why it cannot be made: what is in its folder, on which disk that is, what of the snapshot it asks for."""
        return refused(goal, verdict)

    def apply(self, goal: Goal, verdict: Verdict, run: Run) -> int:
        """Make the links that are missing, remove what is not wanted."""
        del verdict
        spec: ExportSpec = goal.spec
        request = LinktreeAsk(
            dst=spec.dst, key=goal.key.digest, parts=goal.key.parts, what=spec.what, owner=owner(goal, run.root)
        )
        links = run.call(goal.node, LINKTREE, request)
        run.note(
            f"{count(links['files'], 'file')} in {spec.dst}: {links['made']} linked, "
            f"{count(links['pointers'], 'symbolic link')} and {count(links['empty'], 'empty file')} made, "
            f"{links['removed']} removed; {count(links['mounts'], 'mount')}"
        )
        return 0


def _absent(fact: NotExported, last: Made | None) -> Reason:
    if fact.get("problem"):
        return Reason("manifest", str(fact["problem"]))
    if fact.get("busy"):
        return Reason("export", f"is being made by another process ({fact['busy']})")
    if evicted := gone(fact):
        return Reason("export", evicted)
    if fact.get("begun"):
        return Reason("export", "interrupted: its making ended before all was there")
    return Reason("export", _made_before(fact, last))


def _made_before(fact: NotExported, last: Made | None) -> str:
    if last is None or not fact.get("before"):
        return "not made yet"
    if fact.get("here"):
        return "was made before, and has no manifest now" + ("" if fact.get("refused") else ": it was removed")
    return f"not made there yet; it was made in {fact['before']} before"
