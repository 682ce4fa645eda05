"""Images in this node's store: where they lie, and whether they are still what was built."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, cast

from sparkbuild.agent.disk.files import read_json
from sparkbuild.agent.image import tree

if TYPE_CHECKING:
    from sparkbuild.agent.wire.dockerimages import ImageAbsent, ImageFact, OwnImageQuery, PrebuiltQuery
    from sparkbuild.agent.wire.images import OtherKey, VenvAbsent, VenvFact, VenvQuery
    from sparkbuild.agent.wire.receipts import ImageReceipt

RECEIPT_FORMAT = "sparkbuild-image/v1"


def folder_of(store: str, name: str, short_key: str) -> str:
    """Where an image lies. The key is in the path: a running lane keeps the image it was started from."""
    return os.path.join(store, "images", name, short_key)


def observe(query: VenvQuery | OwnImageQuery | PrebuiltQuery) -> VenvFact | VenvAbsent | ImageFact | ImageAbsent:
    """Whether an image is there: a venv in the store, or, with a `kind`, an image in docker."""
    if "kind" in query:
        from sparkbuild.agent.docker import images  # noqa: PLC0415 - a node without docker images need not load it

        return images.observe(query)
    folder = folder_of(query["store"], query["name"], query["key"][:12])
    receipt = read_receipt(folder)
    if receipt is None or receipt.get("key") != query["key"]:
        return {"present": False, "other": _other(query["store"], query["name"], query["key"])}
    python, problem = receipt["python"], f"its interpreter (Python {receipt['python']}) is gone from this node"
    if _interpreter_is_there(folder, python):
        problem = tree.problem(folder)
    if problem:
        return {"present": False, "problem": problem}
    return {"present": True, "python": python, "bytes": receipt["bytes"]}


def _interpreter_is_there(folder: str, version: str) -> bool:
    """The environment links to this node's own Python: a distribution upgrade takes that away, or puts another minor
    version under the same link, which would find none of the installed modules.
    """
    path = os.path.realpath(os.path.join(folder, "bin", "python"))
    name = os.path.basename(path)
    minor = "python" + ".".join(version.split(".")[:2])
    return os.path.exists(path) and (name == minor or not name.startswith("python3."))


def read_receipt(folder: str) -> ImageReceipt | None:
    """An image folder's receipt; None when the folder holds no finished image."""
    receipt = read_json(os.path.join(folder, "receipt.json"))
    return None if receipt is None or receipt.get("format") != RECEIPT_FORMAT else cast("ImageReceipt", receipt)


def _other(store: str, name: str, key: str) -> OtherKey | None:
    """The newest image of this name with another key: what the new one differs from."""
    base = os.path.join(store, "images", name)
    try:
        folders = [os.path.join(base, entry) for entry in os.listdir(base)]
    except FileNotFoundError:
        return None
    receipts = [receipt for folder in folders if (receipt := read_receipt(folder)) and receipt["key"] != key]
    return {"parts": max(receipts, key=lambda receipt: receipt["at"])["parts"]} if receipts else None
