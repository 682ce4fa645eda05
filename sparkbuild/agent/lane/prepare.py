"""What a rank needs beside its image: the recipe's files and its secrets, put where its launch can name them.

Secrets lie in memory (/dev/shm), readable for the user alone, until the lane is stopped or launched anew: they are on
no disk, in no argv and in no container's settings.
"""

from __future__ import annotations

import base64
import hashlib
import os
import shutil
from typing import Any

from sparkbuild.agent.lane import record as lanes
from sparkbuild.agent.wire.protocol import AgentError, Reporter

MEMORY = "/dev/shm"  # noqa: S108 - a folder of our own is made in it, with mode 0700


def run(request: dict[str, Any], reporter: Reporter) -> dict[str, Any]:
    """Request {"store", "recipe", "launch", "folder", "files": {name: base64}, "secrets": {name: text}}.

    `folder` is a name made from the content of the files: other content lies elsewhere, so a running lane keeps its
    own. Result {"files": path or "", "secrets": path or ""}.
    """
    del reporter
    store, recipe = request["store"], request["recipe"]
    secrets = request.get("secrets") or {}
    for name in (recipe, request["launch"], request["folder"], *secrets):
        _must_be_plain(name)
    folder = lanes.folder(store, recipe)
    os.makedirs(folder, exist_ok=True)
    return {
        "files": _files(os.path.join(folder, request["folder"]), request.get("files") or {}),
        "secrets": _secrets(store, recipe, request["launch"], secrets),
    }


def _must_be_plain(name: str) -> None:
    """What is made below our folders is one step down from them."""
    if name in ("", ".", "..") or "/" in name or "\0" in name:
        raise AgentError("a name that is none", found=repr(name), wanted="one without a slash")


def _files(path: str, encoded: dict[str, str]) -> str:
    if not encoded:
        return ""
    for name, data in ((name, base64.b64decode(text)) for name, text in encoded.items()):
        place = os.path.normpath(os.path.join(path, name))
        if not place.startswith(path + os.sep) or "\0" in name:
            raise AgentError("a file of the recipe would lie outside of its folder", found=name)
        os.makedirs(os.path.dirname(place), exist_ok=True)
        _write(place, data, 0o644)
    for inner, _, _ in os.walk(path):
        os.chmod(inner, 0o755)  # noqa: S103 - a container may run as another user, whatever our umask
    return path


def _write(path: str, data: bytes, mode: int) -> None:
    temporary = f"{path}.{os.getpid()}.part"
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode)
    with os.fdopen(fd, "wb") as file:
        os.fchmod(fd, mode)
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.rename(temporary, path)


def secrets_base(store: str, recipe: str) -> str:
    """Where the secrets of one recipe lie in memory; the store tells two workspaces on one node apart."""
    name = hashlib.sha256(store.encode()).hexdigest()[:8]
    return os.path.join(MEMORY, f"sparkbuild-{os.geteuid()}", f"{recipe}-{name}")


def forget(store: str, recipe: str, launch: str = "") -> None:
    """Remove the secrets of a lane that no longer runs: of one launch, or of all."""
    if launch:
        _must_be_plain(launch)
    shutil.rmtree(os.path.join(secrets_base(store, recipe), launch), ignore_errors=True)


def _secrets(store: str, recipe: str, launch: str, values: dict[str, str]) -> str:
    forget(store, recipe)
    if not values:
        return ""
    base = secrets_base(store, recipe)
    top = os.path.dirname(base)
    os.makedirs(top, mode=0o700, exist_ok=True)
    owner = os.lstat(top)
    if owner.st_uid != os.geteuid() or not os.path.isdir(top) or os.path.islink(top):
        raise AgentError("the folder for secrets belongs to somebody else", where=top, next=f"ls -ld {top}")
    os.chmod(top, 0o700)
    path = os.path.join(base, launch)
    os.makedirs(path, mode=0o700)
    for name, value in values.items():
        _write(os.path.join(path, name), value.encode(errors="surrogateescape"), 0o600)
    return path
