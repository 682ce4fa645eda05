"""Readers of staged lookup tables as runtimes have them, written from the description of the formats alone.

They share nothing with the product, so that a wrong constant is wrong in one place only. Each reads rows by their
number in the whole table and is as strict as the strictest runtime.
"""

from __future__ import annotations

import json
import mmap
import os
from collections.abc import Iterator
from pathlib import Path

_PAGE = 4096
_ROW = 264
_WINDOW = 1 << 20  # bytes read at once when all rows are wanted


class RefusedError(Exception):
    """The runtime would not start with this file."""


class _Direct:
    """Reads of whole pages past the page cache (O_DIRECT), or plain ones where the file system has no such thing."""

    def __init__(self, path: Path) -> None:
        try:
            self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECT)
            self.direct = True
        except OSError:
            self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            self.direct = False
        self._pages = mmap.mmap(-1, _WINDOW + 2 * _PAGE)  # begins at a page's begin, as the kernel demands
        self.size = os.fstat(self._fd).st_size

    def read(self, offset: int, length: int) -> bytes:
        base = offset - offset % _PAGE
        want = (offset + length - base + _PAGE - 1) // _PAGE * _PAGE
        with memoryview(self._pages) as whole, whole[:want] as view:
            got = os.preadv(self._fd, [view], base)
            if got < offset - base + length:
                raise RefusedError(f"a read at {offset} ended at {base + got}")
            return bytes(view[offset - base : offset - base + length])

    def close(self) -> None:
        os.close(self._fd)
        self._pages.close()


class Packed:
    """`engram-l<L>-r<r>of<tp>.bin`."""

    def __init__(self, path: Path, layer: int, lo: int, hi: int, rows: int) -> None:
        self._file, self.lo, self.hi = _Direct(path), lo, hi
        head = self._file.read(0, _PAGE)
        found = [int.from_bytes(head[at : at + 8], "little") for at in range(0, 48, 8)]
        if found != [0x31344E4531565344, layer, lo, hi, rows, 264] or any(head[48:]):
            raise RefusedError(f"header {found}")
        if head[:8].hex() != "44535631454e3431":
            raise RefusedError("magic")
        if self._file.size != _PAGE + _ROW * (hi - lo):
            raise RefusedError(f"{self._file.size} bytes")

    def row(self, number: int) -> bytes:
        return self._file.read(_PAGE + _ROW * (number - self.lo), _ROW)

    def rows(self) -> Iterator[bytes]:
        """All of them, in order."""
        per_read = _WINDOW // _ROW
        for first in range(self.lo, self.hi, per_read):
            count = min(per_read, self.hi - first)
            data = self._file.read(_PAGE + _ROW * (first - self.lo), _ROW * count)
            yield from (data[_ROW * n : _ROW * n + _ROW] for n in range(count))

    def close(self) -> None:
        self._file.close()


class Page15:
    """`engram-layer-<LL>-rank<r>-page15.bin`."""

    def __init__(self, path: Path, layer: int, lo: int, hi: int, rows: int) -> None:
        self._file, self.lo, self.hi = _Direct(path), lo, hi
        head = self._file.read(0, _PAGE)
        found = [int.from_bytes(head[at : at + 8], "little") for at in range(0, 64, 8)]
        if found != [0x3247504531345344, layer, lo, hi, rows, 264, 15, 4096] or any(head[64:]):
            raise RefusedError(f"header {found}")
        if self._file.size != _PAGE + (hi - lo + 14) // 15 * _PAGE:
            raise RefusedError(f"{self._file.size} bytes")

    def row(self, number: int) -> bytes:
        at = number - self.lo
        return self._file.read(_PAGE + at // 15 * _PAGE + at % 15 * _ROW, _ROW)

    def rows(self) -> Iterator[bytes]:
        """All of them, in order. What is no row must be zero."""
        left, per_read = self.hi - self.lo, _WINDOW // _PAGE
        for page in range(0, (left + 14) // 15, per_read):
            count = min(per_read, (left + 14) // 15)
            data = self._file.read(_PAGE + page * _PAGE, _PAGE * count)
            for at in range(0, len(data), _PAGE):
                here = min(15, left)
                yield from (data[at + _ROW * n : at + _ROW * n + _ROW] for n in range(here))
                if any(data[at + _ROW * here : at + _PAGE]):
                    raise RefusedError(f"page {page + at // _PAGE} has more than its rows")
                left -= here

    def close(self) -> None:
        self._file.close()


class SparseCopy:
    """A folder with `engram-local.json`. `rows` is what the model's config says of each layer's table."""

    def __init__(self, folder: Path, rows: dict[int, int]) -> None:
        manifest = json.loads((folder / "engram-local.json").read_text())
        weight_map = json.loads((folder / "model.safetensors.index.json").read_text())["weight_map"]
        if not all(isinstance(manifest[key], kind) for key, kind in (("source", str), ("layers", dict))):
            raise RefusedError("manifest")
        self.ranges: dict[int, tuple[int, int]] = {}
        self._at: dict[int, tuple[Path, int, int]] = {}
        for key, (lo, hi) in manifest["layers"].items():
            layer = int(key)
            names = [name for name in weight_map if f"layers.{layer}.engram.embed." in f".{name}"]
            if len(names) != 2 or len({weight_map[name] for name in names}) != 1:
                raise RefusedError(f"layer {layer}: {names}")
            path = folder / weight_map[names[0]]
            starts = {}
            with path.open("rb") as file:
                length = int.from_bytes(file.read(8), "little")
                header = json.loads(file.read(length))
            for name in names:
                entry, part = header[name], name.rpartition(".")[2]
                dtype, width = ("F8_E4M3", 256) if part == "weight" else ("F8_E8M0", 8)
                first, end = entry["data_offsets"]
                if (
                    entry["dtype"] != dtype
                    or entry["shape"] != [rows[layer], width]
                    or end - first != rows[layer] * width
                ):
                    raise RefusedError(f"{name}: {entry}")
                starts[part] = 8 + length + first
                if starts[part] + hi * width > path.stat().st_size:
                    raise RefusedError(f"{name} runs past the end")
            if not 0 <= lo <= hi <= rows[layer]:
                raise RefusedError(f"layer {layer}: [{lo}, {hi})")
            self.ranges[layer] = (lo, hi)
            self._at[layer] = (path, starts["weight"], starts["scale"])

    def row(self, layer: int, number: int) -> bytes:
        """Whatever is there: a row of another rank is zeros."""
        return self.rows(layer, number, number + 1)[0]

    def rows(self, layer: int, first: int, end: int) -> list[bytes]:
        path, weight, scale = self._at[layer]
        with path.open("rb") as file:
            file.seek(weight + 256 * first)
            weights = file.read(256 * (end - first))
            file.seek(scale + 8 * first)
            scales = file.read(8 * (end - first))
        return [weights[256 * n : 256 * n + 256] + scales[8 * n : 8 * n + 8] for n in range(end - first)]


def tile(ranks: list[tuple[int, int]], rows: int) -> bool:
    """Whether the ranges of all ranks are the whole table, each row once: what ranks ask of each other at the start."""
    at = 0
    for lo, hi in sorted(pair for pair in ranks if pair[0] != pair[1]):
        if lo != at:
            return False
        at = hi
    return at == rows
