"""How several requests share the two pipes of one agent: frames, each a line `=NUMBER WORD SIZE` and SIZE bytes.

A request has a number, and is a process of its own on the node: `in` and `out` carry the bytes of its stdin and stdout,
so that a verb talks as if it were alone (see protocol). To the agent go `run` (the verb), `in`, `end` (of its stdin),
`stop` (seconds until it is killed) and `took` (how many bytes of `out` were used: no more than WINDOW are on their way
at once, in either direction, so that one which is slow holds up nobody else). Back come `out`, `took` (of `in`),
`err` (the end of its stderr), and last `exit` (its code). Number 0 is the agent itself: `ready`, and `load` (modules).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

WINDOW = 1 << 20  # bytes of a request that are on their way at once, in one direction
PIECE = 1 << 16  # bytes of a frame, at most
SELF = 0  # the number that means the agent itself
GONE = 94  # exit code of a request whose agent has lost its own code: the folder was removed, or hidden
READY = b"=0 ready 0"  # the first line that such an agent says
_LONGEST = 64  # bytes of a head


class Frame(NamedTuple):
    """One of them, as it came."""

    number: int
    word: str
    data: bytes


def frame(number: int, word: str, data: bytes | str = b"") -> bytes:
    """The bytes of one. ValueError when it is longer than who reads it would take for one."""
    content = data.encode() if isinstance(data, str) else data
    if len(content) > PIECE:
        raise ValueError(f"a frame of {len(content)} bytes")
    return b"=%d %s %d\n" % (number, word.encode(), len(content)) + content


class Frames:
    """Takes bytes as they come, and gives the frames in them. A line that is none is somebody else's, and skipped: an
    empty one is a sign of life, others are of a login shell.
    """

    def __init__(self) -> None:
        self._rest = bytearray()

    def feed(self, data: bytes) -> Iterator[Frame]:
        """The frames that are whole now."""
        rest = self._rest
        rest += data
        at = 0
        while (end := rest.find(b"\n", at)) >= 0:
            head = _head(bytes(rest[at:end])) if end - at <= _LONGEST else None
            if head is None:
                at = end + 1
                continue
            number, word, size = head
            if len(rest) < end + 1 + size:
                break
            at = end + 1 + size
            yield Frame(number, word, bytes(rest[end + 1 : at]))
        else:
            if len(rest) - at > _LONGEST:  # no head is as long
                at = len(rest)
        del rest[:at]


def _head(line: bytes) -> tuple[int, str, int] | None:
    words = line.split(b" ")
    if len(words) != 3 or not line.startswith(b"=") or not (words[0][1:].isdigit() and words[2].isdigit()):
        return None
    size = int(words[2])
    return (int(words[0][1:]), words[1].decode("ascii", "replace"), size) if size <= PIECE else None
