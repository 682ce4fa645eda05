"""A file in pieces, to be sent."""

from __future__ import annotations

from collections.abc import Iterator

PIECE = 1 << 18  # bytes; paramiko's sendall takes time by the square of what it is given (paramiko#2659)


def pieces(path: str, offset: int) -> Iterator[bytes]:
    """The file's bytes from `offset` on."""
    with open(path, "rb") as file:
        file.seek(offset)
        while piece := file.read(PIECE):
            yield piece
