"""From a [[staging]] block of a recipe to the goals of one node: what decides the bytes is the key. No I/O."""

from __future__ import annotations

import os
from collections.abc import Mapping

import msgspec

from sparkbuild.agent.wire.layout import LEDGER
from sparkbuild.agent.wire.staging.sources import Artifact, Folder, HubMirror, Rows, What
from sparkbuild.core.goal import Goal, Uri
from sparkbuild.core.key import Key
from sparkbuild.staging.staged import StagedSpec
from sparkbuild.workspace.locks.artifact import ARCHIVES
from sparkbuild.workspace.shapes.stagingschema import FilesStaging, HubStaging, RowsStaging, Staging


class Place(msgspec.Struct, frozen=True):
    """For whom a block is staged: a node and its rank among `ranks` nodes."""

    recipe: str
    node: str
    rank: int = 0
    ranks: int = 1


class Archive(msgspec.Struct, frozen=True):
    """The artifact that a block is staged from: its goal on the node, its path in the store, its sha256, and its `name`
    as the lock or the URL says it: what a plain file is called in the staged folder, and whether it is an archive.
    """

    goal: Goal
    path: str
    sha256: str
    name: str


class Staged(msgspec.Struct, frozen=True):
    """A block on a node: its folder (relative: inside the node's store), and the goals that make what is in it."""

    path: str
    goals: tuple[Goal, ...]


def staged(block: Staging, place: Place, archive: Archive | None = None, *, linked: bool = False) -> Staged:
    """The goals of a block; `linked` when exports are hard links of what an archive gives.

    Folder, free space and speed are in no key: they do not decide which bytes there are.
    Another folder has no ledger, so a new `dst` is stale by what is seen.
    """
    path = block.dst or os.path.join("staged", place.recipe, block.id)
    if isinstance(block, HubStaging):
        return Staged(path, tuple(_mirror(block, repo, path, place) for repo in block.repos))
    if isinstance(block, RowsStaging):
        return Staged(path, (_rows(block, path, place),))
    return Staged(path, (_files(block, path, place, archive, linked=linked),))


def _files(block: FilesStaging, path: str, place: Place, archive: Archive | None, *, linked: bool) -> Goal:
    if archive is not None:
        members, plain = list(block.members), not archive.name.lower().endswith(ARCHIVES)
        artifact = Artifact(
            kind="artifact", archive=archive.path, name=archive.name, members=members, sha256=archive.sha256
        )
        parts = {"kind": "files", "source": archive.sha256, "members": members, "format": LEDGER}
        if plain:  # of an archive, the names are inside
            parts["name"] = archive.name
        doc = f"stage {', '.join(members)} of {archive.name} on {place.node}"
        return _goal(block, place, artifact, parts, path=path, doc=doc, needs=(archive.goal,), linked=linked)
    folder = Folder(kind="folder", path=block.src, members=list(block.members), skip=list(block.skip))
    # nothing is known of a folder before it is read, so its path stands for it
    chosen = {"members": folder["members"], "skip": folder["skip"]}
    parts = {"kind": "folder", "source": block.src, **chosen, "format": LEDGER}
    return _goal(block, place, folder, parts, path=path, doc=f"stage {block.src} on {place.node}", shared=True)


def _mirror(block: HubStaging, repo: str, path: str, place: Place) -> Goal:
    skip = list(block.skip)
    return _goal(
        block,
        place,
        HubMirror(kind="hub-mirror", cache=block.src, repo=repo, revision=block.revision, skip=skip),
        {"kind": "hub-mirror", "repo": repo, "revision": block.revision, "skip": skip, "format": LEDGER},
        path=os.path.join(path, repo_folder(repo)),
        doc=f"mirror {repo} at {block.revision} on {place.node}",
        name=f"{block.id}:{repo.rpartition('/')[2]}" if len(block.repos) > 1 else block.id,
        shared=True,
    )


def repo_folder(repo: str) -> str:
    """The folder of a model repository in a hub cache (huggingface_hub, `repo_folder_name`)."""
    return "--".join(("models", *repo.split("/")))


def source_of(what: What) -> str:
    """The folder on the node that is staged from, as StagedSpec.what names it; "" for an artifact."""
    if what["kind"] == "folder":
        return what["path"]
    if what["kind"] == "artifact" or what["kind"] == "list":
        return ""
    if "cache" in what:
        return os.path.join(what["cache"], repo_folder(what["repo"]))
    return what.get("model", "")


def _rows(block: RowsStaging, path: str, place: Place) -> Goal:
    rows = Rows(
        kind=block.layout,
        revision=(block.revision or "main") if block.repos else "",
        layers=list(block.layers),
        split=msgspec.json.decode(msgspec.json.encode(block.split)),
        tp=place.ranks,
        rank=place.rank,
    )
    if block.layout == "sparse-copy":
        rows["complete_shard"] = block.complete_shard
    parts = {name: value for name, value in rows.items() if name != "kind"}
    if block.repos:
        rows["cache"], rows["repo"] = block.src, block.repos[0]
    else:
        rows["model"] = block.src
    source = {"repo": block.repos[0]} if block.repos else {"source": block.src}
    return _goal(
        block,
        place,
        rows,
        {"kind": "sparse-rows", "layout": block.layout, **source, **parts, "format": LEDGER},
        path=path,
        doc=f"stage the Engram rows of rank {place.rank} of {place.ranks} on {place.node}",
    )


def _goal(
    block: Staging,
    place: Place,
    what: What,
    parts: Mapping[str, object],
    *,
    path: str,
    doc: str,
    name: str = "",
    shared: bool = False,
    linked: bool = True,
    needs: tuple[Goal, ...] = (),
) -> Goal:
    name = name or block.id
    spec = StagedSpec(
        dst=path,
        what=what,
        verify=block.verify,
        min_free=block.min_free,
        bwlimit=block.bwlimit,
        linked=linked,
        shared=shared,
    )
    return Goal(
        task=f"stage:{place.recipe}:{place.node}:{name}",
        uri=Uri("staged", place.node, f"{place.recipe}/{name.replace(':', '/')}"),
        key=Key(parts),
        doc=doc,
        spec=spec,
        needs=needs,
        pools=(place.node,),
    )
