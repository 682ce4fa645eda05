"""Record types the agent writes on a node and the rest of sparkbuild reads. All are JSON objects."""

from __future__ import annotations

from typing import Any, TypedDict


class LaneRecord(TypedDict, total=False):
    """`<store>/lanes/<recipe>/lane.json`: the last launch of a lane on this node.

    `pid` with `start_ticks` (field 22 of /proc/<pid>/stat) and `boot_id` name one process for ever; a pid alone does
    not. Times are unix seconds. `log` is relative to the store. `ready` and `gates` stay None until each was passed.
    """

    format: str
    recipe: str
    key: str
    parts: dict[str, Any]
    pid: int
    start_ticks: int
    boot_id: str
    argv: list[str]
    host: str
    port: int
    model_id: str
    protect: bool
    lock: str
    log: str
    launched_at: float
    ready: dict[str, Any] | None
    gates: list[dict[str, Any]] | None
    served_at: float | None
    stopped_at: float | None


class LaneFact(TypedDict, total=False):
    """What is seen of a lane: its record, whether that very process lives, listens and answers, and who else holds
    the port ({"pid", "command", "user", "lane"}; pid 0: hidden from us; lane "": none of this node's store).
    """

    record: LaneRecord | None
    alive: bool
    listening: bool
    answers: bool
    served_ids: list[str]
    problem: str
    port_holder: dict[str, Any] | None
    last_lines: list[str]


class ImageReceipt(TypedDict, total=False):
    """`receipt.json` in an image folder, written last: what the image was made from and how it turned out."""

    format: str
    key: str
    parts: dict[str, Any]
    python: str
    imports: list[str]
    bytes: int
    at: float


class ArchiveReceipt(TypedDict):
    """`receipt.json` beside an assembled docker image, written last: what it was made from, its layers' diff ids, and
    the sha256 and size of `image.tar`.
    """

    format: str
    key: str
    parts: dict[str, Any]
    lock: str
    layers: list[str]
    sha256: str
    bytes: int
    at: float
