"""Loading a workspace. One broken recipe, image or lock is noted and left out; it does not block the others."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import msgspec

from sparkbuild.core.errors import ConfigError, LockError
from sparkbuild.workspace import nodecheck
from sparkbuild.workspace.files import looked
from sparkbuild.workspace.images import bases
from sparkbuild.workspace.images.imagefile import load_image
from sparkbuild.workspace.locks import sourcelock
from sparkbuild.workspace.recipes.recipefile import load_recipe
from sparkbuild.workspace.shapes.schema import Cluster, Config, Node
from sparkbuild.workspace.shapes.workspace import Workspace
from sparkbuild.workspace.toml import tomlfile
from sparkbuild.workspace.toml.findings import Findings

LOCAL = nodecheck.LOCAL  # the embedded node and cluster: this machine
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")

T = TypeVar("T")


def load(root: Path | str) -> Workspace:
    """Read and check everything the user wrote under `root`; no network, no big file, nothing is written.

    Raises ConfigError when there is no such folder or config.toml is wrong: without it nothing has a place to run.
    """
    base = os.path.abspath(root)
    if not os.path.isdir(base):
        raise ConfigError(
            "there is no workspace here",
            where=base,
            found="not a folder",
            next=f"`python -m sparkbuild init {base}` writes one",
        )
    config = load_config(base)
    problems: dict[str, ConfigError] = {}
    locks = _each(_lock_names(base), "locks", problems, lambda name: sourcelock.read(_lock_path(base, name), base))
    images = _each(
        _folders(base, "images", "image.toml"), "images", problems, lambda name: load_image(base, name, locks, problems)
    )
    bases.check(base, config, images, problems)
    recipes = _each(
        _folders(base, "recipes", "recipe.toml"),
        "recipes",
        problems,
        lambda name: load_recipe(base, name, config=config, images=images, locks=locks, problems=problems),
    )
    return Workspace(Path(base), config, images, recipes, locks, problems)


def load_config(root: str) -> Config:
    """config.toml, with the embedded node and cluster `local` unless it has its own of that name.

    Raises ConfigError when it is wrong.
    """
    path = f"{root}/config.toml"
    config = tomlfile.read(path, Config, root) if looked.exists(path) else Config()
    nodes = {LOCAL: Node(), **config.nodes}
    findings = Findings(root, "config.toml")
    for name, settings in config.nodes.items():
        nodecheck.check(findings, name, settings)
    for name, cluster in config.clusters.items():
        nodecheck.check_fabric(findings, name, cluster.fabric)
        for rank, node in enumerate(cluster.nodes):
            at = ("clusters", name, "nodes", rank)
            if node not in nodes:
                findings.reference(at, node, "nodes", nodes, {})
            elif node in cluster.nodes[:rank]:
                findings.add(at, f"the node `{node}` is twice in the cluster `{name}`", wanted="each node once")
    failure = findings.error()
    if failure is not None:
        raise failure
    clusters = {LOCAL: Cluster(nodes=(LOCAL,)), **config.clusters}
    return msgspec.structs.replace(config, nodes=nodes, clusters=clusters)


def _each(names: Iterator[str], kind: str, problems: dict[str, ConfigError], read: Callable[[str], T]) -> dict[str, T]:
    """Read each of a kind; what cannot be used is noted in `problems` under `kind/name`."""
    good: dict[str, T] = {}
    for name in names:
        try:
            if not _NAME.fullmatch(name):
                raise _bad_name(kind, name)
            good[name] = read(name)
        except ConfigError as error:
            problems[f"{kind}/{_printable(name)}"] = error
    return good


def _bad_name(kind: str, name: str) -> ConfigError:
    shown = _printable(name)
    error = LockError if kind == "locks" else ConfigError
    return error(
        f"`{shown}` cannot be a name in {kind}/",
        where=f"{kind}/{shown}" + (sourcelock.SUFFIX if kind == "locks" else ""),
        wanted="at most 64 letters, digits, `_`, `.` and `-`, the first a letter or digit",
        next="rename it",
    )


def _printable(name: str) -> str:
    """A file name that any terminal can show: names on disk may hold any bytes."""
    text = name.encode("utf-8", "backslashreplace").decode()
    return text if text.isprintable() else ascii(text)[1:-1]


def _lock_path(root: str, name: str) -> str:
    return f"{root}/locks/{name}{sourcelock.SUFFIX}"


def _lock_names(root: str) -> Iterator[str]:
    for name in _listing(f"{root}/locks"):
        if name.endswith(sourcelock.SUFFIX) and not name.startswith("."):
            yield name[: -len(sourcelock.SUFFIX)]


def _folders(root: str, kind: str, file: str) -> Iterator[str]:
    """The names under images/ or recipes/ that have their file, even if it cannot be read. Sorted."""
    for name in _listing(f"{root}/{kind}"):
        # lexists: a dangling link is a mistake to be told, not a recipe to be skipped
        if not name.startswith(".") and looked.exists(f"{root}/{kind}/{name}/{file}"):
            yield name


def _listing(folder: str) -> list[str]:
    try:
        return looked.listing(folder)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise ConfigError(f"{folder} cannot be listed", where=folder, found=error.strerror or str(error)) from error
