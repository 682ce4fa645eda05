"""Writing small files so that they are whole or absent, whatever happens."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sparkbuild.agent.wire.protocol import AgentError


def fsync_folder(path: str) -> None:
    """Make a rename inside the folder survive a power cut."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def keep_owner(path: str) -> None:
    """Root working in another user's store leaves files that this user can still read and replace."""
    if os.geteuid() == 0:
        folder = os.stat(os.path.dirname(path) or ".")
        os.chown(path, folder.st_uid, folder.st_gid)


def write_json(path: str, value: Any, mode: int = 0o644) -> None:
    """Write JSON beside its final name, fsync, rename, fsync the folder."""
    temporary = f"{path}.{os.getpid()}.tmp"
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    try:
        with os.fdopen(fd, "w", encoding="utf-8") as file:
            json.dump(value, file, ensure_ascii=False, separators=(",", ":"))
            file.flush()
            os.fsync(file.fileno())
        keep_owner(temporary)
        os.rename(temporary, path)
    except BaseException:
        if os.path.exists(temporary):
            os.unlink(temporary)
        raise
    fsync_folder(os.path.dirname(path) or ".")


def read_json(path: str, limit: int = 64 << 20) -> dict[str, Any] | None:
    """A JSON object from a file; None when there is no such file or it does not hold one (half-written by others)."""
    try:
        with open(path, "rb") as file:
            data = file.read(limit + 1)
    except (FileNotFoundError, NotADirectoryError):
        return None
    if len(data) > limit:
        return None
    try:
        value = json.loads(data)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def inside(store: str, path: str) -> str:
    """A path of a request: absolute as it is, else inside the node's store."""
    return os.path.normpath(os.path.join(store, path))


@contextmanager
def locked(path: str, what: str) -> Iterator[None]:
    """Hold an exclusive flock on `path` (never removed); an AgentError at once when another agent holds it."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise AgentError(
                f"{what} is being worked on by another process on this node",
                where=path,
                next="wait for it, then run again",
            ) from None
        yield
    finally:
        os.close(fd)


def is_in(path: str, folder: str) -> bool:
    """Whether a path is that folder or inside of it, by their texts; nothing is in a folder called ""."""
    one, other = (os.path.normpath(text).rstrip("/") for text in (path, folder))
    return bool(folder) and f"{one}/".startswith(f"{other}/")
