"""Layers of images by content in this node's store: `<store>/blobs/sha256/<hex>`, each an uncompressed tar whose
sha256 (docker's diff id) is its name. Images refer to them by their receipts; what none refers to is removed.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress

from sparkbuild.agent.disk.held import locking, remove
from sparkbuild.agent.disk.lock import take, try_take
from sparkbuild.agent.store import kept

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
        take(fd, shared=True)
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
    kept.keep(path, place, _stamp(store, digest))


def problem(store: str, digest: str, size: int) -> str:
    """Why a layer is not there as it should be, "" when it is. Its content is hashed once; after that a stamp stands
    for it.
    """
    path = path_of(store, digest)
    try:
        stat = os.stat(path, follow_symlinks=False)
    except FileNotFoundError:
        return f"layer {digest[:19]} was removed"
    has_content = kept.is_right(
        path, stat, lambda: stat.st_size == size and PREFIX + kept.sha256_of(path) == digest, _stamp(store, digest)
    )
    return "" if has_content else f"layer {digest[:19]} is not what was written"


def collect(store: str, wanted: Iterable[str]) -> int:
    """Remove all layers but the `wanted` ones, and what interrupted writers left; returns the bytes. Nothing is removed
    while somebody writes.
    """
    folder = folder_of(store)
    if not os.path.isdir(folder):
        return 0
    fd = locking(_lock(store))
    try:
        if not try_take(fd):
            return 0
        wanted_names = {digest.removeprefix(PREFIX) for digest in wanted}
        gone = 0
        for name in sorted(set(os.listdir(folder)) - wanted_names):
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
    return os.path.join(store, "blobs", "stamps", digest.removeprefix(PREFIX))
