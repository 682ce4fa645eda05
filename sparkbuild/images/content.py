"""What an image is made of, as its holder's store tells it, and what a node lacks of it."""

from __future__ import annotations

import os
from collections.abc import Sequence

import msgspec

from sparkbuild.agent.wire.dockerimages import ImageAbsent, ImageFact
from sparkbuild.agent.wire.images import DESCRIBE, DescribeAsk
from sparkbuild.agent.wire.receipts import ArchiveReceipt
from sparkbuild.core import wholefile
from sparkbuild.core.key import Key
from sparkbuild.core.run import Agent, call
from sparkbuild.images.docker import archive_in_store
from sparkbuild.nodes.relay.relay import Blob

BLOBS = "blobs/sha256"  # where an image's layers lie in its holder's store
_PREFIX = "sha256:"


class Content(msgspec.Struct, frozen=True):
    """An image: its config, and its layers from the bottom, whose sha256 are docker's diff ids."""

    config: str
    layers: tuple[Blob, ...]
    architecture: str

    @property
    def diff_ids(self) -> list[str]:
        """The layers as docker names them."""
        return [f"{_PREFIX}{blob.sha256}" for blob in self.layers]

    def chosen(self, diff_ids: Sequence[str]) -> tuple[Blob, ...]:
        """Some of the layers, in their order."""
        wanted = set(diff_ids)
        return tuple(blob for blob in self.layers if f"{_PREFIX}{blob.sha256}" in wanted)


def blobs_of(receipt: ArchiveReceipt) -> tuple[Blob, ...]:
    """The layers that a receipt lists."""
    pairs = zip(receipt["layers"], receipt["sizes"], strict=False)
    return tuple(Blob(layer.removeprefix(_PREFIX), size) for layer, size in pairs)


def describe(agent: Agent, name: str, key: Key) -> tuple[Content, ArchiveReceipt]:
    """An image's content and receipt, by the store of its holder. IntegrityError when it is gone."""
    told = call(agent, DESCRIBE, DescribeAsk(name=name, key=key.digest))
    receipt = told["receipt"]
    return Content(told["config"], blobs_of(receipt), receipt["architecture"]), receipt


def receipt_here(store: str, name: str, key: Key) -> ArchiveReceipt | None:
    """The receipt of an image in a store of this machine; None when there is none, or none that can be read."""
    try:
        with open(os.path.join(store, archive_in_store(name, key), "receipt.json"), "rb") as file:
            receipt = msgspec.json.decode(file.read(), type=ArchiveReceipt)
    except (OSError, msgspec.MsgspecError, RecursionError):
        return None
    return receipt if receipt["key"] == key.digest else None


def remember(store: str, name: str, key: Key, receipt: ArchiveReceipt) -> None:
    """Keep the receipt of an image that was made on another node: which layers it has is known here from then on."""
    folder = os.path.join(store, archive_in_store(name, key))
    if receipt_here(store, name, key):
        return
    os.makedirs(folder, exist_ok=True)
    wholefile.replace(os.path.join(folder, "receipt.json"), msgspec.json.encode(receipt), ours=True)


def lacking(fact: ImageFact | ImageAbsent, receipt: ArchiveReceipt | None) -> tuple[tuple[Blob, ...], int] | None:
    """The layers that a node lacks, and the bytes of them that have to move; None while that cannot be known."""
    missing = None if fact["present"] else fact.get("missing")
    layers = blobs_of(receipt) if receipt else ()
    if not layers or missing is None:
        return None
    wanted = set(missing)
    chosen = tuple(blob for blob in layers if f"{_PREFIX}{blob.sha256}" in wanted)
    return chosen, max(0, sum(blob.size for blob in chosen) - arrived(fact))


def arrived(fact: ImageFact | ImageAbsent) -> int:
    """Bytes of layers that are in the node's store from an earlier try."""
    return 0 if fact["present"] else fact.get("arrived", 0)
