"""The standard streams: open when a command begins, written to the end when it ends, and coloured on a terminal."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import IO, Any

from doit.exceptions import InvalidCommand

# SGR codes of the words that begin a line of a run or of a plan; everything else stays as it is.
_COLOURS = {
    "FAIL": "1;31", "unknown": "33", "?": "33", "run": "36", "done": "32", "ok": "32", "maybe": "36", "skip": "2",
}  # fmt: skip
CLOSED_PIPE = 141  # 128 + SIGPIPE: what a shell reports of a program whose reader is gone


def opened() -> None:
    """Give /dev/null to each standard stream that the caller closed (`doit list >&-`).

    Without it the next file that is opened gets the free number 1, and what programs print ends up in it.
    """
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number, which is this one
            os.set_inheritable(number, True)
    # Python sets a stream that was closed to None, and print() and doit's options keep that
    sys.stdout = sys.stdout or open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115 - open as long as we run
    sys.stderr = sys.stderr or open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115 - as above


def printed(work: Callable[[], Any]) -> Any:
    """The exit code that `work` returns, once everything that it printed has been written.

    141 when the reader has gone (`doit list | head -1`). Raises InvalidCommand when it cannot be written (a full disk).
    """
    try:
        code = work()
        sys.stdout.flush()
    except BrokenPipeError:
        discard()
        return CLOSED_PIPE
    except OSError as error:
        if is_output(error):
            raise unwritable(error) from error
        raise
    return code


def discard() -> None:
    """Send what is still to be printed nowhere: Python would try again at exit, and complain in words of its own."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


def is_output(error: OSError) -> bool:
    """Whether an error without a file's name came from printing: then it comes again.

    A character device keeps nothing to be flushed, so a line end is printed.
    """
    if error.filename is not None:
        return False
    try:
        sys.stdout.write("\n")
        sys.stdout.flush()
    except OSError as again:
        return again.errno == error.errno
    return False


def unwritable(error: OSError) -> InvalidCommand:
    """The error for output that cannot be written; what is left of it goes nowhere."""
    discard()
    return InvalidCommand(
        "what this command prints cannot be written"
        f"\n  found:  {error.strerror or error}\n  next:   df where its output goes to; then run it again"
    )


def coloured(stream: IO[str]) -> bool:
    """Whether a stream shows colours: a terminal that is not dumb, unless NO_COLOR is set (https://no-color.org)."""
    isatty = getattr(stream, "isatty", None)
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    return isatty is not None and bool(isatty())


def painted(line: str, stream: IO[str]) -> str:
    """A line with its first word in the colour of that state, where the stream shows colours."""
    word = line.split(" ", 1)[0]
    if word not in _COLOURS or not coloured(stream):
        return line
    return f"\x1b[{_COLOURS[word]}m{word}\x1b[0m{line[len(word) :]}"
