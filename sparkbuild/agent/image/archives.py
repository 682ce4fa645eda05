"""Docker images in this node's store, assembled or built here: where they lie, and whether they are what was written.

`<store>/archives/<name>/<12 hex of the key>/` holds receipt.json and config.json; the layers are blobs.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, cast

from sparkbuild.agent.disk.files import fsync_folder, read_json
from sparkbuild.agent.disk.held import remove, remove_tree, rename
from sparkbuild.agent.store import layerstore
from sparkbuild.agent.store.kept import sha256_of
from sparkbuild.agent.wire.protocol import Reporter

if TYPE_CHECKING:
    from sparkbuild.agent.wire.images import ArchiveAbsent, ArchiveFact, ArchiveQuery, OtherKey
    from sparkbuild.agent.wire.receipts import ArchiveReceipt

RECEIPT_FORMAT = "sparkbuild-archive/v2"
KEEP = 2  # of one name: the newest one, and the one before
PART = ".part"
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_FORMER = ("image.tar", "image.tar.stamp")  # what earlier versions wrote beside the layers


def folder_of(store: str, name: str, short_key: str) -> str:
    """Where an archive lies, with its receipt."""
    return os.path.join(store, "archives", name, short_key)


def config_of(folder: str) -> str:
    """The image's config in its folder; where it is, the layers are kept."""
    return os.path.join(folder, "config.json")


def observe(query: ArchiveQuery) -> ArchiveFact | ArchiveAbsent:
    """Whether an image is there. Its content is hashed once; after that a stamp stands for it, as for artifacts."""
    folder = folder_of(query["store"], query["name"], query["key"][:12])
    receipt = read_receipt(folder)
    if receipt is None or receipt["key"] != query["key"]:
        fact: ArchiveAbsent = {"present": False, "other": _other(query["store"], query["name"], query["key"])}
    else:
        problem, lacking = _problem(query["store"], folder, receipt)
        if not problem:
            return {
                "present": True,
                "bytes": receipt["bytes"],
                "layers": receipt["layers"],
                "gates": receipt["gates"],
            }
        fact = {"present": False, "problem": problem, "bytes": lacking}
    if query.get("builds"):
        _add_built(query, fact)
    return fact


def _problem(store: str, folder: str, receipt: ArchiveReceipt) -> tuple[str, int]:
    """What is wrong first, "" when nothing is; and the bytes of all layers that are lacking."""
    try:
        config = f"sha256:{sha256_of(config_of(folder))}"
    except FileNotFoundError:
        config = ""
    first = "" if config == receipt["config"] else "its config is not what was written"
    lacking = {}
    for digest, size in zip(receipt["layers"], receipt["sizes"], strict=True):
        if problem := layerstore.problem(store, digest, size):
            first, lacking[digest] = first or f"its {problem}", size
    return first if config else "its layers were removed", sum(lacking.values())


def _add_built(query: ArchiveQuery, fact: ArchiveAbsent) -> None:
    """Add what is seen of docker where an image is to be built."""
    from sparkbuild.agent.docker.built import built_here, engine_of  # noqa: PLC0415 - only a build node asks docker

    fact["engine"] = engine_of(query["docker"])
    image = None if "silent" in fact["engine"] else built_here(query["docker"], query["reference"], query["key"])
    if image is None:
        return
    fact["built"] = True
    stored = all(os.path.exists(layerstore.path_of(query["store"], digest)) for digest in image["layers"])
    if stored and "bytes" not in fact:  # how big a layer is, docker does not say
        fact["bytes"] = 0


def finish(part: str, folder: str, reporter: Reporter) -> None:
    """Give a folder that is complete its final name, and remove what is too old."""
    remove_tree(folder)  # it was wrong, else nobody would make it
    rename(part, folder)
    base = os.path.dirname(folder)
    fsync_folder(base)
    _prune(base, folder, reporter)


def sweep(base: str) -> None:
    """Remove what interrupted makers left; whoever holds the image's lock is the only one at work here."""
    for entry in os.listdir(base):
        if entry.endswith(PART):
            remove_tree(os.path.join(base, entry))


def collect(store: str, reporter: Reporter) -> None:
    """Remove layers that no image here has any more, and the archives that were kept beside them once."""
    wanted: set[str] = set()
    former = 0
    for folder in _folders(store):
        former += _remove_former(folder)
        receipt = read_receipt(folder)
        if receipt is not None and os.path.exists(config_of(folder)):
            wanted.update(receipt["layers"])
    if former:
        reporter.log(f"removed archives that nothing loads any more: {former} bytes")
    gone = layerstore.collect(store, wanted)
    if gone:
        reporter.log(f"removed layers of older images: {gone} bytes")


def _folders(store: str) -> Iterator[str]:
    base = os.path.join(store, "archives")
    for name in os.listdir(base):
        for entry in os.listdir(os.path.join(base, name)) if os.path.isdir(os.path.join(base, name)) else ():
            yield os.path.join(base, name, entry)


def _remove_former(folder: str) -> int:
    """Remove what an earlier version kept in a folder; returns the bytes."""
    gone = 0
    for path in (os.path.join(folder, name) for name in _FORMER):
        with suppress(OSError):  # most have none; one that stays does no harm
            size = os.path.getsize(path)
            remove(path)
            gone += size
    return gone


def _prune(base: str, current: str, reporter: Reporter) -> None:
    """Old images go, their receipts stay: they say which layers an image has that is still on a node."""
    times = {}
    for entry in os.listdir(base):
        folder = os.path.join(base, entry)
        receipt = read_receipt(folder)
        if folder != current and receipt is not None and os.path.exists(config_of(folder)):
            times[folder] = receipt["at"]
    for folder in sorted(times, key=lambda entry: times[entry], reverse=True)[KEEP - 1 :]:
        reporter.log(f"removing the old image {os.path.basename(folder)}")
        with suppress(FileNotFoundError):
            remove(config_of(folder))


def read_receipt(folder: str) -> ArchiveReceipt | None:
    """An archive's receipt; None when the folder holds no finished one."""
    receipt = read_json(os.path.join(folder, "receipt.json"))
    return cast("ArchiveReceipt", receipt) if receipt is not None and _is_receipt(receipt) else None


def _is_receipt(receipt: Mapping[str, object]) -> bool:
    """Whether a receipt has what is read of it, each of its kind."""
    layers, sizes, at = receipt.get("layers"), receipt.get("sizes"), receipt.get("at")
    if receipt.get("format") != RECEIPT_FORMAT or not isinstance(layers, list) or not isinstance(sizes, list):
        return False
    if not all(isinstance(value, str) and _DIGEST.fullmatch(value) for value in layers) or len(layers) != len(sizes):
        return False
    numbers = [*sizes, receipt.get("bytes")]
    return (
        all(type(value) is int and value >= 0 for value in numbers)
        and type(at) in (int, float)
        and isinstance(receipt.get("gates"), list)
        and isinstance(receipt.get("parts"), dict)
        and all(isinstance(receipt.get(name), str) for name in ("key", "config"))
    )


def _other(store: str, name: str, key: str) -> OtherKey | None:
    base = os.path.dirname(folder_of(store, name, "x"))
    folders = [os.path.join(base, entry) for entry in os.listdir(base)] if os.path.isdir(base) else []
    receipts = [receipt for folder in folders if (receipt := read_receipt(folder)) and receipt["key"] != key]
    return {"parts": max(receipts, key=lambda receipt: receipt["at"])["parts"]} if receipts else None
