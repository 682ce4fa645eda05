"""Docker images in this node's store, assembled or built here: where they lie, and whether they are what was written.

`<store>/archives/<name>/<12 hex of the key>/` holds receipt.json and config.json; the layers are blobs.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any, cast

from sparkbuild.agent import layerstore
from sparkbuild.agent.artifacts import sha256_of
from sparkbuild.agent.files import fsync_folder, read_json
from sparkbuild.agent.protocol import Reporter

if TYPE_CHECKING:
    from sparkbuild.agent.records import ArchiveReceipt

RECEIPT_FORMAT = "sparkbuild-archive/v2"
KEEP = 2  # of one name: the newest one, and the one before
PART = ".part"
_FORMER = ("image.tar", "image.tar.stamp")  # what earlier versions wrote beside the layers


def folder_of(store: str, name: str, short_key: str) -> str:
    """Where an archive lies, with its receipt."""
    return os.path.join(store, "archives", name, short_key)


def config_of(folder: str) -> str:
    """The image's config in its folder; where it is, the layers are kept."""
    return os.path.join(folder, "config.json")


def observe(query: dict[str, Any]) -> dict[str, Any]:
    """Query {"store", "name", "key"}, and "docker" with "builds": true for an image that this node is to build;
    {"present", "bytes", "layers", "sizes", "gates", "problem", "other", "engine"}.

    The content is hashed once; after that a stamp stands for it, as for artifacts. `other` is the newest archive of the
    name with another key. `engine` is {"architecture"} or {"silent": why, "next"}.
    """
    folder = folder_of(query["store"], query["name"], query["key"][:12])
    receipt = read_receipt(folder)
    if receipt is None or receipt["key"] != query["key"]:
        fact: dict[str, Any] = {"present": False, "other": _other(query["store"], query["name"], query["key"])}
    elif problem := _problem(query["store"], folder, receipt):
        fact = {"present": False, "problem": problem, "bytes": receipt["bytes"]}
    else:
        names = ("bytes", "layers", "sizes", "gates")
        return {"present": True, **{name: receipt[name] for name in names}}  # type: ignore[literal-required]
    return {**fact, "engine": engine_of(query["docker"])} if query.get("builds") else fact


def _problem(store: str, folder: str, receipt: ArchiveReceipt) -> str:
    try:
        config = sha256_of(config_of(folder))
    except FileNotFoundError:
        return "its layers were removed"
    if f"sha256:{config}" != receipt["config"]:
        return "its config is not what was written"
    for digest, size in zip(receipt["layers"], receipt["sizes"], strict=True):
        if problem := layerstore.problem(store, digest, size):
            return f"its {problem}"
    return ""


def engine_of(socket: str) -> dict[str, Any]:
    """What this node's docker builds for: {"architecture"}, or {"silent": why, "next"} when it cannot be asked."""
    from sparkbuild.agent.dockerd import SOCKET, Dockerd, DockerdError  # noqa: PLC0415 - only for what is built

    try:
        found = str(Dockerd(socket or SOCKET).get("/info").get("Architecture", ""))
    except DockerdError as error:
        return {"silent": error.problem, "next": error.fields["next"]}
    return {"architecture": {"x86_64": "amd64", "aarch64": "arm64"}.get(found, found)}


def finish(part: str, folder: str, reporter: Reporter) -> None:
    """Give a folder that is complete its final name, and remove what is too old."""
    shutil.rmtree(folder, ignore_errors=True)  # it was wrong, else nobody would make it
    os.rename(part, folder)
    base = os.path.dirname(folder)
    fsync_folder(base)
    _prune(base, folder, reporter)


def sweep(base: str) -> None:
    """Remove what interrupted makers left; whoever holds the image's lock is the only one at work here."""
    for entry in os.listdir(base):
        if entry.endswith(PART):
            shutil.rmtree(os.path.join(base, entry), ignore_errors=True)


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
            os.unlink(path)
            gone += size
    return gone


def _prune(base: str, current: str, reporter: Reporter) -> None:
    """Old images go, their receipts stay: they say which layers an image has that is still on a node."""
    found = {}
    for entry in os.listdir(base):
        folder = os.path.join(base, entry)
        receipt = read_receipt(folder)
        if folder != current and receipt is not None and os.path.exists(config_of(folder)):
            found[folder] = receipt["at"]
    for folder in sorted(found, key=lambda entry: found[entry], reverse=True)[KEEP - 1 :]:
        reporter.log(f"removing the old image {os.path.basename(folder)}")
        with suppress(FileNotFoundError):
            os.unlink(config_of(folder))


def read_receipt(folder: str) -> ArchiveReceipt | None:
    """An archive's receipt; None when the folder holds no finished one."""
    receipt = read_json(os.path.join(folder, "receipt.json"))
    return None if receipt is None or receipt.get("format") != RECEIPT_FORMAT else cast("ArchiveReceipt", receipt)


def _other(store: str, name: str, key: str) -> dict[str, Any] | None:
    base = os.path.dirname(folder_of(store, name, "x"))
    folders = [os.path.join(base, entry) for entry in os.listdir(base)] if os.path.isdir(base) else []
    receipts = [receipt for folder in folders if (receipt := read_receipt(folder)) and receipt["key"] != key]
    return {"parts": max(receipts, key=lambda receipt: receipt["at"])["parts"]} if receipts else None
