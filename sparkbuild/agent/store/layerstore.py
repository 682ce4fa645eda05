"""Layers of images by content in this node's store: `<store>/blobs/sha256/<hex>`, each an uncompressed tar whose
sha256 (docker's diff id) is its name. Images refer to them by their receipts; what none refers to is removed.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress

from sparkbuild.agent.disk.files import fsync_folder, keep_owner, read_json, write_json
from sparkbuild.agent.disk.held import locking, remove, rename
from sparkbuild.agent.store.artifacts import sha256_of, stamp_of

PREFIX = "sha256:"


def folder_of(store: str) -> str:
    """Where they lie."""
    return os.path.join(store, "blobs", "sha256")


def path_of(store: str, digest: str) -> str:
    """Where one lies; `digest` is `sha256:<hex>`."""
    return os.path.join(folder_of(store), digest.removeprefix(PREFIX))


@contextmanager
def writing(store: str) -> Iterator[str]:
    """While new layers have no receipt yet: nothing is collected meanwhile. Gives their folder, which is there."""
    folder = folder_of(store)
    os.makedirs(folder, exist_ok=True)
    fd = locking(_lock(store))
    try:
        fcntl.flock(fd, fcntl.LOCK_SH)
        yield folder
    finally:
        os.close(fd)


def keep(store: str, path: str, digest: str) -> None:
    """Give the file `path`, which is on the same disk and has this content, its name among the layers. One that is
    there already and right stays, and `path` is removed.
    """
    place = path_of(store, digest)
    if not problem(store, digest, os.path.getsize(path)):
        remove(path)
        return
    with open(path, "rb") as file:
        os.fdatasync(file.fileno())
    os.chmod(path, 0o444)
    keep_owner(path)
    rename(path, place)
    fsync_folder(os.path.dirname(place))
    with suppress(OSError):  # only a cache: the next look writes it
        write_json(_stamp(store, digest), {"stamp": stamp_of(os.stat(place))})


def problem(store: str, digest: str, size: int) -> str:
    """Why a layer is not there as it should be, "" when it is. Its content is hashed once; after that a stamp stands
    for it.
    """
    path = path_of(store, digest)
    try:
        stat = os.stat(path, follow_symlinks=False)
    except FileNotFoundError:
        return f"layer {digest[:19]} was removed"
    stamp = stamp_of(stat)
    seen = read_json(_stamp(store, digest))
    if seen is None or seen.get("stamp") != stamp:
        if stat.st_size != size or PREFIX + sha256_of(path) != digest:
            return f"layer {digest[:19]} is not what was written"
        with suppress(OSError):
            write_json(_stamp(store, digest), {"stamp": stamp})
    return ""


def collect(store: str, wanted: Iterable[str]) -> int:
    """Remove all layers but the `wanted` ones, and what interrupted writers left; returns the bytes. Nothing is removed
    while somebody writes.
    """
    folder = folder_of(store)
    if not os.path.isdir(folder):
        return 0
    fd = locking(_lock(store))
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return 0
        kept = {digest.removeprefix(PREFIX) for digest in wanted}
        gone = 0
        for name in sorted(set(os.listdir(folder)) - kept):
            path = os.path.join(folder, name)
            gone += os.path.getsize(path)
            remove(path)
            with suppress(FileNotFoundError):
                remove(_stamp(store, name))
        return gone
    finally:
        os.close(fd)


def _lock(store: str) -> str:
    return os.path.join(store, "blobs", ".lock")


def _stamp(store: str, digest: str) -> str:
    folder = os.path.join(store, "blobs", "stamps")
    os.makedirs(folder, exist_ok=True)
    return os.path.join(folder, digest.removeprefix(PREFIX))
