"""A checkpoint that is itself a sparse copy: which rows of its tables are there, by its manifest `engram-local.json`.

All other rows read as zeros, without an error, and so may the other tensors of its shards.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

from sparkbuild.agent.disk import nas
from sparkbuild.agent.wire.protocol import config_error

MANIFEST = "engram-local.json"
# The tensors of a lookup table; the group is its layer.
OF_TABLE = re.compile(r"(?:.*\.)?layers\.(\d+)\.engram\.embed\.(?:weight|scale)", re.DOTALL)
_LIMIT = 1 << 20  # bytes; a real one has some hundred
_NEXT = "give the checkpoint itself as `src` of this staging block"


def refuse(path: str, rows: Iterable[tuple[int, int, int]], *, complete: bool) -> None:
    """Raise AgentError, kind config, when these rows, each a layer and its half-open range [lo, hi), or (`complete`)
    the other tensors of their shards, are not all in the sparse copy whose manifest is at `path`.
    """
    there = _ranges(path)
    for layer, lo, hi in rows:
        low, high = there.get(str(layer), (0, 0))
        if lo < hi and not low <= lo < hi <= high:
            raise config_error(
                f"the source is a sparse copy, which has not these rows of layer {layer}: they would be zeros",
                where=path,
                found=f"rows [{low}, {high}) of layer {layer}" if low < high else f"no rows of layer {layer}",
                wanted=f"rows [{lo}, {hi}) of layer {layer}",
                next=f"{_NEXT}, or the split and the rank that this copy was made for",
            )
    if complete:
        raise config_error(
            "the source is a sparse copy, whose shards may lack their other tensors: they would be zeros",
            where=path,
            found="complete_shard = true in the staging block",
            wanted="a checkpoint that is whole",
            next=_NEXT,
        )


def refuse_whole(path: str, names: Iterable[str]) -> None:
    """Raise AgentError, kind config, for shards of a folder with a manifest at `path` that would be read as a whole."""
    shards = [name for name in names if name.endswith(".safetensors")]
    if shards:
        raise config_error(
            "the snapshot is a sparse copy, whose shards would be staged with zeros for what is not in them",
            where=path,
            found=f"{shards[0]} and {len(shards) - 1} more" if shards[1:] else shards[0],
            wanted="a snapshot that is whole, or shards whose hash is known by their names",
            next="give a hub cache with the checkpoint itself as `src` of this staging block, or put them into `skip`",
        )


def _ranges(path: str) -> dict[str, tuple[int, int]]:
    """The rows of each layer, half-open."""
    data = nas.small(path, _LIMIT)
    try:
        value: Any = json.loads(data) if data is not None else None
        return {str(layer): _range(pair) for layer, pair in value["layers"].items()}
    except (ValueError, RecursionError, TypeError, KeyError, AttributeError) as error:
        raise config_error(
            "the source is a sparse copy, and nobody can say of which rows",
            where=path,
            found=f"{type(error).__name__}: {error}" if data is not None else f"more than {_LIMIT} bytes",
            wanted='{"layers": {"<layer>": [first row, end]}}',
            next=_NEXT,
        ) from error


def _range(pair: Any) -> tuple[int, int]:
    low, high = pair
    if type(low) is not int or type(high) is not int:
        raise TypeError(f"{pair!r} are no rows")
    return low, high
