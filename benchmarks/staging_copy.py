"""Staging beside `cp` in the same rounds: one big file, and rows of a lookup table packed; what stays in the cache."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from staging_tools import (
    MIB,
    WITHOUT_SHA256,
    Call,
    Row,
    agent,
    cached,
    cp,
    files_request,
    fill,
    forget,
    interleaved,
    listed,
    speed,
)

ROW = 264  # bytes: 256 of weights, 8 of scales
_ALONE = "xxh3 only (a switch of the benchmark)"
_PACKED = "engram-l1-r1of2.bin"


def copies(work: Path, mib: int, rounds: int) -> list[Row]:
    """One file of so many MiB, cold."""
    source = work / "source.bin"
    fill(source, mib * MIB)
    left: list[int] = []
    stage = _staging(work, source, listed(source), source.name, left)
    calls = interleaved(
        rounds,
        {
            "cp": lambda: _cp(source, work / "copy.bin"),
            "stage": lambda: stage(""),
            "xxh3": lambda: stage(WITHOUT_SHA256),
        },
    )
    size = source.stat().st_size
    source.unlink()
    what = f"copy of {mib} MiB"
    return [
        speed(f"{what}, all hashes", size, calls["stage"], calls["cp"], 0.85),
        speed(f"{what}, {_ALONE}", size, calls["xxh3"], calls["cp"], 0.95),
        _cache(what, left),
    ]


def packing(work: Path, mib: int, rounds: int) -> list[Row]:
    """Half of a table of twice so many MiB, beside `cp` of the file that comes of it."""
    model = work / "model"
    model.mkdir()
    rows = mib * MIB // ROW
    shard = model / "model.safetensors"
    table(shard, 2 * rows)
    reference = work / "packed.bin"
    fill(reference, rows * ROW + 4096)
    what = {"kind": "packed", "model": str(model), "layers": [1], "split": "even", "tp": 2, "rank": 1, "revision": ""}
    left: list[int] = []
    stage = _staging(work, shard, what, _PACKED, left)
    calls = interleaved(
        rounds,
        {
            "cp": lambda: _cp(reference, work / "copy.bin"),
            "all": lambda: stage(""),
            "xxh3": lambda: stage(WITHOUT_SHA256),
        },
    )
    size = reference.stat().st_size
    shutil.rmtree(model)
    reference.unlink()
    name = f"packing of {mib} MiB"
    peak = max(call.rss for call in calls["all"]) / MIB
    return [
        speed(f"{name}, all hashes", size, calls["all"], calls["cp"], 0.80),
        speed(f"{name}, {_ALONE}", size, calls["xxh3"], calls["cp"], 0.80),
        _cache(name, left),
        Row(f"peak RSS, {name}", f"{peak:.0f} MiB", "", "", "< 64 MiB", peak < 64),
    ]


def table(shard: Path, rows: int) -> None:
    """A checkpoint's file with one lookup table, its weights and scales one after the other."""
    shapes = {"weight": ("F8_E4M3", 256), "scale": ("F8_E8M0", 8)}
    header, at = {}, 0
    for name, (dtype, width) in shapes.items():
        size = rows * width
        fields = {"dtype": dtype, "shape": [rows, width], "data_offsets": [at, at + size]}
        header[f"layers.1.engram.embed.{name}"] = fields
        at += size
    data = json.dumps(header).encode()
    data += b" " * (-len(data) % 8)
    fill(shard, 8 + len(data) + at)
    with shard.open("r+b") as file:
        file.write(len(data).to_bytes(8, "little") + data)


def _cp(source: Path, target: Path) -> Call:
    forget(source)
    call = cp(source, target)
    target.unlink()
    return call


def _staging(work: Path, source: Path, what: dict[str, Any], name: str, left: list[int]) -> Callable[[str], Call]:
    def stage(shim: str) -> Call:
        forget(source)
        call = agent("stage", files_request(work / "staged", what), shim)
        left.append(cached(source) + cached(work / "staged" / name))
        shutil.rmtree(work / "staged")
        return call

    return stage


def _cache(what: str, left: list[int]) -> Row:
    worst = max(left) / MIB
    text = f"left in the page cache, source and result, {what}"
    return Row(text, f"{worst:.1f} MiB, worst of {len(left)}", "", "", "0 MiB", worst == 0)
