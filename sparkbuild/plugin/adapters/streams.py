"""The standard streams: open when a command begins, and written to the end when it ends."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

from doit.exceptions import InvalidCommand

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

    A character device keeps nothing to be flushed, so a line end is printed. From a thread of doit comes the text of
    the error alone, without its number.
    """
    if error.filename is not None:
        return False
    try:
        sys.stdout.write("\n")
        sys.stdout.flush()
    except OSError as again:
        return error.errno in {None, again.errno}
    return False


def unwritable(error: OSError) -> InvalidCommand:
    """The error for output that cannot be written; what is left of it goes nowhere."""
    discard()
    found = error.strerror or str(error).rpartition("] ")[2]  # a thread's: "[Errno 28] No space left on device"
    return InvalidCommand(
        "what this command prints cannot be written"
        f"\n  found:  {found}\n  next:   df where its output goes to; then run it again"
    )
