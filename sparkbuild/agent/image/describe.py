"""What an image of this node's store is made of: its receipt and its config, for who brings it to other nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparkbuild.agent.image.archives import config_of, folder_of, read_receipt
from sparkbuild.agent.wire.protocol import Reporter, integrity_error

if TYPE_CHECKING:
    from sparkbuild.agent.wire.images import DescribeRequest, DescribeResult


def run(request: DescribeRequest, reporter: Reporter) -> DescribeResult:
    """Error kind "integrity" when the image is gone."""
    del reporter
    folder = folder_of(request["store"], request["name"], request["key"][:12])
    receipt = read_receipt(folder)
    try:
        with open(config_of(folder), encoding="utf-8") as file:
            config = file.read()
    except FileNotFoundError:
        config = ""
    if receipt is None or receipt["key"] != request["key"] or not config:
        raise integrity_error(
            f"image {request['name']} is not in the store any more",
            where=folder,
            next="run again: it is made anew",
        )
    return {"receipt": receipt, "config": config}
