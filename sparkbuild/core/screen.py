"""What is written for people: every text printable, whoever wrote it, and states in colour. The one way to stdout and
stderr.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from typing import IO, Any

from sparkbuild.agent.wire.printable import lines

# SGR codes of the words that begin a line of a run or of a plan; everything else stays as it is.
_COLOURS = {
    "FAIL": "1;31", "unknown": "33", "?": "33", "run": "36", "done": "32", "ok": "32", "maybe": "36", "skip": "2",
}  # fmt: skip


class Screen:
    """A stream that what is not printable does not get through; line ends do. For the rest it is the stream itself."""

    def __init__(self, stream: IO[str]) -> None:
        self.raw = stream

    def write(self, text: str) -> int:
        """Write it, printable."""
        self.raw.write(painted(lines(text), self.raw))
        return len(text)

    def writelines(self, texts: Iterable[str]) -> None:
        """Write them, printable."""
        for text in texts:
            self.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.raw, name)


def complain(text: str) -> None:
    """A line, or several, on stderr."""
    sys.stderr.write(f"{lines(text)}\n")
    sys.stderr.flush()


def painted(line: str, stream: IO[str]) -> str:
    """A line with its first word in the colour of that state, where the stream shows colours."""
    word = line.split(" ", 1)[0]
    if word not in _COLOURS or not _coloured(stream):
        return line
    return f"\x1b[{_COLOURS[word]}m{word}\x1b[0m{line[len(word) :]}"


def _coloured(stream: IO[str]) -> bool:
    """Whether a stream shows colours: a terminal that is not dumb, unless NO_COLOR is set (https://no-color.org)."""
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    isatty = getattr(stream, "isatty", None)
    return isatty is not None and bool(isatty())
