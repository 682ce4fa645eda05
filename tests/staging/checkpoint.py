"""Synthetic checkpoints with the names, layouts and dtypes of DeepSeek-V4.1-Flash and small lookup tables.

With `vocab=1000` the tables have 25,874 and 30,058 rows. Everything is made of `seed`: the same arguments, the same
bytes. `python -m tests.staging.checkpoint FOLDER` makes one by hand.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import sys
from pathlib import Path
from typing import Any, NamedTuple

REPO, COMMIT = "acme/tiny-flash", "0123456789abcdef0123456789abcdef01234567"
INDEX = "model.safetensors.index.json"
LAYERS = (1, 14)
# The real checkpoint as it was published: rows, header bytes (8 + N), name and size of the shard of each table.
REAL = {
    1: (384006168, 664, "model-00047-of-00048.safetensors", 101535150936),
    14: (384016682, 672, "model-00048-of-00048.safetensors", 101537926640),
}
WIDTHS = {"weight": ("F8_E4M3", 256), "scale": ("F8_E8M0", 8)}


class Table(NamedTuple):
    """`weight` and `scale` are the bytes of all rows, `heads` the rows of each hash head."""

    rows: int
    heads: list[int]
    weight: bytes
    scale: bytes

    def row(self, number: int) -> bytes:
        """The 264 bytes of one row."""
        return self.weight[256 * number : 256 * number + 256] + self.scale[8 * number : 8 * number + 8]


class Checkpoint(NamedTuple):
    """`folder` is the one to stage from (a snapshot), `cache` the hub cache around it, the same folder without one.
    `files` says which shard the table of a layer is in.
    """

    folder: Path
    cache: Path
    config: dict[str, Any]
    tables: dict[int, Table]
    files: dict[int, str]


def heads_of(vocab: int, layers: tuple[int, ...] = LAYERS, orders: int = 3, heads: int = 8) -> dict[int, list[int]]:
    """The rows of each hash head, by trial division."""
    seen: set[int] = set()
    made: dict[int, list[int]] = {}
    for layer in layers:
        made[layer] = []
        for _ in range(orders):
            number = vocab - 1
            for _ in range(heads):
                number += 1
                while number in seen or any(number % d == 0 for d in range(2, int(number**0.5) + 1)):
                    number += 1
                seen.add(number)
                made[layer].append(number)
    return made


def shard(path: Path, tensors: list[tuple[str, str, list[int], bytes]], pad: int = 0) -> None:
    """Write a safetensors file: (name, dtype, shape, bytes) in this order. `pad` more spaces behind the header's JSON
    move everything, as another writer would have it.
    """
    entries: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, dtype, shape, data in tensors:
        entries[name] = {"dtype": dtype, "shape": shape, "data_offsets": [end, end + len(data)]}
        end += len(data)
    header = json.dumps(entries, separators=(",", ":")).encode()
    header += b" " * (-len(header) % 8 + pad)
    with path.open("wb") as file:
        file.write(len(header).to_bytes(8, "little") + header)
        for _, _, _, data in tensors:
            file.write(data)


def make(
    folder: Path,
    *,
    vocab: int = 1000,
    seed: int = 0,
    shards: int = 4,
    as_hub_cache: bool = False,
    repo: str = REPO,
    commit: str = COMMIT,
    prefix: str = "",
    nested: bool = False,
    one_file: bool = False,
    others_first: bool = False,
    pad: int = 0,
    index: bool = True,
) -> Checkpoint:
    """A checkpoint of `shards` files, the tables in the last two of them, in `folder`.

    `as_hub_cache`: `folder` is a hub cache (models--org--name with blobs named by their sha256 and relative links) with
    `commit` of `repo` in it.
    `prefix` goes before every tensor's name, `nested` puts the engram keys into `text_config`, `one_file` both tables
    into the last shard, `others_first` puts other tensors (some of half a byte per element) before the tables, `pad`
    see `shard`, `index=False` leaves the index out.
    """
    draw = random.Random(seed)
    heads = heads_of(vocab)
    tables = {}
    for layer in LAYERS:
        rows = sum(heads[layer])
        tables[layer] = Table(rows, heads[layer], draw.randbytes(256 * rows), draw.randbytes(8 * rows))
    plain = folder / ".made" if as_hub_cache else folder
    plain.mkdir(parents=True)
    named = [f"model-{number:05}-of-{shards:05}.safetensors" for number in range(1, shards + 1)]
    files = {1: named[-1] if one_file else named[-2], 14: named[-1]}
    weight_map: dict[str, str] = {}
    for name in named:
        tensors = [
            (f"{prefix}layers.{layer}.engram.embed.{part}", dtype, [table.rows, width], getattr(table, part))
            for layer, table in tables.items()
            if files[layer] == name
            for part, (dtype, width) in WIDTHS.items()
        ]
        others = [
            (f"{prefix}layers.{named.index(name)}.attn.wkv.weight", "BF16", [64, 33], draw.randbytes(64 * 33 * 2)),
            (f"{prefix}layers.{named.index(name)}.mlp.experts.weight", "F4", [30, 70], draw.randbytes(30 * 70 // 2)),
            (f"{prefix}layers.{named.index(name)}.engram.q_weight", "F8_E4M3", [5, 77], draw.randbytes(5 * 77)),
        ]
        tensors = others + tensors if others_first else tensors + others
        shard(plain / name, tensors, pad)
        weight_map |= {tensor[0]: name for tensor in tensors}
    config = _config(vocab, tables, nested=nested)
    (plain / "config.json").write_text(json.dumps(config, indent=2))
    (plain / "tokenizer.json").write_text('{"version": "1.0"}')
    if index:
        value = {"metadata": {"total_size": sum(path.stat().st_size for path in plain.iterdir())}}
        (plain / INDEX).write_text(json.dumps(value | {"weight_map": weight_map}, indent=2))
    snapshot = _hub_cache(folder, plain, repo, commit) if as_hub_cache else folder
    return Checkpoint(snapshot, folder, config, tables, files)


def make_real(folder: Path) -> None:
    """Put files with the headers and sizes of the real checkpoint into `folder`, with no data behind them."""
    config = {
        "engram_layer_ids": [1, 14],
        "engram_num_embeddings": [rows for rows, _, _, _ in REAL.values()],
        "engram_max_ngram_size": 4,
        "engram_vocab_size": 16000000,
        "engram_n_heads": 8,
    }
    (folder / "config.json").write_text(json.dumps(config))
    weight_map = {}
    for layer, (rows, length, name, size) in REAL.items():
        table = f"layers.{layer}.engram.embed"
        ends = [256 * rows, 264 * rows, size - length]
        header = {
            f"{table}.weight": {"dtype": "F8_E4M3", "shape": [rows, 256], "data_offsets": [0, ends[0]]},
            f"{table}.scale": {"dtype": "F8_E8M0", "shape": [rows, 8], "data_offsets": ends[:2]},
            f"layers.{layer}.engram.wkv": {"dtype": "U8", "shape": [ends[2] - ends[1]], "data_offsets": ends[1:]},
        }
        text = json.dumps(header).encode().ljust(length - 8)
        (folder / name).write_bytes((length - 8).to_bytes(8, "little") + text)
        os.truncate(folder / name, size)
        weight_map |= dict.fromkeys(header, name)
    (folder / INDEX).write_text(json.dumps({"weight_map": weight_map}))


def _config(vocab: int, tables: dict[int, Table], *, nested: bool) -> dict[str, Any]:
    engram = {
        "engram_layer_ids": list(LAYERS),
        "engram_num_embeddings": [table.rows for table in tables.values()],
        "engram_max_ngram_size": 4,
        "engram_vocab_size": vocab,
        "engram_n_heads": 8,
        "engram_head_dim": 256,
        "engram_pad_token_id": 2,
        "engram_compressed_vocab_size": 99092,
    }
    return {"model_type": "tiny", **({"text_config": engram} if nested else engram)}


def _hub_cache(cache: Path, plain: Path, name: str, commit: str) -> Path:
    """Move plain files into a hub cache; the snapshot they are then seen in."""
    repo = cache / f"models--{name.replace('/', '--')}"
    snapshot = repo / "snapshots" / commit
    snapshot.mkdir(parents=True)
    (repo / "blobs").mkdir()
    (repo / "refs").mkdir()
    (repo / "refs/main").write_text(commit)
    for path in sorted(plain.iterdir()):
        data = path.read_bytes()
        if path.suffix == ".safetensors":
            etag = hashlib.sha256(data).hexdigest()
        else:
            etag = hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()
        path.rename(repo / "blobs" / etag)
        (snapshot / path.name).symlink_to(f"../../blobs/{etag}")
    plain.rmdir()
    return snapshot


if __name__ == "__main__":
    print(make(Path(sys.argv[1]), as_hub_cache="--hub" in sys.argv).folder)
