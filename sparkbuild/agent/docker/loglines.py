"""The lines in the stream of a container's log, as docker's API sends it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

LONGEST = 1 << 20  # bytes; a longer line comes in pieces, so that a progress bar without an end fills no memory
_HEADER = 8


def frames(blocks: Iterable[bytes]) -> Iterator[tuple[int, bytes]]:
    """Stream (1 stdout, 2 stderr) and content, piece by piece, of a log without a tty.

    Each frame is: stream in one byte, three zero bytes, the content's length in four (big endian), the content. Source:
    https://docs.docker.com/reference/api/engine/ (ContainerAttach, "Stream format"). ValueError when it is none.
    """
    data = bytearray()
    stream, left = 0, 0
    for block in blocks:
        data += block
        while data:
            if not left:
                if len(data) < _HEADER:
                    break
                stream, left = data[0], int.from_bytes(data[4:_HEADER], "big")
                if stream > 3 or any(data[1:4]):
                    raise ValueError(f"no frame of a log: {bytes(data[:_HEADER])!r}")
                del data[:_HEADER]
                continue
            piece = bytes(data[:left])
            del data[:left]
            left -= len(piece)
            yield stream, piece
    if data or left:
        raise ValueError("the log ends within a frame")


def lines(pieces: Iterable[tuple[int, bytes]]) -> Iterator[str]:
    """Whole lines, without their ends, in the order in which they are finished. Each stream has lines of its own: half
    a line of stdout is not glued to what stderr says meanwhile.
    """
    open_lines: dict[int, bytearray] = {}
    for stream, piece in pieces:
        begun = open_lines.setdefault(stream, bytearray())
        begun += piece
        if b"\n" in piece:
            *whole, rest = bytes(begun).split(b"\n")
            begun[:] = rest
            yield from (text for line in whole for text in _pieces(line))
        elif len(begun) > LONGEST:
            yield from _pieces(bytes(begun))
            begun.clear()
    for begun in open_lines.values():
        if begun:
            yield from _pieces(bytes(begun))


def _pieces(line: bytes) -> Iterator[str]:
    line = line.removesuffix(b"\r")
    for start in range(0, max(len(line), 1), LONGEST):
        yield line[start : start + LONGEST].decode(errors="replace")
