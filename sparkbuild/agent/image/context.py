"""Make the context of a build: one tar with the Dockerfile, the sources, artifacts and files; the same inputs, the same
bytes. It is made where the sources are, and may be sent elsewhere.
"""

from __future__ import annotations

import base64
import os
import secrets
import shutil
import tarfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING

from sparkbuild.agent.disk import opentar
from sparkbuild.agent.disk.files import fsync_folder, inside, keep_owner, read_json
from sparkbuild.agent.disk.held import remove_tree, rename
from sparkbuild.agent.git.command import GitError, git
from sparkbuild.agent.image.contexttar import ContextTar, file_at, file_of
from sparkbuild.agent.image.layer import checked
from sparkbuild.agent.store.artifacts import path_of
from sparkbuild.agent.store.kept import sha256_of
from sparkbuild.agent.wire.protocol import AgentError, Reporter, config_error, integrity_error

if TYPE_CHECKING:
    from sparkbuild.agent.wire.images import (
        ContextRequest,
        ContextResult,
        ContextSource,
        Discarded,
        DiscardRequest,
        NamedPatch,
    )  # fmt: skip

_CONTEXT = "context.tar"
_OLD = 24 * 3600.0  # seconds


def run(request: ContextRequest | DiscardRequest, reporter: Reporter) -> ContextResult | Discarded:
    """Make a context, or remove it again. Each has a folder of its own: another operator may be at the same image here,
    or at the same key, and is left alone. Errors: kind "integrity" when a source or artifact is not what was pinned,
    "config" when a patch does not fit.
    """
    base = os.path.join(request["store"], "contexts", request["name"])
    if "discard" in request:
        folder = os.path.dirname(inside(request["store"], request["discard"]))
        if os.path.dirname(folder) == inside(request["store"], os.path.join("contexts", request["name"])):
            remove_tree(folder)
        _sweep(base)
        return {}
    os.makedirs(base, exist_ok=True)
    _sweep(base)
    folder = os.path.join(base, f"{request['key'][:12]}-{secrets.token_hex(4)}")
    part = f"{folder}.part"
    os.makedirs(part)
    try:
        digest, size = _make(request, part, reporter)
    except BaseException:
        remove_tree(part)
        raise
    rename(part, folder)
    keep_owner(folder)
    fsync_folder(base)
    path = os.path.relpath(os.path.join(folder, _CONTEXT), request["store"])
    return {"path": path, "sha256": digest, "bytes": size}


def _sweep(base: str) -> None:
    """Remove what killed runs left. Who is at work with a context opens it long before it is that old, and keeps what
    was opened.
    """
    for entry in os.listdir(base) if os.path.isdir(base) else ():
        path = os.path.join(base, entry)
        with suppress(FileNotFoundError):
            if time.time() - os.lstat(path).st_mtime > _OLD:
                remove_tree(path)


def _make(request: ContextRequest, part: str, reporter: Reporter) -> tuple[str, int]:
    work = os.path.join(part, "work")
    os.makedirs(work)
    with ExitStack() as held:
        tar = ContextTar(request["epoch"])
        tar.add("Dockerfile", file_of(request["dockerfile"].encode()))
        for name, text in request["files"].items():
            content = base64.b64decode(text)
            tar.add(f"files/{name}", file_of(content, executable=content.startswith(b"#!")))
        for artifact in request["artifacts"]:
            path = path_of(request["store"], artifact["sha256"], artifact["filename"])
            sha256 = sha256_of(path)
            if sha256 != artifact["sha256"]:
                raise _changed(artifact["filename"], path, sha256, artifact["sha256"])
            tar.add(f"artifacts/{artifact['filename']}", file_at(path))
        for source in request["sources"]:
            _add_source(tar, request["store"], source, work, held)
        written = tar.write(os.path.join(part, _CONTEXT), reporter)
    remove_tree(work)
    return written


def _add_source(tar: ContextTar, store: str, source: ContextSource, work: str, held: ExitStack) -> None:
    """Add a source; what must stay open until the context is written is given to `held`."""
    path = inside(store, source["archive"])
    wanted = str((read_json(os.path.join(os.path.dirname(path), "receipt.json")) or {}).get("sha256", ""))
    sha256 = sha256_of(path)
    if sha256 != wanted:
        raise _changed(f"source {source['component']}", path, sha256, wanted or "a receipt")
    prefix = f"sources/{source['component']}"
    if not source["patches"]:
        archive = held.enter_context(_open(path))
        for member in archive:
            tar.add_member(prefix, archive, member)
        return
    folder = os.path.join(work, source["component"])
    _unpack(path, folder)
    for patch in source["patches"]:
        _apply(patch, source["component"], folder)
    _refuse_ways_out(folder, source["component"])
    for name in _walk(folder):
        tar.add_path(f"{prefix}/{name}", os.path.join(folder, name))


def _open(path: str) -> tarfile.TarFile:
    return opentar.opened(path, errors="surrogateescape")


def _unpack(path: str, folder: str) -> None:
    """What the archive of a source holds; its names were checked when it was written, and are again."""
    os.makedirs(folder)
    with _open(path) as archive:
        links = []
        for member in archive:
            place = os.path.join(folder, checked(member.name, os.path.basename(path)))
            if member.isdir():
                os.makedirs(place, exist_ok=True)
            elif member.issym():
                links.append((member.linkname, place))  # last: nothing is written through one
            elif member.isreg() and (content := archive.extractfile(member)) is not None:
                os.makedirs(os.path.dirname(place), exist_ok=True)
                with open(place, "xb") as file:
                    shutil.copyfileobj(content, file)
                os.chmod(place, 0o755 if member.mode & 0o111 else 0o644)
        for target, place in links:
            os.makedirs(os.path.dirname(place), exist_ok=True)
            os.symlink(target, place)


def _apply(patch: NamedPatch, component: str, folder: str) -> None:
    """`git apply` of one patch. It must not take the folder for a part of a repository that it lies in: it would then
    leave out, in silence, what that does not have.
    """
    text, ceiling = base64.b64decode(patch["text"]), {"GIT_CEILING_DIRECTORIES": os.path.dirname(folder)}
    try:
        git("", "apply", "--whitespace=nowarn", "-", stdin=text, extra=ceiling, folder=folder)
    except GitError as error:
        raise config_error(
            f"{patch['name']} does not fit source {component}",
            found=error.text[-1000:],
            next="make the patch anew for this source, or take it out of image.toml",
        ) from error


def _refuse_ways_out(folder: str, component: str) -> None:
    """A source's own tree was looked at when it was fetched; a patch may have added a link that leads out of it."""
    for name in _walk(folder):
        path = os.path.join(folder, name)
        if os.path.islink(path):
            target = os.readlink(path)
            end = os.path.normpath(os.path.join(os.path.dirname(name), target))
            if os.path.isabs(target) or end == ".." or end.startswith("../"):
                raise config_error(
                    f"a patch of source {component} adds a link that leads out of it",
                    found=f"{name} -> {target}",
                    next="take the link out of the patch",
                )


def _walk(folder: str) -> Iterator[str]:
    for base, folders, names in os.walk(folder):
        for name in (*folders, *names):
            yield os.path.relpath(os.path.join(base, name), folder)


def _changed(what: str, path: str, sha256: str, wanted: str) -> AgentError:
    return integrity_error(
        f"{what} is not what the lock pins",
        where=path,
        found=f"sha256 {sha256}",
        wanted=f"sha256 {wanted}",
        next="remove the file and run again; nothing was built from it",
    )
