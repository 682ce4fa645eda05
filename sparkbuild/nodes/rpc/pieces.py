"""A file in pieces, to be sent."""

from __future__ import annotations

from collections.abc import Iterator

from sparkbuild.core.errors import IntegrityError

PIECE = 1 << 18  # bytes; paramiko's sendall takes time by the square of what it is given (paramiko#2659)


def pieces(path: str, offset: int, size: int) -> Iterator[bytes]:
    """The file's bytes from `offset` to `size`; IntegrityError when it has fewer by now."""
    with open(path, "rb") as file:
        file.seek(offset)
        while offset < size:
            piece = file.read(min(PIECE, size - offset))
            if not piece:
                raise IntegrityError(
                    "a file became shorter while it was sent",
                    where=path,
                    found=f"{offset} bytes",
                    wanted=f"{size} bytes",
                )
            offset += len(piece)
            yield piece
