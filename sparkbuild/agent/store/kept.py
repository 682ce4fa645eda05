"""A file that is kept by its sha256: how it gets its name, and the stamp that stands for its content afterwards."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from contextlib import suppress
from typing import IO, Any

from sparkbuild.agent.disk.files import fsync_folder, keep_owner, read_json, write_json
from sparkbuild.agent.disk.held import rename

_BLOCK = 4 << 20


def stamp_of(stat: os.stat_result) -> list[int]:
    """What tells two states of a file apart without reading it; the ctime cannot be set by hand."""
    return [stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns]


def is_right(path: str, stat: os.stat_result, has_content: Callable[[], bool], stamp_file: str = "") -> bool:
    """Whether a file, of which `stat` is a look, holds what it should. `has_content`, which reads it, is asked once;
    after that the stamp in `stamp_file` (`<path>.stamp`) stands for it until inode, size, mtime or ctime move.
    """
    stamp = stamp_of(stat)
    if (read_json(stamp_file or f"{path}.stamp") or {}).get("stamp") == stamp:
        return True
    if not has_content():
        return False
    _write_stamp(stamp_file or f"{path}.stamp", stamp)
    return True


def keep(part: str, path: str, stamp_file: str = "") -> None:
    """Give a file, whose content was checked and which is on the same disk, its name: nobody writes to it any more."""
    with open(part, "rb") as file:
        os.fdatasync(file.fileno())
    os.chmod(part, 0o444)
    keep_owner(part)
    rename(part, path)
    fsync_folder(os.path.dirname(path))
    set_stamp(path, stamp_file)


def set_stamp(path: str, stamp_file: str = "") -> None:
    """Have the stamp say that the content of the file, as it is now, was checked."""
    _write_stamp(stamp_file or f"{path}.stamp", stamp_of(os.stat(path)))


def _write_stamp(stamp_file: str, stamp: list[int]) -> None:
    with suppress(OSError):  # only a cache: a full or read-only disk costs time, not the verdict
        os.makedirs(os.path.dirname(stamp_file), exist_ok=True)
        write_json(stamp_file, {"stamp": stamp})


def sha256_of(path: str) -> str:
    """The sha256 of a file, in hex."""
    with open(path, "rb") as file:
        digest: str = digest_of(file).hexdigest()
    return digest


def digest_of(file: IO[bytes]) -> Any:
    """The sha256, as hashlib has it, of the rest of an open file."""
    digest = hashlib.sha256()
    while block := file.read(_BLOCK):
        digest.update(block)
    return digest


def resumed(file: Any, size: int) -> tuple[Any, int]:
    """The digest of what an earlier try left of a file of `size` bytes, and its length; a part that is longer than the
    file was begun for another, and is emptied.
    """
    if os.fstat(file.fileno()).st_size > size:
        file.truncate(0)
    file.seek(0)
    return digest_of(file), file.tell()
