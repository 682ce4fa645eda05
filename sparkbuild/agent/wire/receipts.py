"""Receipts of images on a node: JSON objects, written last, so that what has none is not whole."""

from collections.abc import Mapping
from typing import TypedDict

Parts = Mapping[str, object]  # the named parts of a key: any JSON, which is compared and shown and nothing else


class ImageReceipt(TypedDict):
    """`receipt.json` in an image folder, written last: what the image was made from and how it turned out."""

    format: str
    key: str
    parts: Parts
    python: str
    imports: list[str]
    bytes: int
    at: float


class GateResult(TypedDict):
    """One gate of an image: `text` are the last lines it printed."""

    id: str
    ok: bool
    seconds: float
    text: str


class ArchiveReceipt(TypedDict):
    """`receipt.json` of a docker image in a store, written last: what it was made from, and its content. `layers` are
    docker's diff ids in order, each the name of a blob of so many bytes (`sizes`, `bytes` in all); `config` is the
    sha256 of config.json beside it. `gates` are those that it passed.
    """

    format: str
    name: str
    reference: str
    key: str
    parts: Parts
    lock: str
    layers: list[str]
    sizes: list[int]
    config: str
    architecture: str
    gates: list[GateResult]
    bytes: int
    at: float


class _SourceReceipt(TypedDict):
    format: str
    key: str
    commit: str
    content: str
    sha256: str
    bytes: int
    files: int
    time: int


class SourceReceipt(_SourceReceipt, total=False):
    """`receipt.json` of a git source in a store, written last: its archive, and the commits that were seen to be as
    locked ([commit, unix seconds or 0]); who wrote none of these looked at none.
    """

    pins: list[tuple[str, int]]
