"""Where [[staging]] blocks and exports may lie: not over the store, the workspace, or what they are staged from."""

from __future__ import annotations

import os

from sparkbuild.workspace.shapes.schema import Config, Node, RecipeFile
from sparkbuild.workspace.shapes.stagingschema import HubStaging, Staging
from sparkbuild.workspace.toml.findings import Findings, Path

# Folders of a node's store that other parts of sparkbuild keep things in.
TAKEN = (
    "agent",
    "archives",
    "artifacts",
    "blobs",
    "contexts",
    "images",
    "incoming",
    "lanes",
    "launch.lock",
    "mirrors",
    "prebuilt",
    "scrub.lock",
    "sources",
    "staged-index",
    "wheels",
)
# Folders of a node's store in which each block and export that says no other has one of its own.
DEFAULTS = ("staged", "exported")
# What a workspace keeps its own definitions in.
_DEFINITIONS = ("images", "locks", "recipes", ".git")
_OURS = ".sparkbuild"  # what staging keeps beside the data


def check_folders(spec: RecipeFile, root: str, config: Config, findings: Findings) -> None:
    """Note each `dst` of a block and each `path` of an export that cannot be meant. By their texts: what links lead to
    is seen on the node only.
    """
    cluster = config.clusters.get(spec.cluster)
    nodes = {name: config.nodes[name] for name in (cluster.nodes if cluster else ()) if name in config.nodes}

    def in_stores(path: str) -> list[str]:
        return list(dict.fromkeys(in_store(root, node.store, path) for node in nodes.values()))

    for index, block in enumerate(spec.staging):
        here: Path = ("staging", index)
        if block.dst:
            _check(block.dst, (*here, "dst"), findings, root, nodes)
            _check_source(block, (*here, "dst"), findings, in_stores(block.dst))
        for number, export in enumerate(block.exports if isinstance(block, HubStaging) else ()):
            if export.path:
                keys: Path = (*here, "exports", number, "path")
                _check(export.path, keys, findings, root, nodes)
                _check_source(block, keys, findings, in_stores(export.path))


def is_in(path: str, folder: str) -> bool:
    """Whether a path is a folder or in it; both normal and absolute."""
    return f"{path}/".startswith(f"{folder.rstrip('/')}/")


def in_store(root: str, store: str, path: str) -> str:
    """The absolute form of a path that is inside a node's store when it is relative, which is in the workspace `root`
    when it is relative itself.
    """
    return os.path.normpath(os.path.join(root, store, path)).replace("//", "/")


def _check(path: str, keys: Path, findings: Findings, root: str, nodes: dict[str, Node]) -> None:
    key = str(keys[-1])
    wrong = _relative(path) if not path.startswith("/") else ""
    wanted = "a folder in the store, such as staged/NAME, or an absolute path, such as /srv/models/NAME"
    if not wrong and not path.isprintable():
        wrong = "it has characters that cannot be shown"
    if not wrong and _OURS in _steps(path, nodes, root):
        wrong = f"{_OURS} is what staging keeps for itself"
    for name, node in nodes.items():
        wrong = wrong or _on_node(path, name, node, root)
    if wrong:
        findings.add(
            keys,
            f"`{key}` is no folder to stage into",
            found=f"{path!r}: {wrong}",
            wanted=wanted,
            next_=f"correct `{key}`, or take it out: by default the folder is one of its own in the store",
        )


def _relative(path: str) -> str:
    first = os.path.normpath(path).split("/")[0]
    if first == ".":
        return "it is the store itself"
    if first == "..":
        return "it leads out of the store"
    if first.startswith("~"):
        return "`~` is not resolved: nobody's home is meant by it on a node"
    return ""


def _steps(path: str, nodes: dict[str, Node], root: str) -> list[str]:
    """The steps of a path, without those of the store that it is in: that one may be in `.sparkbuild`."""
    if path.startswith("/"):
        path = os.path.normpath(path)
        for node in nodes.values():
            store = in_store(root, node.store, "")
            if is_in(path, store):
                path = os.path.relpath(path, store)
    return path.split("/")


def _on_node(path: str, name: str, node: Node, root: str) -> str:
    """Why a path cannot be a folder of this node, "" when nothing is wrong with it."""
    place, store = in_store(root, node.store, path), in_store(root, node.store, "")
    if place == "/":
        return "it is the root of the file system"
    if is_in(store, place):
        return f"it is the store of {name}" if place == store else f"the store of {name} is in it, {store}"
    if is_in(place, store):
        first, *more = os.path.relpath(place, store).split("/")
        if first in DEFAULTS and not more:
            return f"{first} in the store of {name} has a folder for each block in it"
        return f"{first} in the store of {name} is for other things of sparkbuild" if first in TAKEN else ""
    return _in_workspace(place, root) if node.connection == "local" else ""


def _in_workspace(place: str, root: str) -> str:
    """Why a folder of this machine is none to stage into: the workspace is what somebody wrote."""
    if is_in(root, place):
        return "it is the workspace" if place == root else f"the workspace is in it, {root}"
    first = os.path.relpath(place, root).split("/")[0]
    return f"{first} of the workspace is for what you write" if first in _DEFINITIONS else ""


def _check_source(block: Staging, keys: Path, findings: Findings, places: list[str]) -> None:
    """A folder that is staged from is neither the folder staged into, nor in it, nor around it; `places` are what that
    is on the nodes.
    """
    source = os.path.normpath(block.src)
    if not block.src.startswith("/") or source == "/":
        return
    key, mirror = str(keys[-1]), isinstance(block, HubStaging) and keys[-1] == "dst"
    for place in places:
        # a mirror is in `dst`, in a folder for each repository, and may have others beside it
        around = place == source if mirror else is_in(source, place)
        if around or is_in(place, source):
            findings.add(
                keys,
                f"`{key}` and `src` are the same folder" if place == source else f"`{key}` and `src` overlap",
                found=f"{place}, and src = {block.src}",
                wanted="a folder beside it, on this node's own disk",
                next_=f"correct `{key}` or `src` of this staging block",
            )
            return
