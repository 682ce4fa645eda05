"""Older images of ours in this node's docker, and what else of builds nothing uses: what may go, and removing it."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, NamedTuple

from sparkbuild.agent.disk.held import remove_tree
from sparkbuild.agent.docker import buildcache
from sparkbuild.agent.docker.changes import DockerWork
from sparkbuild.agent.docker.engine import SOCKET, Dockerd, DockerdError
from sparkbuild.agent.image import archives
from sparkbuild.agent.wire.lanelabels import CREATED, KEY, TRIAL
from sparkbuild.agent.wire.protocol import AgentError, Reporter

if TYPE_CHECKING:
    from sparkbuild.agent.docker.answers import Image
    from sparkbuild.agent.wire.dockerimages import OldImage, PrunedFact, PrunedQuery, PruneResult

_OURS = re.compile(r"sparkbuild/([^/:]+):([0-9a-f]{12})")
# of a registry: the image's own name, and how its digest begins (app/goals/prebuilt.py)
_PREBUILT = re.compile(r"(.+)-[0-9a-f]{8}")


class _Image(NamedTuple):
    """An image under a name of ours: `group` is whose `keep` counts, `row` what docker's list says of it."""

    named: str
    reference: str
    group: str
    prebuilt: bool
    row: Image


def observe(query: PrunedQuery) -> PrunedFact:
    """Which images may go. Ours are `sparkbuild/<name>:<key>` with that key in their label, and images of a registry by
    the name that they have here, whatever the digest. One that any container, running or not, was made of stays.
    """
    socket = query["docker"] or SOCKET
    engine = Dockerd(socket)
    try:
        cache = buildcache.unused_bytes(engine) if query["builds"] else 0
        old, used, spared = _chosen(engine, query)
    except DockerdError as error:
        return {"silent": error.problem, "next": error.fields["next"], "absent": not os.path.lexists(socket)}
    rows: list[OldImage] = [{"reference": image.reference, "bytes": image.row.get("Size") or 0} for image in old]
    return {"old": rows, "used": used, "spared": spared, "cache": cache}


def run(request: PrunedQuery, reporter: Reporter) -> PruneResult:
    """Look again, and take away the names of those that may go. Docker removes an image with its last name. What was
    taken apart of an image of a registry, for other nodes, goes with it.
    """
    engine = DockerWork(request["docker"] or SOCKET)
    engine.sweep_trials()
    removed = []
    for old in _chosen(engine, request)[0]:
        try:
            for name in _names(old.row, old.reference):
                engine.untag(name)
        except DockerdError as error:  # a container was made of it just now
            raise AgentError(f"{old.reference} is not removed", kind="node", found=error.problem) from None
        reporter.log(f"removed {old.reference}")
        removed.append(old)
    if any(old.prebuilt for old in removed):
        _drop_archives(request["store"], [old for old in removed if old.prebuilt], reporter)
    freed = 0
    if request["builds"] and buildcache.unused_bytes(engine):
        freed = buildcache.prune(engine)
        reporter.log(f"removed build cache that nothing used for 7 days: {freed} bytes")
    return {"removed": [old.reference for old in removed], "freed": freed}


def _chosen(engine: Dockerd, query: PrunedQuery) -> tuple[list[_Image], dict[str, list[str]], list[str]]:
    """Those that may go; the names of containers of those that would, but are used; the names that are spared."""
    ours = _ours(engine, prebuilt=query["prebuilt"])
    users: dict[str, list[str]] = {}
    for box in engine.containers() if ours else ():
        if TRIAL in (box.get("Labels") or {}) and box.get("State") == CREATED:
            continue  # a lost connection left it: it is removed first
        users.setdefault(str(box.get("ImageID")), []).append(str((box.get("Names") or ["?"])[0]).lstrip("/"))
    old: list[_Image] = []
    used: dict[str, list[str]] = {}
    spared = []
    for group, images in sorted(ours.items()):
        others = [one for one in images if one.reference not in query["wanted"]]
        beyond = others[max(0, int(query["keep"]) - (len(images) - len(others))) :]
        if beyond and group in query["spared"]:
            spared.append(group)
            continue
        for one in beyond:
            if one.row["Id"] in users:
                used[one.reference] = users[one.row["Id"]]
            else:
                old.append(one)
    return old, used, spared


def _ours(engine: Dockerd, *, prebuilt: bool) -> dict[str, list[_Image]]:
    """By group, that which was named last first."""
    found: dict[str, list[_Image]] = {}
    for row in engine.images():
        for reference in row.get("RepoTags") or ():
            match = _OURS.fullmatch(reference)
            if not match:
                continue
            labelled = (row.get("Labels") or {}).get(KEY, "").startswith(match[2])
            foreign = None if labelled else _PREBUILT.fullmatch(match[1])
            if labelled or (prebuilt and foreign):
                image = engine.image(row["Id"].partition(":")[2])
                named = str((image.get("Metadata") or {}).get("LastTagTime", "")) if image else ""
                group = f"{foreign[1]} of a registry" if foreign else match[1]
                found.setdefault(group, []).append(_Image(named, reference, group, foreign is not None, row))
    for images in found.values():
        images.sort(key=lambda one: (one.named, one.reference), reverse=True)
    return found


def _names(row: Image, reference: str) -> list[str]:
    """The names to take away: ours, and that by which it was pulled, unless somebody gave it one more."""
    tags = [tag for tag in row.get("RepoTags") or () if "@" not in tag]
    if tags != [reference]:
        return [reference]
    pulled = [name for name in (*(row.get("RepoTags") or ()), *(row.get("RepoDigests") or ())) if "@" in name]
    own = reference.rpartition(":")[0]  # docker's containerd store gives our name a digest, too, which goes with it
    return [reference, *(name for name in dict.fromkeys(pulled) if not name.startswith(f"{own}@"))]


def _drop_archives(store: str, removed: list[_Image], reporter: Reporter) -> None:
    """What was taken apart of images of a registry, for other nodes."""
    for old in removed:
        name = old.reference.removeprefix("sparkbuild/").rpartition(":")[0]
        remove_tree(os.path.join(store, "archives", name))
    if os.path.isdir(os.path.join(store, "archives")):
        archives.collect(store, reporter)
