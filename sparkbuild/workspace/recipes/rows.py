"""A [[staging]] block of kind sparse-rows: its layers, and a split that was written out, held against the cluster."""

from __future__ import annotations

import re
from collections.abc import Mapping

from sparkbuild.workspace.shapes.stagingschema import Ranges, RowsStaging
from sparkbuild.workspace.toml.findings import Findings, Path

EXAMPLE = "split = { 1 = [[0, 100], [100, 250]] }"  # of two ranks, a table of 250 rows; messages show it
_LAYER = re.compile(r"0|[1-9][0-9]*")


def check_rows(block: RowsStaging, here: Path, ranks: int | None, findings: Findings) -> None:
    """Note what is wrong with a block of kind sparse-rows and a cluster of `ranks`, None when nobody knows."""
    if block.complete_shard and block.layout != "sparse-copy":
        findings.add(
            (*here, "complete_shard"),
            "`complete_shard` is for the layout sparse-copy",
            found=f'layout = "{block.layout}"',
            wanted='layout = "sparse-copy"',
            next_="take `complete_shard` out, or correct `layout`",
        )
    if block.revision and not block.repos:
        findings.add(
            (*here, "revision"),
            "`revision` is of a repository in a hub cache, and the block names none",
            found=f"no `repos`; src = {block.src!r}, a model folder as it is",
            wanted='repos = ["org/name"] beside it, and the hub cache as `src`',
            next_="take `revision` out, or give `repos`",
        )
    twice = sorted({layer for layer in block.layers if block.layers.count(layer) > 1})
    if twice:
        found = ", ".join(map(str, twice))
        findings.add((*here, "layers"), "a layer stands there twice", found=found, wanted="each layer once")
    if isinstance(block.split, dict):
        _check_layers(block.split, block.layers, (*here, "split"), findings)
        for layer, ranges in block.split.items():
            _check_ranges(ranges, (*here, "split", layer), ranks, findings)
    elif not isinstance(block.split, str):
        _check_ranges(block.split, (*here, "split"), ranks, findings)


def _check_layers(split: Mapping[str, Ranges], layers: tuple[int, ...], keys: Path, findings: Findings) -> None:
    for name in split:
        if not _LAYER.fullmatch(name):
            wanted = f"the number of a layer, as in {EXAMPLE}"
            findings.add((*keys, name), f"`{name}` is no layer", found=f"{{ {name} = ... }}", wanted=wanted)
    missing = [str(layer) for layer in layers if str(layer) not in split]
    if missing:
        findings.add(
            keys,
            f"split has no ranges for layer {', '.join(missing)}",
            found=f"ranges for layer {', '.join(split) or 'none'}; layers = {list(layers)}",
            wanted=f"ranges for each of `layers`, as in {EXAMPLE}",
            next_=f"add them, or take {', '.join(missing)} out of `layers`",
        )


def _check_ranges(ranges: Ranges, keys: Path, ranks: int | None, findings: Findings) -> None:
    """All of what can be told without the table: its rows are in one range each, from 0 on. Ranks may be in any order,
    and have none. How long the table is, the node sees (agent.rowsplit).
    """
    if ranks is not None and len(ranges) != ranks:
        findings.add(
            keys,
            "the split does not fit the cluster",
            found=f"{len(ranges)} range" + ("" if len(ranges) == 1 else "s"),
            wanted=f"{ranks}, one for each rank of the cluster",
            next_='write a range for each rank, or split = "even"',
        )
        return  # whether they fit each other is asked of as many as there are to be
    owners = []
    for rank, (low, high) in enumerate(ranges):
        if low < 0 or high < low:
            what, found = "a range of split that is none", f"[{low}, {high}] of rank {rank}"
            findings.add(keys, what, found=found, wanted="[first row, end], as in [0, 100]: rows 0 to 99")
        elif low < high:
            owners.append((low, high, rank))
    if any(low < 0 or high < low for low, high in ranges):
        return  # what the others should be depends on what these are meant to be
    end, last = 0, None
    for low, high, rank in sorted(owners):
        mend = f"have the range of rank {rank} begin at {end}: [{end}, {high}]" if end < high else ""
        if low < end and last is not None:
            what = f"ranks {min(rank, last)} and {max(rank, last)} overlap in split"
            found = f"rows {low} to {min(end, high) - 1} are in the ranges of both"
            findings.add(keys, what, found=found, wanted="every row in one range", next_=mend)
        elif low > end:
            found = f"rows {end} to {low - 1} are in no range; rank {rank} has [{low}, {high}]"
            findings.add(keys, "split leaves rows out", found=found, wanted="every row in one range", next_=mend)
        if high > end:
            end, last = high, rank
