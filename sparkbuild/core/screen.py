"""What is written for people: every text printable, whoever wrote it. The one way to stdout and stderr."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import IO, Any

from sparkbuild.agent.wire.printable import lines


class Screen:
    """A stream that what is not printable does not get through; line ends do. For the rest it is the stream itself."""

    def __init__(self, stream: IO[str]) -> None:
        self.raw = stream

    def write(self, text: str) -> int:
        """Write it, printable."""
        self.raw.write(lines(text))
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
