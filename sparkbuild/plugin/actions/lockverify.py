"""Tasks `lock:verify` and `lock:verify:NAME`: can all that is pinned still be had, and is it what is pinned?"""

from __future__ import annotations

import contextlib
import os
import shutil
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import msgspec

from sparkbuild.agent.wire.store import CHECK, FETCH, CheckAsk, FetchAsk
from sparkbuild.app.goals.prebuilt import registry_images
from sparkbuild.app.names import TASK, Names
from sparkbuild.app.opened import Opened
from sparkbuild.core import units
from sparkbuild.core.errors import IntegrityError, LockError, SparkbuildError, UnsureError, UpstreamError
from sparkbuild.core.run import Progress, Run, call
from sparkbuild.nodes.cluster import LOCAL, Nodes
from sparkbuild.nodes.local.agent import LocalAgent
from sparkbuild.plugin.adapters import docs
from sparkbuild.plugin.adapters.action import _Action
from sparkbuild.plugin.adapters.factory import DoitTask
from sparkbuild.upstream.registry import Registry
from sparkbuild.workspace.locks import sourcelock
from sparkbuild.workspace.locks.baseimage import BaseImage
from sparkbuild.workspace.locks.reference import Reference
from sparkbuild.workspace.locks.sourcelock import SourceLock
from sparkbuild.workspace.locks.text import input_key

OK, FAIL, UNKNOWN = "ok", "FAIL", "?"
_AT_ONCE = 4
_ANEW = "find out who changed the lock, for a commit has one tree and time; `doit lock:update {} {}={}` pins them anew"


class Row(msgspec.Struct, frozen=True):
    """One component: `state` ok; FAIL, it is provably another or gone; or ?, nobody could tell. `text` says what was
    checked, or what was found.
    """

    name: str
    state: str
    text: str


class VerifyLock(_Action):
    """Fetch each component anew, or as much of it as proves what it is; nothing is kept. `name` is that of a lock, or
    of a recipe with `serve:` before it; "" means all of them.
    """

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name

    def work(self, here: Opened, log: Path) -> None:
        """See the class."""
        del log
        workspace = here.catalog.workspace
        problems = workspace.problems
        broken = [str(error) for at, error in problems.items() if at.startswith("locks/") and self._means(at[6:])]
        if broken:
            raise LockError("\n".join(broken))
        run = here.work.run(self.task.name)
        locks = workspace.locks.values()
        rows = [row for lock in locks if self._means(lock.name) for row in verify(lock, here.nodes, run)]
        images = registry_images(workspace).items()
        rows += verify_images({name: image for name, image in images if self._means(f"{TASK}{name}")}, run)
        # a recipe that cannot be read may have an image of a registry, too
        unread = [(f"{TASK}{at[8:]}", str(error)) for at, error in problems.items() if at.startswith("recipes/")]
        rows += [Row(f"{name}/image", UNKNOWN, text) for name, text in unread if self._means(name)]
        lines = table(rows)
        run.note("\n".join(lines))
        failed = sum(row.state == FAIL for row in rows)
        silent = sum(row.state == UNKNOWN for row in rows)
        unasked = f", {silent} could not be looked at" if silent else ""
        if failed:
            raise LockError(f"{failed} of {len(rows)} components are not as locked{unasked}", found="\n".join(lines))
        head = f"{len(rows) - silent} of {len(rows)} components are as locked{unasked}"
        if silent:
            raise UnsureError(head, found="\n".join(lines), next="run again when what is asked answers")
        self.result = "\n      ".join([head, *lines])

    def _means(self, name: str) -> bool:
        return self.name in {"", name}


def table(rows: list[Row]) -> list[str]:
    """The rows as lines."""
    width = max((len(row.name) for row in rows), default=0)
    lines = []
    for row in rows:
        first, *rest = row.text.splitlines() or [""]
        lines.append(f"{row.state:<5}{row.name:<{width}}  {first}".rstrip())
        lines += [f"{'':<{width + 7}}{line}" for line in rest]
    return lines


def verify(lock: SourceLock, nodes: Nodes, run: Run) -> list[Row]:
    """A row for each component of a lock, in the order sources, artifacts, images, files."""
    store = os.path.join(nodes.store(LOCAL), "verify", f"{os.getpid()}-{lock.name}")
    checks: list[tuple[str, Callable[[], str]]] = [
        *((name, partial(_source, lock, name, run)) for name in lock.sources()),
        *((name, partial(_artifact, lock, name, store, run)) for name in lock.artifacts()),
        *((name, partial(_image, lock, name)) for name in lock.images()),
    ]
    done = _Count(len(checks), run)
    try:
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            rows = list(pool.map(lambda check: done.row(f"{lock.name}/{check[0]}", check[1]), checks))
    finally:
        shutil.rmtree(store, ignore_errors=True)
    wrong = {error.where: error for error in sourcelock.verify(lock, run.root)}
    for name in lock.inputs():
        error = wrong.get(lock.where(input_key(name)))
        rows.append(
            Row(f"{lock.name}/{name}", FAIL if error else OK, str(error) if error else "its sha256 is the locked")
        )
    return rows


def verify_images(images: Mapping[str, Reference], run: Run) -> list[Row]:
    """A row for the image of each recipe."""
    done = _Count(len(images), run)
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        rows = [
            pool.submit(done.row, f"{TASK}{name}/image", partial(_recipe_image, name, image))
            for name, image in images.items()
        ]
        return [row.result() for row in rows]


class _Count:
    """How many components were checked."""

    def __init__(self, total: int, run: Run) -> None:
        self._total, self._run, self._done = total, run, 0
        self._guard = threading.Lock()

    def row(self, name: str, check: Callable[[], str]) -> Row:
        """Run one check."""
        try:
            made = Row(name, OK, check())
        except SparkbuildError as error:
            made = Row(name, FAIL if _proves(error) else UNKNOWN, str(error))
        with self._guard:
            self._done += 1
            self._run.report(Progress("verify", self._done, self._total, "components"))
        return made


def _proves(error: SparkbuildError) -> bool:
    """Whether it says what is there, and not that nobody could look: a server that is down, a login, a full disk."""
    return isinstance(error, LockError | IntegrityError) or (isinstance(error, UpstreamError) and error.reached)


def _source(lock: SourceLock, name: str, run: Run) -> str:
    source = lock.source(name)
    pins = [("", source.repository, source.commit, source.tree, source.ref)]
    pins += [(f", submodule {one.path}", one.repository, one.commit, one.tree, "") for one in source.submodules]
    for part, url, commit, tree, ref in pins:
        request = CheckAsk(root=str(run.root), action="check", url=url, commit=commit, ref=ref)
        found = run.call(LOCAL, CHECK, request)
        if tree and found["tree"] != tree:
            raise LockError(
                f"{name}{part}: the commit has another tree",
                where=f"{url} at {commit}",
                found=found["tree"],
                wanted=tree,
                next=_ANEW.format(lock.name, name, source.ref or "REF"),
            )
        if not part and source.time and found["time"] != source.time:
            wrong = f"{name}: the commit has another time"
            anew = _ANEW.format(lock.name, name, source.ref or "REF")
            raise LockError(wrong, where=url, found=str(found["time"]), wanted=str(source.time), next=anew)
    modules = f" and {len(source.submodules)} submodules" if source.submodules else ""
    what = "its tree is the locked" if source.tree else "no tree is locked"
    return f"commit {source.commit[:12]}{modules} fetched anew, {what}; not its files, which fetching checks"


def _artifact(lock: SourceLock, name: str, store: str, run: Run) -> str:
    """Downloaded whole, into a store of its own: a length or an ETag proves nothing."""
    found = lock.artifact(name)
    request = FetchAsk(
        root=str(run.root),
        sha256=found.sha256,
        filename=found.filename,
        wheel=found.wheel,
        url=found.url,
    )
    size = call(LocalAgent(LOCAL, store), FETCH, request)["bytes"]
    with contextlib.suppress(OSError):  # the next one may need the room
        shutil.rmtree(os.path.join(store, "artifacts", found.sha256[:2], found.sha256))
    return f"downloaded anew, {units.size(size)}, its sha256 is the locked"


def _image(lock: SourceLock, key: str) -> str:
    return _pinned(lock.image(key), f"{lock.name} {key}")


def _recipe_image(recipe: str, image: Reference) -> str:
    if not image.digest:
        raise LockError(
            "it is a floating tag: another image whenever its maker likes",
            where=f"recipes/{recipe}/recipe.toml",
            next=f"`doit lock:update {TASK}{recipe}` pins it",
        )
    return _pinned(image, f"{TASK}{recipe} image")


def _pinned(image: BaseImage | Reference, component: str) -> str:
    with contextlib.closing(Registry(image.host, image.path)) as registry:
        try:
            registry.check(image.digest)
        except UpstreamError as error:
            if error.reached and not error.next:
                tag = image.tag or "TAG"
                error.next = f"`doit lock:update {component}={tag}` pins what the tag {tag} is now; it is another image"
            raise
    return "the registry has the locked manifest; not its layers, which pulling checks"


def verify_tasks(names: Names) -> Iterator[DoitTask]:
    """The tasks `lock:verify`, `lock:verify:LOCK` and `lock:verify:serve:RECIPE`."""
    for name, doc in docs.verify(names).items():
        yield {"basename": "lock", "name": name, "doc": doc, "actions": [VerifyLock(name.partition(":")[2])]}
