"""Rows of a model's lookup tables where they are in the checkpoint: the planner of "sparse-copy".

Each shard with a table is copied under its name, as long as it is, with holes: its header, and the rank's rows at their
offsets. Readers get zeros for a row of another rank, and no error. Beside it `model.safetensors.index.json`,
`config.json`, and the manifest `engram-local.json`, which tells a runtime the rows that are here.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from contextlib import closing
from typing import TYPE_CHECKING

from sparkbuild.agent.ledger.ledger import Extents
from sparkbuild.agent.rows import rowsplit
from sparkbuild.agent.rows.packed import SHA256, Share, about_of, identity_of, shares, span
from sparkbuild.agent.rows.tables import CONFIG, INDEX, Model
from sparkbuild.agent.source.fileset import FileBytes, FileSet, Wanted, text_file
from sparkbuild.agent.source.source import FileSource
from sparkbuild.agent.source.sparsecopy import MANIFEST

if TYPE_CHECKING:
    from sparkbuild.agent.wire.staging.sources import Rows

_AGAIN = "fetch it anew into the hub cache (remove the blob, then download again)"


def file_set(what: Rows, store: str) -> FileSet:
    """A model folder in which the copies replace the shards needs `complete_shard`, else the other tensors of the
    shards are zeros. Raises AgentError.
    """
    model, owned = shares(what, store)
    complete = bool(what.get("complete_shard"))
    about = about_of(what, model, owned)
    about["complete_shard"], about["shards"] = complete, {}
    files = []
    for name in sorted({share.table.shard.name for share in owned}):
        of_shard = [share for share in owned if share.table.shard.name == name]
        shard, extents = of_shard[0].table.shard, extents_of(of_shard, complete=complete)
        # All of a shard has the sha256 that its blob is named by; of a part of it nobody knows one.
        sha256 = shard.blob if extents == ((0, shard.size),) and len(shard.blob) == SHA256 else ""
        identity = {
            "kind": what["kind"],
            "complete_shard": complete,
            "tables": [identity_of(what, model, share) for share in of_shard],
        }
        source = FileBytes(kind="file", path=shard.path, version=shard.version.text)
        files.append(Wanted(name, source, shard.size, sha256, identity, extents=extents, again=_AGAIN))
        data = sum(end - start for start, end in extents)
        about["shards"][name] = {"bytes": shard.size, "data": data, "blob": shard.blob}
    files += [_copied(model, name) for name in (INDEX, CONFIG) if model.has(name)]
    files.append(text_file(MANIFEST, manifest(what, model, owned)))
    return FileSet(files, (), about)


def extents_of(owned: list[Share], *, complete: bool) -> Extents:
    """The bytes of one shard that are copied: header, rows of its tables and, if asked, every other tensor."""
    header = owned[0].table.shard.header
    spans = [(0, header.length), *(span(share, part) for share in owned for part in ("weight", "scale"))]
    if complete:
        tables = {tensor for share in owned for tensor in (share.table.weight, share.table.scale)}
        spans += [(tensor.start, tensor.end) for tensor in header.tensors.values() if tensor not in tables]
    return _merged(spans)


def manifest(what: Rows, model: Model, owned: list[Share]) -> str:
    """`engram-local.json`. The same for the same inputs: there is no time in it."""
    value = {
        "source": model.folder,
        "layers": {str(share.table.layer): [share.lo, share.hi] for share in owned},
        "note": "rows outside of these ranges are holes: they read as zeros",
        "rank": what["rank"],
        "tp_size": what["tp"],
        "revision": what.get("revision", ""),
        "quant": rowsplit.engram(model.config).get("engram_quant", "fp8"),
    }
    return json.dumps(value, indent=2) + "\n"


def _merged(spans: Iterable[tuple[int, int]]) -> Extents:
    merged: list[tuple[int, int]] = []
    for start, end in sorted((start, end) for start, end in spans if start < end):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return tuple(merged)


def _copied(model: Model, name: str) -> Wanted:
    """A small file as it was when the tables were looked up, and no other."""
    path, sha256 = model.path(name), model.index_sha256 if name == INDEX else model.config_sha256
    with closing(FileSource(path)) as source:
        size = source.size
    return Wanted(name, FileBytes(kind="file", path=path), size, sha256, {"kind": "file", "sha256": sha256})
