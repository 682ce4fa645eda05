"""What an image is made of, as its holder's store tells it, and what a node lacks of it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from sparkbuild.core import wholefile
from sparkbuild.core.key import Key
from sparkbuild.core.run import Agent
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


def blobs_of(receipt: Mapping[str, Any]) -> tuple[Blob, ...]:
    """The layers that a receipt lists."""
    pairs = zip(receipt.get("layers") or (), receipt.get("sizes") or (), strict=False)
    return tuple(Blob(str(layer).removeprefix(_PREFIX), int(size)) for layer, size in pairs)


def describe(agent: Agent, name: str, key: Key) -> tuple[Content, dict[str, Any]]:
    """An image's content and receipt, by the store of its holder. IntegrityError when it is gone."""
    found = agent.call("describe", {"name": name, "key": key.digest})
    receipt = found["receipt"]
    return Content(found["config"], blobs_of(receipt), receipt["architecture"]), receipt


def receipt_here(store: str, name: str, key: Key) -> dict[str, Any]:
    """The receipt of an image in a store of this machine; {} when there is none."""
    try:
        with open(os.path.join(store, archive_in_store(name, key), "receipt.json"), "rb") as file:
            found = msgspec.json.decode(file.read(), type=dict[str, Any])
    except (OSError, msgspec.MsgspecError, RecursionError):
        return {}
    return found if found.get("key") == key.digest else {}


def remember(store: str, name: str, key: Key, receipt: Mapping[str, Any]) -> None:
    """Keep the receipt of an image that was made on another node: which layers it has is known here from then on."""
    folder = os.path.join(store, archive_in_store(name, key))
    if receipt_here(store, name, key):
        return
    os.makedirs(folder, exist_ok=True)
    wholefile.replace(os.path.join(folder, "receipt.json"), msgspec.json.encode(receipt), ours=True)


def lacking(fact: Mapping[str, Any], receipt: Mapping[str, Any]) -> tuple[tuple[Blob, ...], int] | None:
    """The layers that a node lacks, and the bytes of them that have to move; None while that cannot be known."""
    layers = blobs_of(receipt)
    missing = fact.get("missing")
    if not layers or missing is None:
        return None
    wanted = set(missing)
    chosen = tuple(blob for blob in layers if f"{_PREFIX}{blob.sha256}" in wanted)
    return chosen, max(0, sum(blob.size for blob in chosen) - int(fact.get("arrived") or 0))
