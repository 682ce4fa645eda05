"""The header of a safetensors file: which tensor lies where. The tensors themselves are not read.

Format (huggingface/safetensors, README and src/tensor.rs): u64 little-endian N, at most 100,000,000; N bytes of JSON
that begin with `{` and may end in spaces, {name: {"dtype", "shape", "data_offsets": [first, end]}}, offsets relative to
byte 8 + N; `__metadata__` is no tensor. The data has no holes and no overlaps and ends with the file.
"""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any, NamedTuple

from sparkbuild.agent.source.source import Source, read_bytes
from sparkbuild.agent.wire.protocol import AgentError, integrity_error

LIMIT = 100_000_000  # bytes of JSON that any reader takes
_FEWEST = 2  # "{}"
_OFFSETS = re.compile(rb'"data_offsets"\s*:\s*\[\s*\d{1,20}\s*,\s*(\d{1,20})\s*\]')
_BLOCK = 1 << 20
_CARRY = 256  # bytes; what `_OFFSETS` finds is shorter

# Bits of one element. A dtype that is not here is a newer one: its offsets are checked, its size cannot be.
_BITS = {
    "F4": 4,
    **dict.fromkeys(("F6_E2M3", "F6_E3M2"), 6),
    **dict.fromkeys(("BOOL", "U8", "I8", "F8_E4M3", "F8_E5M2", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ"), 8),
    **dict.fromkeys(("U16", "I16", "F16", "BF16"), 16),
    **dict.fromkeys(("U32", "I32", "F32"), 32),
    **dict.fromkeys(("U64", "I64", "F64", "C64"), 64),
}


class Tensor(NamedTuple):
    """`start` and `end` are bytes of the file, half-open."""

    dtype: str
    shape: tuple[int, ...]
    start: int
    end: int


class Header(NamedTuple):
    """`length` counts the 8 bytes in front of the JSON too: the data begins there. `sha256` in hex is over all that."""

    length: int
    sha256: str
    tensors: dict[str, Tensor]


def read(source: Source) -> Header:
    """The header of an open file. Raises AgentError, kind integrity, when it is none that every reader would take."""
    size = _length(source)
    data = _bytes(source, 0, 8 + size)
    tensors = _tensors(source, data)
    end = 8 + size
    for name, tensor in sorted(tensors.items(), key=lambda item: item[1][2:]):
        if tensor.start != end:
            what = "its tensors overlap" if tensor.start < end else "there is a hole between its tensors"
            raise _wrong(source, what, f"{name} begins at byte {tensor.start}", f"byte {end}")
        end = tensor.end
    _refuse_end(source, end)
    return Header(8 + size, hashlib.sha256(data).hexdigest(), tensors)


def refuse_cut_off(source: Source) -> None:
    """Raise AgentError, kind integrity, unless an open file has a header and ends where that says. Its tensors are not
    looked at, and nothing of it is kept: it may be staged whatever a newer format puts into it.
    """
    size = _length(source)
    last, carry = 0, b""
    for at in range(8, 8 + size, _BLOCK):
        data = _bytes(source, at, min(_BLOCK, 8 + size - at))
        if at == 8 and not data.startswith(b"{"):
            raise _wrong(source, "its header is no JSON object", repr(data[:16]), "{")
        last = max(last, *(int(match[1]) for match in _OFFSETS.finditer(carry + data)), 0)
        carry = data[-_CARRY:]
    _refuse_end(source, 8 + size + last)


def _length(source: Source) -> int:
    """Bytes of the header, without the 8 that tell it."""
    size = int.from_bytes(_bytes(source, 0, 8), "little")
    if not _FEWEST <= size <= LIMIT:
        raise _wrong(source, "its header has an impossible length", f"{size} bytes", f"{_FEWEST} to {LIMIT} bytes")
    if 8 + size > source.size:
        raise _wrong(source, "it ends within its header", f"{source.size} bytes", f"{8 + size} bytes and the data")
    return size


def _refuse_end(source: Source, end: int) -> None:
    if end != source.size:
        what = "it is truncated" if source.size < end else "there is something behind its last tensor"
        raise _wrong(source, what, f"{source.size} bytes", f"{end} bytes, as its header says")


def _bytes(source: Source, offset: int, size: int) -> bytes:
    data = read_bytes(source, offset, size)
    if len(data) != size:
        end = offset + len(data)
        raise _wrong(source, "it ends within its header", f"{end} bytes", f"{offset + size} bytes at least")
    return data


def _tensors(source: Source, data: bytes) -> dict[str, Tensor]:
    if data[8:9] != b"{":
        raise _wrong(source, "its header is no JSON object", repr(data[8:24]), "{")
    try:
        header = json.loads(data[8:], object_pairs_hook=_once)
    except (ValueError, RecursionError) as error:
        raise _wrong(source, "its header is no JSON object", str(error)[:200], "") from error
    header.pop("__metadata__", None)
    return {name: _tensor(source, name, value, len(data)) for name, value in header.items()}


def _once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """A JSON object with each key once: two readers may believe different ones of two."""
    table = dict(pairs)
    if len(table) != len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise ValueError(f"the key {twice!r} is there twice")
    return table


def _tensor(source: Source, name: str, value: Any, base: int) -> Tensor:
    value = value if isinstance(value, dict) else {}
    dtype, shape, offsets = value.get("dtype"), value.get("shape"), value.get("data_offsets")
    if not isinstance(dtype, str) or not _counts(shape) or not _counts(offsets) or len(offsets) != 2:
        raise _wrong(source, f"its entry {name!r} is no tensor", json.dumps(value)[:200], "dtype, shape, data_offsets")
    first, end = offsets
    if first > end:
        what = f"its tensor {name!r} ends before it begins"
        raise _wrong(source, what, f"data_offsets {offsets}", "[first, end], the end not below the first")
    if base + end > source.size:
        what = f"its tensor {name!r} is outside of it"
        raise _wrong(source, what, f"bytes {base + first} to {base + end}", f"within {source.size} bytes")
    bits = _BITS.get(dtype)
    if bits is not None:
        for length in shape:
            bits *= length
        if bits != 8 * (end - first):
            what = f"its tensor {name!r} has another size than its shape"
            size = f"{bits} bits" if bits % 8 else f"{bits // 8} bytes"
            raise _wrong(source, what, f"{end - first} bytes", f"{size} for {dtype} {shape}")
    return Tensor(dtype, tuple(shape), base + first, base + end)


def _counts(value: Any) -> bool:
    return isinstance(value, list) and all(type(number) is int and 0 <= number < 1 << 63 for number in value)


def _wrong(source: Source, what: str, found: str, wanted: str) -> AgentError:
    return integrity_error(
        f"not a whole safetensors file: {what}",
        where=source.path,
        found=found,
        wanted=wanted,
        next="compare it with the one it was downloaded or copied from, and fetch it again",
    )
