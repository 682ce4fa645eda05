"""What a look at a source found, in words: which commit, which rows, how much. Pure."""

from __future__ import annotations

import shlex

from sparkbuild.agent.wire.staging.sources import About, Table
from sparkbuild.agent.wire.staging.staged import NotStaged, StagedFact
from sparkbuild.core.units import count, size


def lines(about: About) -> list[str]:
    """Lines for people about the source of a staging, as the planners of the agent describe it (`FileSet.about`)."""
    if "tables" in about:
        return [_table(layer, table, about.get("rank", 0)) for layer, table in about["tables"].items()]
    if "commit" in about:
        return [_mirror(about), *unchecked(about)]
    return [*([_vain(about)] if about.get("unused_skip") else []), *_left_out(about)]


def _left_out(about: About) -> list[str]:
    return [
        f"left out: {folder}, {count(files, 'file')} of a tool" for folder, files in about.get("left_out", {}).items()
    ]


def _table(layer: str, table: Table, rank: int) -> str:
    ranges, sizes = table.get("ranges") or (), table.get("bytes") or ()
    if not 0 <= rank < len(ranges):
        return f"layer {layer}: nothing is said of rank {rank}"
    low, high = ranges[rank]
    length = f", {sizes[rank]:,} bytes" if rank < len(sizes) else ""
    into = f" -> {table['file']}{length}" if "file" in table else ""
    return f"layer {layer}: rows [{low}, {high}) of {table.get('rows')} in {table.get('shard')}{into}"


def unchecked(about: About) -> list[str]:
    """What could not be checked, as it should: notes of a run."""
    why = about.get("unread_tree")
    if not why:
        return []
    return [
        f"trees/{about.get('commit')}.json cannot be used: {why}; so nothing tells whether a file or link is missing"
    ]


def closed(fact: StagedFact | NotStaged, folder: str) -> str:
    """That other users of the node cannot read a staged folder, with what mends it; "" when they can."""
    path = fact.get("closed")
    if not path:
        return ""
    return (
        f"other users of the node, and containers that run as one, cannot read {path}:"
        f" chmod -R go+rX {shlex.quote(folder)} (costs one reading of it)"
    )


def _vain(about: About) -> str:
    return f"nothing matches skip = {', '.join(map(repr, about['unused_skip']))}"


def _mirror(about: About) -> str:
    ref = f"{about['ref']} is " if about.get("ref") and about["ref"] != about["commit"] else ""
    skipped = about.get("skipped")
    left = f"; {skipped['files']} skipped" if skipped and skipped["files"] else ""
    vain = f"; {_vain(about)}" if about.get("unused_skip") else ""
    files = f"{count(about.get('files', 0), 'file')}, {size(about.get('bytes', 0))}"
    return f"{about.get('repo', '')}: {ref}{about['commit'][:12]}, {files}{left}{vain}"
