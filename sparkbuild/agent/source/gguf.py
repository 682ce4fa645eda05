"""How long a GGUF file is to be, by its header. The tensors themselves are not read.

Format (ggml, docs/gguf.md): "GGUF", u32 version, u64 number of tensors, u64 number of keys; each key a text, u32 type,
value; each tensor a text, u32 number of dimensions, u64 for each, u32 type, u64 offset in the data. A text is a u64
length and so many bytes; version 1 has u32 for all of these. The data begins at the next multiple of
`general.alignment` (32 where it is not said). Numbers are little-endian, or all of them big-endian.
"""

from __future__ import annotations

import math
import struct

from sparkbuild.agent.source.source import Source, read_bytes
from sparkbuild.agent.wire.protocol import AgentError, integrity_error

_MAGIC = b"GGUF"
_VERSIONS = range(1, 64)  # read in the wrong order of bytes, such a number is far above these
_BLOCK = 1 << 20
_WIDTHS = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}  # bytes of a value by its type
_TEXT, _ARRAY, _U32 = 8, 9, 4
_DEEPEST = 8  # arrays of arrays
_LONGEST = 1 << 16  # bytes of a name
_NUMBERS = 1 << 20  # numbers that are read of one header, a few seconds; the largest vocabulary known needs 800,000
_MOST = 1 << 40  # no length or number in a header is above that: one that is was read out of junk

# type of a tensor: (elements of a block, bytes of a block), ggml.h. Of one that is not here only the offset is known.
_BLOCKS = {
    0: (1, 4), 1: (1, 2), 2: (32, 18), 3: (32, 20), 6: (32, 22), 7: (32, 24), 8: (32, 34), 9: (32, 36),
    10: (256, 84), 11: (256, 110), 12: (256, 144), 13: (256, 176), 14: (256, 210), 15: (256, 292),
    24: (1, 1), 25: (1, 2), 26: (1, 4), 27: (1, 8), 28: (1, 8), 30: (1, 2),
}  # fmt: skip


def refuse_cut_off(source: Source) -> None:
    """Raise AgentError, kind integrity, when an open file ends before its last tensor does, or is none at all: a
    download that reserved its room first leaves zeros. A file that begins as something else is left to its reader, and
    so is one whose header is longer than any that is known.
    """
    reader = _Reader(source)
    magic = reader.take(4)
    if magic == bytes(4):
        raise _wrong(source, "it begins with zeros: it was never written", repr(magic), repr(_MAGIC))
    if magic == _MAGIC:
        try:
            end = _end(reader)
        except _TooLongError:
            return
        if source.size < end:
            raise _wrong(source, "it is truncated", f"{source.size} bytes", f"{end} bytes, as its header says")


def _end(reader: _Reader) -> int:
    """Bytes up to the end of the last tensor."""
    version = reader.number("I")
    if version not in _VERSIONS:
        reader.order = ">"
        version = struct.unpack(">I", struct.pack("<I", version))[0]
    if version == 1:
        reader.long = "I"
    tensors, keys = reader.length(), reader.length()
    alignment = 32
    for _ in range(keys):
        name, kind = reader.text(), reader.number("I")
        if name == b"general.alignment" and kind == _U32:
            alignment = max(reader.number("I"), 1)
        else:
            _pass_value(reader, kind)
    last = 0
    for _ in range(tensors):
        reader.text()
        elements = math.prod(reader.length() for _ in range(reader.number("I")))
        per_block, size = _BLOCKS.get(reader.number("I"), (1, 0))
        last = max(last, reader.number("Q") + -(-elements // per_block) * size)
    return -(-reader.at // alignment) * alignment + last if tensors else reader.at


def _pass_value(reader: _Reader, kind: int, depth: int = 0) -> None:
    if kind in _WIDTHS:
        reader.pass_over(_WIDTHS[kind])
    elif kind == _TEXT:
        reader.pass_over(reader.length())
    elif kind == _ARRAY and depth < _DEEPEST:
        inner, count = reader.number("I"), reader.length()
        if inner in _WIDTHS:
            reader.pass_over(_WIDTHS[inner] * count)
        else:
            for _ in range(count):
                _pass_value(reader, inner, depth + 1)
    else:
        raise _wrong(reader.source, "its header has a value of an unknown type", str(kind), "a type from 0 to 12")


class _TooLongError(Exception):
    """Leaves a header that takes too long to read."""


class _Reader:
    """The bytes of a header from its begin on; `at` is how many were taken."""

    def __init__(self, source: Source) -> None:
        self.source, self.at, self.order, self.long = source, 0, "<", "Q"
        self._begin, self._block = 0, b""  # where in the file the block lies
        self._numbers = 0

    def take(self, size: int) -> bytes:
        """The next bytes. AgentError where the file has no more."""
        self.pass_over(size)
        start = self.at - size
        if start < self._begin or self.at > self._begin + len(self._block):
            wanted = min(max(_BLOCK, size), self.source.size - start)
            self._begin, self._block = start, read_bytes(self.source, start, wanted)
            if len(self._block) < size:
                raise self._over(start + len(self._block))
        return self._block[start - self._begin : self.at - self._begin]

    def pass_over(self, size: int) -> None:
        """Go on without reading."""
        self.at += size
        if self.at > self.source.size:
            raise self._over(self.source.size)

    def number(self, form: str) -> int:
        """An unsigned number: I has 4 bytes, Q has 8."""
        self._numbers += 1
        if self._numbers > _NUMBERS:
            raise _TooLongError
        value: int = struct.unpack(self.order + form, self.take(struct.calcsize(self.order + form)))[0]
        return value

    def length(self) -> int:
        """A length or a number of things."""
        length = self.number(self.long)
        if length > _MOST:
            raise _wrong(self.source, "its header has an impossible length", str(length), f"at most {_MOST}")
        return length

    def text(self) -> bytes:
        """A name."""
        size = self.length()
        if size > _LONGEST:
            raise _wrong(self.source, "its header has an impossible name", f"{size} bytes", f"at most {_LONGEST}")
        return self.take(size)

    def _over(self, size: int) -> AgentError:
        return _wrong(self.source, "it ends within its header", f"{size} bytes", "a header and the tensors")


def _wrong(source: Source, what: str, found: str, wanted: str) -> AgentError:
    return integrity_error(
        f"not a whole GGUF file: {what}",
        where=source.path,
        found=found,
        wanted=wanted,
        next="compare its size with that of the one it was downloaded or copied from, and fetch it again",
    )
