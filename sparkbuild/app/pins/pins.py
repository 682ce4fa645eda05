"""What `lock:update` writes: new pins of git sources, base images and wheels, as upstream has them now."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import closing

import msgspec

from sparkbuild.agent.wire.store import PIN, PinAsk
from sparkbuild.core.errors import LockError, UpstreamError
from sparkbuild.core.run import Run
from sparkbuild.core.suggest import did_you_mean, nearest
from sparkbuild.nodes.cluster import LOCAL
from sparkbuild.upstream import packageindex
from sparkbuild.upstream.registry import Registry
from sparkbuild.workspace.locks import baseimage, gitsource
from sparkbuild.workspace.locks.sourcelock import SourceLock

_COMMIT = re.compile(r"[0-9a-f]{40}")
_WORDS = {"git": "REF", "image": "TAG", "wheel": "VERSION"}
_BY_URL = "it is a file by its URL, which has no versions to look up"
_TAG = re.compile(r"\w[\w.-]{0,127}")
# What else locks have of a component that goes by its commit, and that only a build can tell.
_FOLLOWS = (".bundle.sha256", ".package.tree", ".version", ".wheel.sha256", ".extension.sha256")


class Change(msgspec.Struct, frozen=True):
    """New values of one component's keys, and keys that it no longer has. `subjects` are of the newest of the `count`
    commits that came; `note` is what else is to be said.
    """

    component: str
    values: dict[str, str]
    without: tuple[str, ...] = ()
    subjects: tuple[str, ...] = ()
    count: int = 0
    note: str = ""

    def changes(self, old: Mapping[str, str]) -> bool:
        """Whether anything is other than it was."""
        return any(old.get(key) != value for key, value in self.values.items()) or any(
            key in old for key in self.without
        )


def pin_all(lock: SourceLock, asked: Mapping[str, str], run: Run) -> list[Change]:
    """The changes of the components that are `asked` for, ref by component; when none is, of all that follow a ref.

    Raises LockError for a name that is none, and the error of the first component that cannot be had.
    """
    kinds, asked = _kinds(lock), check_asked(lock, asked)
    if asked:
        return [_pin(kinds[name], name, ref, lock, run) for name, ref in asked.items()]
    followed = [(name, ref) for name in dict.fromkeys(kinds) if (ref := _followed(kinds[name], name, lock))]
    if not followed:
        raise LockError(
            f"nothing in {lock.path} follows a branch or a tag",
            wanted="component=ref, or `<component>.ref` in the lock" if _asked_for(kinds) else "",
            next=_example(kinds, lock.name),
        )
    return [_pin(kinds[name], name, ref, lock, run) for name, ref in followed]


def check_asked(lock: SourceLock, asked: Mapping[str, str]) -> dict[str, str]:
    """The refs by the whole names of their components. Raises LockError for a name that is none, or a ref that is."""
    kinds = _kinds(lock)
    # `runtime.base` is enough for `runtime.base.image`
    found = {name if name in kinds else _whole(name, kinds): ref for name, ref in asked.items()}
    for name, ref in found.items():
        if name not in kinds:
            raise _unknown(name, kinds, lock)
        if not ref:
            raise LockError(f"`{name}=` names nothing", wanted=f"{name}=<branch, tag, commit or version>")
    return found


def _unknown(name: str, kinds: Mapping[str, str], lock: SourceLock) -> LockError:
    what, where = f"{lock.path} has no component `{name}` to update", f"{lock.path}:1"
    near = nearest(name, kinds)
    if kinds.get(near) == "url":
        return LockError(what, where=where, wanted=f"did you mean `{near}`? {_BY_URL}", next=_by_hand(near, lock))
    hint = did_you_mean(name, _asked_for(kinds)) or "a component of the lock"
    return LockError(what, where=where, wanted=hint)


def _by_hand(name: str, lock: SourceLock) -> str:
    return f"write the new {name}.artifact.url and {name}.artifact.sha256, then `doit lock:verify:{lock.name}`"


def _asked_for(kinds: Mapping[str, str]) -> list[str]:
    """The components that `lock:update` can look up: a file by its URL has no versions."""
    return [name for name, kind in kinds.items() if kind != "url"]


def _example(kinds: Mapping[str, str], lock: str) -> str:
    """What to do about a lock in which nothing is followed."""
    name = next(iter(_asked_for(kinds)), "")
    if name:
        return f"name what to update, as in `doit lock:update {lock} {name}={_WORDS[kinds[name]]}`"
    if kinds:
        return f"all that it pins are files by their URL: write the new url and sha256, then `doit lock:verify:{lock}`"
    return f"it pins local files at most: `doit lock:pin:{lock}`"


def _whole(name: str, kinds: Mapping[str, str]) -> str:
    return name + baseimage.ENDING if name + baseimage.ENDING in kinds else name


def _kinds(lock: SourceLock) -> dict[str, str]:
    """What kind each name is of: "git", "image" (by its key), "wheel" or "url"."""
    found = dict.fromkeys(lock.artifacts(), "url")
    found |= {name: "wheel" for name in found if f"{name}.wheel.name" in lock.values}
    return {
        **dict.fromkeys(gitsource.unpinned(lock.values), "git"),
        **found,
        **dict.fromkeys(lock.images(), "image"),
        **dict.fromkeys(lock.sources(), "git"),
    }


def _followed(kind: str, name: str, lock: SourceLock) -> str:
    """The ref that a component follows, "" for none. A git source without one is only completed, at its commit."""
    values = lock.values
    if kind == "git":
        incomplete = any(f"{name}.{part}" not in values for part in ("tree", "time"))
        return values.get(f"{name}.ref") or (values.get(f"{name}.commit", "") if incomplete else "")
    if kind == "image":
        found = baseimage.parse(name, values[name])
        return found.tag if found else ""
    return ""


def _pin(kind: str, name: str, ref: str, lock: SourceLock, run: Run) -> Change:
    run.note(f"look up {name} at {ref}")
    if kind == "git":
        return _git(name, ref, lock, run)
    if kind == "image":
        return _image(name, ref, lock)
    if kind == "wheel":
        return _wheel(name, ref, lock)
    raise LockError(f"`{name}`: {_BY_URL}", where=lock.where(f"{name}.artifact.url"), next=_by_hand(name, lock))


def _git(name: str, ref: str, lock: SourceLock, run: Run) -> Change:
    values = lock.values
    key = f"{name}.repository"
    url = values[key]
    wanted = gitsource.url_wanted(url)
    by_commit = _COMMIT.fullmatch(ref) is not None
    if wanted or (not by_commit and gitsource.bad_ref(ref)):
        what = f"`{key}` cannot be used" if wanted else f"`{ref}` cannot be a branch or a tag"
        raise LockError(what, where=lock.where(key), wanted=wanted)
    old = values.get(f"{name}.commit", "")
    found = run.call(LOCAL, PIN, PinAsk(root=str(run.root), action="pin", url=url, ref=ref, old=old))
    new = {f"{name}.ref": ref}
    if by_commit:
        asked = values.get(f"{name}.ref", "")
        new = {f"{name}.ref": asked if ref == old else ""} if f"{name}.ref" in values else {}
    new |= {f"{name}.commit": found["commit"], f"{name}.tree": found["tree"], f"{name}.time": str(found["time"])}
    start = f"{name}.submodule."
    for module in found["submodules"]:
        at = f"{start}{module['path']}"
        new |= {
            f"{at}.repository": module["repository"], f"{at}.commit": module["commit"], f"{at}.tree": module["tree"]
        }  # fmt: skip
    gone = tuple(key for key in values if key.startswith(start) and key not in new)
    notes = [found["told"]] if found["told"] else []
    if old and old != found["commit"]:
        stale = [name + ending for ending in _FOLLOWS if name + ending in values]
        notes += [f"not touched, and of the old commit: {', '.join(stale)}"] if stale else []
        same = found["tree"] == values.get(f"{name}.tree")
        notes += ["the tree is the same: nothing is built anew"] if same else []
    return Change(name, new, gone, tuple(found["subjects"]), found["count"], "; ".join(notes))


def _image(key: str, tag: str, lock: SourceLock) -> Change:
    image = baseimage.parse(key, lock.values[key])
    if image is None or not _TAG.fullmatch(tag):
        what = f"`{tag}` cannot be a tag" if image else f"`{key}` is not an image"
        raise LockError(what, where=lock.where(key), found=repr(lock.values[key][:200]), wanted="name:tag")
    with closing(Registry(image.host, image.path)) as registry:
        digest = registry.digest(tag)
    return Change(key, {key: msgspec.structs.replace(image, tag=tag, digest=digest).written()})


def _wheel(name: str, version: str, lock: SourceLock) -> Change:
    found = packageindex.wheel(lock.values[f"{name}.wheel.name"], version)
    old = lock.values.get(f"{name}.wheel.file", "")
    if old and old.split("-")[-1] != found.filename.split("-")[-1]:
        raise UpstreamError(
            f"{name}: the index has {version} for another platform than the lock",
            found=found.filename,
            wanted=f"a wheel for {old.split('-')[-1].removesuffix('.whl')}",
            next="run it on a machine of that platform, or write the lines by hand",
        )
    values = {"version": found.version, "file": found.filename, "sha256": found.sha256}
    return Change(name, {f"{name}.wheel.{part}": value for part, value in values.items()})
