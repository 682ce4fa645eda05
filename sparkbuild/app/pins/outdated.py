"""What upstream has that is newer than what is pinned: refs, tags, image tags, wheels; all asked at the same time."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from pathlib import Path

import msgspec

from sparkbuild.agent.wire.store import REFS, RefsAsk
from sparkbuild.core.errors import SparkbuildError, UpstreamError
from sparkbuild.core.run import call
from sparkbuild.nodes.cluster import LOCAL, Nodes
from sparkbuild.upstream import packageindex, versions
from sparkbuild.upstream.registry import Registry
from sparkbuild.workspace.locks.baseimage import BaseImage
from sparkbuild.workspace.locks.gitsource import GitSource
from sparkbuild.workspace.locks.reference import Reference
from sparkbuild.workspace.locks.sourcelock import SourceLock

NEWEST, NEWER, SILENT = "ok", "newer", "unreachable"
_AT_ONCE = 8
_SHORT = 12  # hex digits of a hash that is shown


class Row(msgspec.Struct, frozen=True):
    """One component. `locked` and `newest` are as people say them: a tag, a version, a ref with the start of a commit.

    `lock` is `serve:NAME` for the image of a recipe. `newest` is "" when nothing is newer; `problem` says why nobody
    could be asked. `updates` are the commands that take what is newer, one for each thing that is.
    """

    lock: str
    component: str
    kind: str
    locked: str
    newest: str
    where: str
    state: str
    problem: str = ""
    updates: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The component with its lock."""
        return f"{self.lock}/{self.component}"

    def shown(self) -> str:
        """The cell of the newest."""
        return "?" if self.state == SILENT else self.newest or "this is it"

    def as_dict(self) -> dict[str, str | tuple[str, ...]]:
        """As JSON."""
        return {field: getattr(self, field) for field in self.__struct_fields__}


class _Found(msgspec.Struct, frozen=True):
    """`refs` are what to give `lock:update` for the component: "" where it follows that by itself."""

    locked: str
    newest: str
    refs: tuple[str, ...] = ()


def look(root: Path, nodes: Nodes, locks: Iterable[SourceLock], images: Mapping[str, Reference]) -> list[Row]:
    """The rows of all components that have versions, in the order of the locks, then those of the `images` of recipes,
    by `serve:NAME`. Files by URL have none: no row.
    """
    questions: list[Callable[[], Row]] = []
    for lock in locks:
        questions += [
            partial(_row, lock, name, "git", partial(_git, root, nodes, lock, name)) for name in lock.sources()
        ]
        questions += [partial(_row, lock, name, "image", partial(_image, lock, name)) for name in lock.images()]
        wheels = [name for name in lock.artifacts() if f"{name}.wheel.name" in lock.values]
        questions += [partial(_row, lock, name, "wheel", partial(_wheel, lock, name)) for name in wheels]
    questions += [partial(_recipe_row, name, image) for name, image in images.items()]
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return list(pool.map(lambda question: question(), questions))


def _row(lock: SourceLock, name: str, kind: str, ask: Callable[[], _Found]) -> Row:
    where, locked = _place(lock, name, kind)
    return _asked(Row(lock.name, name, kind, locked, "", where, SILENT), ask)


def _recipe_row(name: str, image: Reference) -> Row:
    where = image.repository + (f":{image.tag}" if image.tag else "")
    row = Row(name, "image", "image", _locked(image), "", where, SILENT)
    return _asked(row, partial(_compared, image))


def _asked(row: Row, ask: Callable[[], _Found]) -> Row:
    """The row with its answer."""
    try:
        found = ask()
    except SparkbuildError as error:
        problem = error.what + (f": {error.found.splitlines()[0]}" if error.found else "")
        return msgspec.structs.replace(row, problem=problem)
    state = NEWER if found.newest else NEWEST
    updates = tuple(_update(row, ref) for ref in found.refs)
    return msgspec.structs.replace(row, locked=found.locked, newest=found.newest, state=state, updates=updates)


def _update(row: Row, ref: str) -> str:
    return f"doit lock:update {row.lock}" + (f" {shlex.quote(f'{row.component}={ref}')}" if ref else "")


def _place(lock: SourceLock, name: str, kind: str) -> tuple[str, str]:
    """Where a component comes from, and what is locked of it, as far as the lock alone tells."""
    values = lock.values
    if kind == "git":
        return values[f"{name}.repository"], values.get(f"{name}.commit", "")[:_SHORT]
    if kind == "image":
        return values[name].partition("@")[0], values[name].partition("@sha256:")[2][:_SHORT]
    return f"package index, {values[f'{name}.wheel.name']}", values.get(f"{name}.wheel.version", "")


def _git(root: Path, nodes: Nodes, lock: SourceLock, name: str) -> _Found:
    source = lock.source(name)
    request = RefsAsk(root=str(root), action="refs", url=source.repository)
    return compare(source, call(nodes.agent(LOCAL), REFS, request)["refs"])


def compare(source: GitSource, refs: dict[str, str]) -> _Found:
    """What a repository's refs have that is newer than the lock: the branch or tag moved, or a later tag. Pure."""
    commit = source.commit[:_SHORT]
    tags = {
        name[len("refs/tags/") :].removesuffix("^{}"): oid
        for name, oid in refs.items()
        if name.startswith("refs/tags/")
    }
    short = source.ref.removeprefix("refs/heads/").removeprefix("refs/tags/")
    branch = "" if source.ref.startswith("refs/tags/") else refs.get(f"refs/heads/{short}", "")
    locked = f"{short} {commit}" if source.ref else commit
    if source.ref and not branch:
        if short not in tags:
            return _Found(locked, f"`{short}` is gone")
        moved = f"{short} moved to {tags[short][:_SHORT]}" if tags[short] != source.commit else ""
        return _both(locked, versions.newest(short, tags), moved)
    now = branch if source.ref else refs.get("HEAD", "")
    if now in {"", source.commit}:
        return _Found(locked, "")
    return _Found(locked, f"{short or 'HEAD'} {now[:_SHORT]}", ("" if source.ref else now,))


def _both(locked: str, later: str, moved: str) -> _Found:
    """A later version, and what the locked one is now: each is taken by a command of its own."""
    refs = (*((later,) if later else ()), *(("",) if moved else ()))
    return _Found(locked, "; ".join(filter(None, (later, moved))), refs)


def _image(lock: SourceLock, key: str) -> _Found:
    return _compared(lock.image(key))


def _compared(image: BaseImage | Reference) -> _Found:
    with closing(Registry(image.host, image.path)) as registry:
        return compare_image(image, registry.digest, registry.tags)


def _locked(image: BaseImage | Reference) -> str:
    return f"{image.tag} {image.digest.removeprefix('sha256:')[:_SHORT]}".strip()


def compare_image(image: BaseImage | Reference, digest: Callable[[str], str], tags: Callable[[], list[str]]) -> _Found:
    """A later tag, and the same tag that is another image now; without a tag, `latest` is compared. A tag without a
    digest is another image than it means now.
    """
    locked = _locked(image)
    later = versions.newest(image.tag, tags()) if image.tag else ""
    try:
        now = digest(image.tag or "latest")
    except UpstreamError as error:
        if not later or not error.reached:
            raise
        return _Found(locked, f"{later}; {image.tag} is gone", (later,))
    short = now.removeprefix("sha256:")[:_SHORT]
    if later:
        return _both(locked, later, f"{image.tag} moved to {short}" if now != image.digest else "")
    if now == image.digest:
        return _Found(locked, "")
    return _Found(locked, f"{image.tag or 'latest'} {short}", ("" if image.tag or not image.digest else "latest",))


def _wheel(lock: SourceLock, name: str) -> _Found:
    locked = lock.values[f"{name}.wheel.version"]
    there = packageindex.versions(lock.values[f"{name}.wheel.name"])
    return _both(locked, versions.newest(locked, there, one_scheme=True), "")
