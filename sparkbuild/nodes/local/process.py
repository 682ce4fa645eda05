"""The agent's process on this machine. Light to import: a question may be asked before anything else is loaded."""

from __future__ import annotations

import os
import select
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import IO

from sparkbuild.core import child

_STEP, _PATIENCE = 0.2, 1.0  # seconds
_PACKAGE_PARENT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))

# -I: nothing of the environment or the current folder decides what the agent imports. -S: no site-packages with their
# start-up hooks either; only where xxhash is found is handed on, at the end of the path. _exit: all is said and closed,
# and taking Python apart would take 5 ms more.
_BOOT = """
import os, sys
sys.path += sys.argv[1:3]
del sys.argv[1:3]
from sparkbuild.agent.main import main
code = main()
sys.stdout.flush()
os._exit(code)
"""


def start(verb: str, *, final: bool = False) -> subprocess.Popen[bytes]:
    """Start the agent with a verb; it waits for its request on stdin, and ends when that closes. For `final` see
    core.child.spawn.
    """
    pipe = subprocess.PIPE
    return child.spawn(command(verb), stdin=pipe, stdout=pipe, stderr=pipe, tethered=False, final=final)


def lines(stream: IO[bytes], told_to_stop: Callable[[], bool]) -> Iterator[bytes]:
    """What it prints, line by line, to its end. Once the run was told to stop, that end is not waited for long: an
    agent that waits for a NAS that hangs cannot even be killed.
    """
    poll, rest, left = select.poll(), bytearray(), _PATIENCE
    poll.register(stream.fileno(), select.POLLIN)
    while left > 0:
        if not poll.poll(_STEP * 1000):
            left -= _STEP if told_to_stop() else 0
            continue
        block = os.read(stream.fileno(), 1 << 16)
        if not block:
            break
        rest += block
        if b"\n" in block:
            whole, _, tail = bytes(rest).rpartition(b"\n")
            rest = bytearray(tail)
            yield from whole.split(b"\n")
    if rest:
        yield bytes(rest)


def command(verb: str) -> list[str]:
    """What starts it: python, its options, `-c`, a program, and the program's arguments."""
    return [sys.executable, "-I", "-S", "-c", _BOOT, _PACKAGE_PARENT, _site(), verb]


def _site() -> str:
    """The folder of installed packages that this Python itself uses for xxhash; "" when there is none."""
    for folder in sys.path:
        if os.path.isdir(os.path.join(folder, "xxhash")):
            return folder
    return ""


def ask_facts(question: bytes) -> bytes:
    """All that a facts agent prints for a question; b"" when it fails (the question is then asked again, properly)."""
    process = start("facts")
    stdin, stdout, stderr = process.stdin, process.stdout, process.stderr
    if stdin is None or stdout is None or stderr is None:
        return b""
    try:
        stdin.write(question)
        stdin.flush()
        return stdout.read()
    except (OSError, ValueError):
        return b""
    finally:
        for stream in (stdin, stdout, stderr):
            try:
                stream.close()
            except OSError:
                continue
        child.end(process, grace=2.0)
