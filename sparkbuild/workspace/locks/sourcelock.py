"""A source lock, `locks/<name>.source.lock`: the exact inputs of an image. Read, checked against files, re-pinned."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from sparkbuild.core.errors import ConfigError, LockError
from sparkbuild.workspace.files.inputs import LIMIT, check_name, read_input
from sparkbuild.workspace.files.smallfile import UnreadableError, read_small
from sparkbuild.workspace.files.wholefile import replace
from sparkbuild.workspace.locks import artifact, baseimage, gitsource
from sparkbuild.workspace.locks.artifact import Artifact
from sparkbuild.workspace.locks.baseimage import BaseImage
from sparkbuild.workspace.locks.gitsource import GitSource
from sparkbuild.workspace.locks.include import include, include_name
from sparkbuild.workspace.locks.text import (
    EPOCH,
    FORMAT,
    LockValues,
    check_pairs,
    check_value,
    dump,
    input_key,
    input_name,
    scan,
    update,
)

__all__ = ["FORMAT", "SUFFIX", "Artifact", "SourceLock", "dump", "parse", "pin", "read", "update", "verify", "write"]

SUFFIX = ".source.lock"
_EPOCH = 946_684_800  # the year 2000: a zip file knows no time before 1980
_ZEROS = re.compile(r"(?:^|@sha256:)(0{64}|0{40})$")


class SourceLock(LockValues, frozen=True):
    """A lock that was read, and what its values pin."""

    # those asked for so far: each is asked for twice in every run
    read_artifacts: dict[str, Artifact] = msgspec.field(default_factory=dict)

    def artifact(self, component: str) -> Artifact:
        """The artifact of that name; raises LockError when it is missing (did you mean) or not completely pinned."""
        if component not in self.read_artifacts:
            self.read_artifacts[component] = artifact.artifact(component, self.values, self.path, self.lines)
        return self.read_artifacts[component]

    def artifacts(self) -> tuple[str, ...]:
        """The components that are artifacts, sorted."""
        return artifact.components(self.values)

    def source(self, component: str) -> GitSource:
        """The git source of that name; raises LockError when it is missing or not completely pinned."""
        return gitsource.source(component, self)

    def sources(self) -> tuple[str, ...]:
        """The components that are git sources, sorted."""
        return gitsource.components(self.values)

    def image(self, key: str) -> BaseImage:
        """The base image under a key; raises LockError when there is none, or it has no digest."""
        return baseimage.image(key, self)

    def images(self) -> tuple[str, ...]:
        """The keys that name a base image, sorted."""
        return baseimage.keys(self.values)

    @property
    def epoch(self) -> int:
        """The time of all files of an image that is built from it, unix seconds. Of no commit: a rebase to the same
        trees must build nothing anew.
        """
        return int(self.values.get(EPOCH, _EPOCH))

    def check(self) -> list[LockError]:
        """What cannot be used of the artifacts, git sources and base images, each read as it is for use; and hashes
        that are all zeros, which fetching would refuse.
        """
        found = self._placeholders()
        for names, read_one in (
            (self.artifacts(), self.artifact),
            (self.sources(), self.source),
            (self.images(), self.image),
        ):
            for name in names:
                try:
                    read_one(name)
                except LockError as error:
                    found.append(error)
        return found

    def _placeholders(self) -> list[LockError]:
        return [
            LockError(
                f"`{key}` is a placeholder",
                where=self.where(key),
                found=f"{len(zeros[1])} zeros",
                wanted="the hash of what is pinned",
                next=f"write it, or take `{key.rpartition('.')[0]}` out; of a file, sha256sum tells it"
                if key.endswith(".sha256")
                else f"write it, or have `doit lock:update {self.name} {key.removesuffix('.commit')}=REF` write it",
            )
            for key, value in self.values.items()
            if (zeros := _ZEROS.search(value)) is not None
        ]


def canonical(values: Mapping[str, str]) -> bytes:
    """What a lock's sha256 is taken of: `key=value` lines sorted by key, each ended by LF, in UTF-8."""
    return "".join(f"{key}={values[key]}\n" for key in sorted(values)).encode()


def parse(text: str, name: str, path: str) -> SourceLock:
    """Read a lock's text; `path` (relative to the workspace) is for the errors.

    Raises LockError with `where` as path:line.
    """
    values: dict[str, str] = {}
    lines: dict[str, int] = {}
    for line in scan(text, path):
        check_value(line.key, line.value, f"{path}:{line.number}")
        values[line.key] = line.value
        lines[line.key] = line.number
    return SourceLock(name, path, values, hashlib.sha256(canonical(values)).hexdigest(), lines)


def read(path: Path | str, root: Path | str) -> SourceLock:
    """Read a lock file and the files it includes. Raises LockError when one cannot be read or is of another form."""
    shown = os.path.relpath(path, root)
    lock = parse(_text(path, shown), os.path.basename(path).removesuffix(SUFFIX), shown)
    for key in [key for key in lock.values if include_name(key)]:
        _include(lock, key, os.fspath(root))
    return lock


def _include(lock: SourceLock, key: str, root: str) -> None:
    """Add the keys of an included file; for errors of what reads only lines, they stand where the file is included."""
    name = include_name(key)
    for pair in include(root, name, lock.values[key], lock.where(key), lock.name):
        if pair.key in lock.values:
            raise LockError(
                f"`{pair.key}` stands there twice",
                where=pair.where,
                found=f"also in {lock.where(pair.key)}",
                wanted="each key once in a lock and what it includes",
            )
        try:
            check_pairs({pair.key: pair.value})
        except LockError as error:
            raise LockError(error.what, where=pair.where, found=error.found, wanted=error.wanted) from error
        lock.values[pair.key] = pair.value
        lock.lines[pair.key] = lock.lines[key]
        lock.included[pair.key] = pair.where


def _text(path: Path | str, shown: str) -> str:
    try:
        data = read_small(path, LIMIT)
    except UnreadableError as error:
        raise LockError(f"{shown} {error.what}", where=f"{shown}:1", found=error.found, wanted=error.wanted) from error
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise LockError(
            f"{shown} is not UTF-8", where=f"{shown}:{line}", found=f"byte 0x{data[error.start]:02x}"
        ) from error


def write(path: Path | str, text: str, shown: str) -> None:
    """Write a lock file so that at any moment, and after a power cut, the old or the new text is there, whole. `shown`
    is its path in messages.

    Raises LockError when it cannot be written; the old text is there then.
    """
    try:
        replace(path, text)
    except OSError as error:
        raise LockError(
            f"{shown} cannot be written",
            found=error.strerror or str(error),
            wanted="a file that can be written; nothing of it was changed",
            next=f"make it writable (chmod u+w {shown}) or look at its disk, then run again",
        ) from error


def verify(lock: SourceLock, root: Path | str) -> tuple[LockError, ...]:
    """Compare every local file that the lock pins with what is on disk; returns what disagrees, () if nothing does."""
    problems = []
    for name, wanted in lock.inputs().items():
        where = lock.where(input_key(name))
        restore = "restore the file and run `doit lock:check`"
        accept = f"{restore}, or run `doit lock:pin:{lock.name}` to pin it as it is now"
        try:
            found = read_input(os.fspath(root), "", name).sha256
        except ConfigError as error:
            problems.append(
                LockError(error.what, where=where, found=error.found, wanted=error.wanted or wanted, next=restore)
            )
            continue
        if found != wanted:
            problems.append(
                LockError(f"{name} is not what the lock pins", where=where, found=found, wanted=wanted, next=accept)
            )
    return tuple(problems)


def pin(lock_path: Path | str, root: Path | str, also: Iterable[str] = ()) -> tuple[str, tuple[str, ...]]:
    """The lock's text with the sha256 of its local inputs as they are now, and the keys that changed. Writes nothing.

    Values of `input.*.sha256` and `include.*.sha256` keys may be anything before, so a new input is pinned by adding
    its key with nothing after the `=`. A patch's own key follows its input's. `also` names further files to pin,
    relative to the workspace.

    Raises LockError when the lock or one of the files cannot be read.
    """
    shown = os.path.relpath(lock_path, root)
    text = _text(lock_path, shown)
    lines = scan(text, shown)
    pinned = {name: line for line in lines if (name := input_name(line.key) or include_name(line.key))}
    changes = {}
    for name in [*pinned, *(name for name in also if name not in pinned)]:
        where = f"{shown}:{pinned[name].number}" if name in pinned else shown
        try:
            check_name(name)
            found = read_input(os.fspath(root), "", name).sha256
        except ConfigError as error:
            next_ = f"mend it, or take it out of {shown}"
            raise LockError(error.what, where=where, found=error.found, wanted=error.wanted, next=next_) from error
        if name not in pinned or pinned[name].value != found:
            changes[pinned[name].key if name in pinned else input_key(name)] = found
            if name in pinned and pinned[name].value:  # a patch is the same file by another name
                same = (line for line in lines if ".patch." in line.key and line.value == pinned[name].value)
                changes |= dict.fromkeys((line.key for line in same), found)
    text = update(text, changes, shown)
    parse(text, os.path.basename(lock_path).removesuffix(SUFFIX), shown)
    return text, tuple(changes)
