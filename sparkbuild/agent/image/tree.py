"""The files of a finished folder, so that a later look can tell whether it is still the folder that was built."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from contextlib import suppress
from stat import S_IFLNK, S_IFMT, S_IFREG

from sparkbuild.agent.disk.files import read_json, write_json
from sparkbuild.agent.store.kept import digest_of, sha256_of

_RECORDS = ("tree.json", "stamps.json", "receipt.json")
_UNREADABLE = "the record of its files is gone or unreadable"


def write(folder: str) -> int:
    """Record every file of a folder (sha256 and size) in `tree.json`; returns the bytes in all."""
    paths = sorted(_files(folder))
    from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415 - only when a tree is recorded, not when looked at

    with ThreadPoolExecutor(2) as pool:  # hashlib lets go of the GIL
        digests = list(pool.map(lambda path: _digest(os.path.join(folder, path)), paths))
    write_json(os.path.join(folder, "tree.json"), {"files": dict(zip(paths, digests, strict=True))})
    return sum(_lstat_size(os.path.join(folder, path)) for path in paths)


def problem(folder: str) -> str:
    """Why the folder is not what was recorded, "" when it is.

    A file whose stamp (device, inode, size, mtime, ctime) is the one its content was last proven at is taken as
    unchanged: the ctime cannot be set by hand. Any other is hashed. `stamps.json` is only a cache; without it, as
    after a copy of the folder to another place, everything is hashed once and the cache written anew.
    """
    recorded = (read_json(os.path.join(folder, "tree.json")) or {}).get("files")
    if not isinstance(recorded, dict):
        return _UNREADABLE
    cache = os.path.join(folder, "stamps.json")
    known = (read_json(cache) or {}).get("stamps")
    stamps: dict[str, list[int]] = known if isinstance(known, dict) else {}
    fresh: dict[str, list[int]] = {}
    missing: list[str] = []
    for path, digest in recorded.items():
        full = f"{folder}/{path}"
        try:
            stat = os.lstat(full)
        except OSError:
            missing.append(path)
            continue
        except ValueError:  # it has a NUL or a lone surrogate, as no path has
            return _UNREADABLE
        stamp = [stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns]
        if stamps.get(path) != stamp:
            if S_IFMT(stat.st_mode) not in (S_IFREG, S_IFLNK) or _digest(full) != digest:
                return f"{path} is not as it was built"
            fresh[path] = stamp
    if missing:
        return f"{missing[0]} is missing" + (f", and {len(missing) - 1} more" if len(missing) > 1 else "")
    if fresh:
        with suppress(OSError):  # a full or read-only disk costs time, not the verdict
            write_json(cache, {"stamps": {**stamps, **fresh}})
    return ""


def _files(folder: str) -> Iterator[str]:
    for base, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if name != "__pycache__")  # written by whoever imports
        links = [name for name in folders if os.path.islink(os.path.join(base, name))]  # walked as folders, not entered
        for name in names + links:
            path = os.path.relpath(os.path.join(base, name), folder)
            if path not in _RECORDS:
                yield path


def _digest(path: str) -> str:
    """sha256 of a file; of the text of a link, which is what decides where it leads."""
    if os.path.islink(path):
        return f"link:{digest_of(io.BytesIO(os.readlink(path).encode())).hexdigest()}"
    return sha256_of(path)


def _lstat_size(path: str) -> int:
    return os.lstat(path).st_size
