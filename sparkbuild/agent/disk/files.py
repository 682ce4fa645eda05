"""Writing small files so that they are whole or absent, whatever happens."""

from __future__ import annotations

import io
import json
import os
from typing import IO, Any

from sparkbuild.agent.disk.held import Held


def fsync_folder(path: str) -> None:
    """Make a rename inside the folder survive a power cut."""
    with Held(path) as held:
        held.flush()


def keep_owner(path: str) -> None:
    """Root working in another user's store leaves files that this user can still read and replace."""
    if os.geteuid() == 0:
        folder = os.stat(os.path.dirname(path) or ".")
        os.chown(path, folder.st_uid, folder.st_gid, follow_symlinks=False)


def write_json(path: str, value: Any, mode: int = 0o644) -> None:
    """Have a file hold JSON: all of it or what it held before; on the disk when this returns."""
    folder, name = os.path.split(path)
    with Held(folder or ".") as held:
        held.replace(name, lambda file: dump(value, file), mode)


def dump(value: Any, file: IO[bytes]) -> None:
    """Write JSON as it is kept beside data, piece by piece: a ledger of 100,000 files is never in memory as a text."""
    text = io.TextIOWrapper(file, encoding="utf-8")
    json.dump(value, text, ensure_ascii=False, separators=(",", ":"))
    text.detach()


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
    except (ValueError, RecursionError):  # the second: tables within tables without end
        return None
    return value if isinstance(value, dict) else None


def inside(store: str, path: str) -> str:
    """A path of a request: absolute as it is, else inside the node's store."""
    return os.path.normpath(os.path.join(store, path))


def is_in(path: str, folder: str) -> bool:
    """Whether a path is that folder or inside of it, by their texts; nothing is in a folder called ""."""
    one, other = (os.path.normpath(text).rstrip("/") for text in (path, folder))
    return bool(folder) and f"{one}/".startswith(f"{other}/")
