"""What a lock would pin of a repository: where its refs are, a commit with its tree and submodules, and what is new."""

from __future__ import annotations

import difflib
import os
import re
import shutil
from contextlib import closing
from typing import TYPE_CHECKING

from sparkbuild.agent.git.command import GitError, git, no_such_object, refuse
from sparkbuild.agent.git.mirror import Mirror, absolute, resolve
from sparkbuild.agent.git.objects import BrokenMirrorError, Commit, HostileTreeError, Objects
from sparkbuild.agent.git.tree import walk
from sparkbuild.agent.wire.protocol import AgentError, Reporter, config_error, integrity_error

if TYPE_CHECKING:
    from sparkbuild.agent.wire.store import (
        CheckRequest,
        CheckResult,
        News,
        PinRequest,
        PinResult,
        RefsRequest,
        RefsResult,
        Submodule,
    )  # fmt: skip

_SUBJECTS = 20
_SUBMODULES = 100
_COMMIT = re.compile(r"[0-9a-f]{40}")
_SHORT_COMMIT = re.compile(r"[0-9a-f]{4,39}")
_SHORT_SSH = re.compile(r"(?P<host>[\w.-]+@[\w.-]+):(?P<path>[^/:][^:]*)")


def run(request: RefsRequest | CheckRequest | PinRequest, reporter: Reporter) -> RefsResult | CheckResult | PinResult:
    """Ask the repository; nothing is ever believed of what is there from before. Errors: kind "gone" when it answered
    and does not have it, "node" when it cannot be had, "integrity" when it is hostile.
    """
    try:
        if request["action"] == "refs":
            mirror = Mirror(request["store"], request["url"], request["root"], reporter)
            return {"refs": mirror.refs("HEAD", "refs/heads/*", "refs/tags/*")}
        return _check(request, reporter) if request["action"] == "check" else _pin(request, reporter)
    except (BrokenMirrorError, HostileTreeError) as error:
        raise integrity_error("the repository is not in order", where=request["url"], found=str(error)) from error


def _check(request: CheckRequest, reporter: Reporter) -> CheckResult:
    """The commit as the repository gives it out now; its files are not fetched where the server can leave them out. In
    a repository of its own: a mirror that has the commit would not ask for it.
    """
    url, commit, ref = request["url"], request["commit"], request["ref"]
    work = os.path.join(request["store"], "mirrors", f"check-{os.getpid()}.tmp")
    os.makedirs(os.path.dirname(work), exist_ok=True)
    remote = absolute(url, request["root"])
    try:
        _fresh(work, remote)
        filters: tuple[str, ...] = _FILTER
        tries = [["--depth=1", "origin", commit]] + ([["origin", ref]] if ref else [])
        tries += [["origin", "+refs/heads/*:refs/all/heads/*", "+refs/tags/*:refs/all/tags/*"]]
        for arguments in tries:
            try:
                git(work, *_FETCH, *filters, *arguments, reporter=reporter)
                with closing(Objects(work)) as objects:
                    there = objects.commit(commit)
                    return {"tree": there.tree, "time": there.time}
            except GitError as error:
                if not no_such_object(error):
                    refuse(error, url)
                if _DUMB in error.text:
                    shutil.rmtree(work)
                    _fresh(work, remote, partial=False)
                    filters = ()
            except BrokenMirrorError:  # this way, the commit did not come
                continue
    finally:
        shutil.rmtree(work, ignore_errors=True)
    raise AgentError(f"commit {commit} is not in the repository", kind="gone", where=url)


_FETCH = ("fetch", "--no-tags", "--no-write-fetch-head", "--no-recurse-submodules", "--force")
_FILTER = ("--filter=tree:0",)  # commits alone
_DUMB = "dumb http transport"


def _fresh(work: str, remote: str, *, partial: bool = True) -> None:
    """A repository, by default one that may leave out trees and files. From a server of plain files, which cannot leave
    out any, git would ask for these without end (seen with 2.39).
    """
    git(work, "init", "--quiet", "--bare", "--template=", "--object-format=sha1")
    git(work, "config", "remote.origin.url", remote)
    if partial:
        git(work, "config", "remote.origin.promisor", "true")
        git(work, "config", "remote.origin.partialCloneFilter", "tree:0")


def _pin(request: PinRequest, reporter: Reporter) -> PinResult:
    """What it names, fetched into the mirror."""
    store, root, url, ref, old = request["store"], request["root"], request["url"], request["ref"], request["old"]
    mirror = Mirror(store, url, root, reporter)
    commit = ref
    if not _COMMIT.fullmatch(ref):
        refs = mirror.refs("HEAD", "refs/heads/*", "refs/tags/*")
        commit = resolve(refs, ref)
        if not commit:
            raise _no_such_ref(url, ref, refs)
    mirror.ensure(commit, "" if _COMMIT.fullmatch(ref) else ref)
    pinned, submodules = _opened(mirror, commit, Modules(store, root, reporter))
    news: News = {"subjects": [], "count": 0, "told": ""}
    if old and old != commit:
        news = _since(mirror, old, commit, reporter)
    return {"commit": commit, "tree": pinned.tree, "time": pinned.time, "submodules": submodules, **news}


def _no_such_ref(url: str, ref: str, refs: dict[str, str]) -> AgentError:
    names = {name.removesuffix("^{}").split("/", 2)[2] for name in refs if name.count("/") >= 2}
    near = difflib.get_close_matches(ref, names, n=3, cutoff=0.5)
    wanted = f"did you mean {', '.join(near)}?" if near else f"a branch, a tag or a commit; it has {len(names)} refs"
    if _SHORT_COMMIT.fullmatch(ref):
        wanted = f"all 40 digits, if it is a commit: abbreviated, it may mean another one tomorrow; {wanted}"
    return config_error(f"there is no branch or tag `{ref}`", where=url, wanted=wanted)


class Modules:
    """Finds the submodules of a tree, and theirs."""

    def __init__(self, store: str, root: str, reporter: Reporter) -> None:
        self.store, self.root, self.reporter = store, root, reporter
        self.found: list[Submodule] = []

    def of(self, mirror: Mirror, objects: Objects, tree: str, prefix: str) -> None:
        """Add the submodules of a tree of that repository, at `prefix` of the whole. Fetches each."""
        for loose in walk(objects, tree, {})[1]:
            if len(self.found) >= _SUBMODULES:
                raise HostileTreeError(f"it has more than {_SUBMODULES} submodules")
            path = prefix + loose.path
            urls = _gitmodules(mirror, objects, tree)
            if loose.path not in urls:
                where = f"{mirror.url}, .gitmodules"
                raise config_error(f"submodule {path} has no url", where=where)
            url = joined(mirror.url, urls[loose.path])
            other = Mirror(self.store, url, self.root, self.reporter)
            other.ensure(loose.commit)
            with closing(Objects(other.path)) as theirs:
                inner = theirs.commit(loose.commit).tree
                self.found.append({"path": path, "repository": url, "commit": loose.commit, "tree": inner})
                self.of(other, theirs, inner, f"{path}/")


def _opened(mirror: Mirror, commit: str, modules: Modules) -> tuple[Commit, list[Submodule]]:
    with closing(Objects(mirror.path)) as objects:
        opened = objects.commit(commit)
        modules.of(mirror, objects, opened.tree, "")
    return opened, sorted(modules.found, key=lambda module: module["path"])


def _gitmodules(mirror: Mirror, objects: Objects, tree: str) -> dict[str, str]:
    """URL by path, of a tree's .gitmodules."""
    oid = next((item.oid for item in objects.tree(tree) if item.name == b".gitmodules"), "")
    if not oid:
        return {}
    try:
        pairs = git(mirror.path, "config", "-z", f"--blob={oid}", "--list").out.decode(errors="replace").split("\0")
    except GitError as error:
        raise HostileTreeError(f".gitmodules cannot be read: {error.text}") from error
    values = {key: value for key, _, value in (pair.partition("\n") for pair in pairs)}
    starts = {key.removesuffix(".path"): value for key, value in values.items() if key.endswith(".path")}
    return {path: values[f"{start}.url"] for start, path in starts.items() if f"{start}.url" in values}


def joined(base: str, url: str) -> str:
    """A submodule's URL: relative ones start from the repository they are in; the short form of ssh is written out."""
    if url.startswith(("./", "../")):
        base = base.rstrip("/")
        for step in url.split("/"):
            if step == "..":
                base = base.rpartition("/")[0]
            elif step != ".":
                base += f"/{step}"
        return base
    short = _SHORT_SSH.fullmatch(url)
    return f"ssh://{short['host']}/{short['path']}" if short else url


def _since(mirror: Mirror, old: str, new: str, reporter: Reporter) -> News:
    """The subjects of the commits that `new` has and `old` has not. Without them a pin is still a pin."""
    history = f"{mirror.path.removesuffix('.git')}.history.git"
    try:
        with mirror.held():
            count, lost, text = _compare(history, mirror.remote, old, new, reporter)
    except (GitError, ValueError) as error:
        shutil.rmtree(history, ignore_errors=True)
        gone = any(text in str(error) for text in ("bad object", "not our ref", "could not fetch", "Invalid revision"))
        told = "the repository no longer has the old commit" if gone else "what is new cannot be told"
        reporter.log(f"no subjects: {error}")
        return {"subjects": [], "count": 0, "told": told}
    subjects = ["".join(char if char.isprintable() else " " for char in line)[:160] for line in text.splitlines()]
    told = f"no longer in it: {lost} of the old commits" if lost else ""
    return {"subjects": subjects, "count": count, "told": told}


def _compare(history: str, remote: str, old: str, new: str, reporter: Reporter) -> tuple[int, int, str]:
    """How many commits `new` has more, and less, than `old`, and the subjects. Raises GitError, ValueError."""
    if not os.path.isdir(history):
        _fresh(history, remote)
        if remote.startswith("http"):  # fails at once where the server is one of plain files
            git(history, *_FETCH, *_FILTER, "--depth=1", "origin", new)
            shutil.rmtree(history)
            _fresh(history, remote)
    try:
        git(history, *_FETCH, *_FILTER, "origin", f"{new}:refs/new", f"{old}:refs/old", reporter=reporter)
    except GitError as error:
        if not no_such_object(error):
            raise
        everything = ("+refs/heads/*:refs/all/heads/*", "+refs/tags/*:refs/all/tags/*")
        git(history, *_FETCH, *_FILTER, "origin", *everything, reporter=reporter)
    count = int(git(history, "rev-list", "--count", f"{old}..{new}").text)
    lost = int(git(history, "rev-list", "--count", f"{new}..{old}").text)
    return count, lost, git(history, "log", f"-n{_SUBJECTS}", "--format=%h %s", "--abbrev=12", f"{old}..{new}").text
