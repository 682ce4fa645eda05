"""Rows of a model's lookup tables as packed files, one per layer and rank: the planner of "packed" and "page15".

Packed (`engram-l<L>-r<r>of<tp>.bin`): 4096 bytes of header, then 264 bytes per row, 256 of weights and 8 of scales. In
page15 (`engram-layer-<LL>-rank<r>-page15.bin`) each page of 4096 bytes holds 15 rows, then zeros. See rowsource.
"""

from __future__ import annotations

import hashlib
from contextlib import closing
from typing import TYPE_CHECKING, Literal, NamedTuple

from sparkbuild.agent.disk.files import inside
from sparkbuild.agent.hub import repository
from sparkbuild.agent.ledger.ledger import Identity
from sparkbuild.agent.rows import rowsplit
from sparkbuild.agent.rows.rowsplit import Config
from sparkbuild.agent.rows.source import size_of
from sparkbuild.agent.rows.tables import CONFIG, SCALE_BYTES, WEIGHT_BYTES, Model, Table
from sparkbuild.agent.source import sparsecopy
from sparkbuild.agent.source.fileset import FileSet, RowBytes, Wanted
from sparkbuild.agent.source.source import FileSource
from sparkbuild.agent.wire.protocol import AgentError, config_error

if TYPE_CHECKING:
    from sparkbuild.agent.wire.staging import sources
    from sparkbuild.agent.wire.staging.sources import About, Rows

_SAMPLES = 16  # rows of a range that stand for its content where nothing else does
SHA256, _SHA1 = 64, 40  # hex digits
_SHOWN = 8  # ranks whose ranges a message shows


class Share(NamedTuple):
    """What a rank has of a table: rows [lo, hi), which are `ranges[rank]`."""

    table: Table
    ranges: rowsplit.Ranges
    lo: int
    hi: int


def file_set(what: Rows, store: str) -> FileSet:
    """A file for each table. Raises AgentError."""
    model, owned = shares(what, store)
    tp, rank = what["tp"], what["rank"]
    kind: Literal["packed", "page15"] = "packed" if what["kind"] == "packed" else "page15"
    about = about_of(what, model, owned)
    files = []
    for share in owned:
        table, shard = share.table, share.table.shard
        if kind == "packed":
            name = f"engram-l{table.layer}-r{rank}of{tp}.bin"
        else:
            name = f"engram-layer-{table.layer:02}-rank{rank}-page15.bin"
        source = RowBytes(
            kind=kind,
            path=shard.path,
            version=shard.version.text,
            link=shard.link,
            layer=table.layer,
            lo=share.lo,
            hi=share.hi,
            rows=table.rows,
            weight=table.weight.start,
            scale=table.scale.start,
            shard_bytes=shard.size,
            header_bytes=shard.header.length,
            header_sha256=shard.header.sha256,
        )
        files.append(Wanted(name, source, size_of(kind, share.hi - share.lo), "", identity_of(what, model, share)))
        sizes = [size_of(kind, hi - lo) for lo, hi in share.ranges]
        told = about["tables"][str(table.layer)]
        told["file"], told["bytes"] = name, sizes
    return FileSet(files, (), about)


def shares(what: Rows, store: str) -> tuple[Model, list[Share]]:
    """The model and what the rank has of each table. Raises AgentError when the ranges of all ranks are not the table,
    each row once, or when the model is a sparse copy that has not the rank's.
    """
    tp, rank = rowsplit.check_rank(what.get("tp"), what.get("rank"))
    model = Model(_folder(what, store))
    keys = rowsplit.engram(model.config, model.path(CONFIG))
    try:
        layers = _layers(what, model, keys)
    except rowsplit.NoRangesError as error:
        error.fields["next"] += _example([model.table(layer) for layer in model.layers()], tp)
        raise
    tables = [model.table(layer) for layer in layers]
    owned = []
    for table in tables:
        try:
            _check_split(what.get("split"), model, keys)
            _check_rows(table, keys, model.path(CONFIG))
            ranges = rowsplit.ranges(what.get("split"), tp, table.layer, table.rows, keys, path=model.path(CONFIG))
        except AgentError as error:
            raise _placed(error, table, tables, tp) from error
        owned.append(Share(table, ranges, *ranges[rank]))
    if model.has(sparsecopy.MANIFEST):
        rows = [(share.table.layer, share.lo, share.hi) for share in owned]
        sparsecopy.refuse(model.path(sparsecopy.MANIFEST), rows, complete=bool(what.get("complete_shard")))
    return model, owned


def _placed(error: AgentError, table: Table, tables: list[Table], tp: int) -> AgentError:
    """An error about a split: which file the table is in, and a split that fits, ready to be pasted into the recipe."""
    said = error.fields
    text = rowsplit.written({each.layer: rowsplit.even(each.rows, tp) for each in tables})
    example = f'split = "even", which is {text}' if tp <= _SHOWN else 'split = "even"'
    said["where"] = said["where"] or table.shard.path
    if isinstance(error, rowsplit.NoRangesError):
        said["next"] += _example(tables, tp)
    said["next"] = said["next"] or f"correct `split` of this staging block; one that fits: {example}"
    return error


def _example(tables: list[Table], tp: int) -> str:
    """Ranges of these tables, to be pasted; what the reader of a split that cannot be computed has, nobody knows."""
    if not tables or tp > _SHOWN:
        return ""
    text = rowsplit.written({table.layer: rowsplit.even(table.rows, tp) for table in tables})
    return f"; those of an even split are layers = {[table.layer for table in tables]} and {text}"


def _check_split(split: object, model: Model, keys: Config) -> None:
    """Are there ranges for a layer that the model has not?"""
    known = rowsplit.layers_of(keys, model.path(CONFIG)) or model.layers()
    layers = list(map(str, split)) if isinstance(split, dict) else []
    strangers = [name for name in layers if name not in map(str, known)]
    if strangers:
        raise config_error(
            f"layer {', '.join(strangers)} has no lookup table in this model",
            found=f"ranges for layer {', '.join(layers)} in `split`; the model has tables of layer "
            + ", ".join(map(str, known)),
            wanted="only layers that have one",
        )


def _folder(what: Rows, store: str) -> str:
    if "model" in what:
        return inside(store, what["model"])
    place = repository.find(inside(store, what["cache"]), what["repo"])
    commit, _ = repository.resolve(place, what["repo"], what.get("revision") or "main")
    return f"{place.path}/snapshots/{commit}"


def about_of(what: Rows, model: Model, owned: list[Share]) -> About:
    """What the source was found to be. Bytes and rows are half-open ranges; `ranges` are those of all ranks."""
    return {
        "kind": what["kind"],
        "split": what["split"],
        "tp": what["tp"],
        "rank": what["rank"],
        "revision": what.get("revision", ""),
        "folder": model.folder,
        "index_sha256": model.index_sha256,
        "config_sha256": model.config_sha256,
        "layers": {str(share.table.layer): [share.lo, share.hi] for share in owned},
        "tables": {str(share.table.layer): _told(share) for share in owned},
    }


def _told(share: Share) -> sources.Table:
    table = share.table
    return {
        "rows": table.rows,
        "ranges": share.ranges,
        "shard": table.shard.name,
        "shard_bytes": table.shard.size,
        "blob": table.shard.blob,
        "header_sha256": table.shard.header.sha256,
        "weight": list(span(share, "weight")),
        "scale": list(span(share, "scale")),
    }


def span(share: Share, part: str) -> tuple[int, int]:
    """The bytes of the rank's "weight" or "scale" rows in the shard, half-open."""
    tensor, width = (share.table.weight, WEIGHT_BYTES) if part == "weight" else (share.table.scale, SCALE_BYTES)
    return tensor.start + width * share.lo, tensor.start + width * share.hi


def identity_of(what: Rows, model: Model, share: Share) -> Identity:
    """What these rows are by content. The name of the blob says it in a hub cache; elsewhere there is only what is said
    around the table, so a few rows speak too: another table may well have the same header. A change of other rows shows
    in the version of the shard, as for plainfolder.
    """
    shard = share.table.shard
    identity = {
        "kind": what["kind"],
        "layer": share.table.layer,
        "lo": share.lo,
        "hi": share.hi,
        "rows": share.table.rows,
        "tp": what["tp"],
        "rank": what["rank"],
        "header_sha256": shard.header.sha256,
        "blob": shard.blob,
    }
    if len(shard.blob) == SHA256:  # then another revision with the same tables costs nothing
        return identity
    return {
        **identity,
        "revision": what.get("revision") or "main",  # of a folder without one too: so ledgers have it by now
        "index_sha256": model.index_sha256,
        "config_sha256": model.config_sha256,
        "sample": _sample(share),
        **({} if len(shard.blob) == _SHA1 else shard.version.numbers),
    }


def _sample(share: Share) -> str:
    """sha256 over the first row, the last, and some between."""
    count = share.hi - share.lo
    picked = sorted({share.lo + (count - 1) * n // (_SAMPLES - 1) for n in range(_SAMPLES)}) if count else []
    whole = hashlib.sha256()
    with closing(FileSource(share.table.shard.path, share.table.shard.version.text)) as source:
        for row in picked:
            for start, width in ((share.table.weight.start, WEIGHT_BYTES), (share.table.scale.start, SCALE_BYTES)):
                view = memoryview(bytearray(width))
                source.read(view, start + width * row)
                whole.update(view)
        source.check()
    return whole.hexdigest()


def _layers(what: Rows, model: Model, keys: Config) -> list[int]:
    path = model.path(CONFIG)
    known = rowsplit.layers_of(keys, path)
    wanted = list(what.get("layers") or known)
    if not wanted:
        said = "engram_layer_ids = [], an empty list" if "engram_layer_ids" in keys else "no engram_layer_ids in it"
        raise config_error(
            "nothing says which layers have lookup tables",
            where=path,
            found=said if model.config_sha256 else "no such file",
            wanted="engram_layer_ids, or `layers` of this staging block",
            next=f"write layers = {layers}" if (layers := model.layers()) else "is `src` the model with the tables?",
        )
    if len(set(wanted)) != len(wanted) or not all(type(layer) is int and layer >= 0 for layer in wanted):
        raise config_error(
            "layers that are none",
            where=path,
            found=f"{repr(wanted)[:200]} in the staging block",
            wanted="numbers, each once",
            next=f"write layers = {known or model.layers()}, or some of these",
        )
    if known and not set(wanted) <= set(known):
        missing = ", ".join(str(layer) for layer in wanted if layer not in known)
        fitting = [layer for layer in wanted if layer in known] or known
        raise config_error(
            f"layer {missing} has no lookup table in this model",
            where=path,
            found=f"engram_layer_ids = {known}; layers = {wanted} in the staging block",
            wanted="only layers of engram_layer_ids",
            next=f"write layers = {fitting}, or leave `layers` out: it is all of them then",
        )
    return wanted


def _check_rows(table: Table, keys: Config, path: str) -> None:
    """Is the table as long as config.json says, in both ways in which it says so?"""
    told, known = keys.get("engram_num_embeddings"), rowsplit.layers_of(keys, path)
    if isinstance(told, list) and len(told) == len(known) and table.layer in known:
        wanted = told[known.index(table.layer)]
        if wanted != table.rows:
            raise config_error(
                f"config.json is not of this checkpoint: the table of layer {table.layer} has another length",
                where=table.shard.path,
                found=f"{table.rows} rows",
                wanted=f"{wanted} rows, engram_num_embeddings of {path}",
                next="fetch both again, from one revision; or correct `src` of this staging block",
            )
    if known and keys.keys() >= rowsplit.HEAD_KEYS:
        rowsplit.check_primes(rowsplit.primes(keys, path)[table.layer], table.layer, table.rows, path)
