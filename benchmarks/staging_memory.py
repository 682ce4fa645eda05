"""Peak RSS of the agent, whatever it stages. Big sources are holes: their bytes fill buffers like any others."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

from staging_tools import MIB, Call, Row, agent, files_request, hole, listed

_LIMIT = 64  # MiB


def memory(work: Path, gib: int, files: int) -> list[Row]:
    """One file of so many GiB, four streams of a quarter each, so many small files."""
    one = work / "one.bin"
    hole(one, gib << 30)
    rows = [_row(f"one file of {gib} GiB", _staged(work, listed(one)))]
    four = [work / f"{index}.bin" for index in range(4)]
    for path in four:
        hole(path, gib << 28)
    rows.append(_row(f"4 streams, 4 files of {gib / 4:g} GiB", _staged(work, listed(*four), streams=4)))
    small = work / "small"
    for index in range(files):
        path = small / f"{index // 100:03}" / f"{index:05}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(os.urandom(3000))
    call = _staged(work, {"kind": "folder", "path": str(small), "members": ["*"], "skip": []})
    if call.result["files"] != files:
        raise RuntimeError(f"not all files: {call.result}")
    rows.append(_row(f"{files:,} small files ({call.wall:.0f} s)", call))
    return rows


def _staged(work: Path, what: dict[str, Any], **more: object) -> Call:
    call = agent("stage", files_request(work / "staged", what, **more))
    shutil.rmtree(work / "staged")
    return call


def _row(what: str, call: Call) -> Row:
    peak = call.rss / MIB
    return Row(f"peak RSS, {what}", f"{peak:.0f} MiB", "", "", f"< {_LIMIT} MiB", peak < _LIMIT)
