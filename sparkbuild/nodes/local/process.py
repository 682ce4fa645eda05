"""The agent's process on this machine. Light to import: it is started before anything else is loaded."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from contextlib import suppress
from typing import IO

from sparkbuild.agent.wire.frames import PIECE, SELF, WINDOW, Frames, frame
from sparkbuild.agent.wire.protocol import SERVE
from sparkbuild.core import child
from sparkbuild.core.errors import NodeError

_BLOCK = 1 << 18  # bytes
_ENDS, _GRACE = 1.0, 2.0  # seconds: to end with its stdin; to end when it is told to
_PACKAGE_PARENT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))

# -I: nothing of the environment or the current folder decides what the agent imports. -S: no site-packages with their
# start-up hooks either; only where xxhash is found is handed on, at the end of the path. _exit: all is said and closed,
# and taking Python apart would take 5 ms more.
_BOOT = """
import gc, os, sys
gc.disable()
sys.path += sys.argv[1:3]
del sys.argv[1:3]
from sparkbuild.agent.main import main
code = main()
sys.stdout.flush()
os._exit(code)
"""


Popen = subprocess.Popen[bytes]


def start(verb: str = SERVE, *, final: bool = False) -> Popen:
    """Start an agent: for one verb, or for requests until its stdin closes. It outlives a stop of the run, for what
    cleans up.
    """
    pipe = subprocess.PIPE
    process = child.spawn(
        command(verb), stdin=pipe, stdout=pipe, stderr=pipe, tethered=False, final=final, lasting=True
    )
    if verb == SERVE:
        with suppress(BrokenPipeError):  # it ended already: who asks it learns why
            os.write(_fd(process.stdin), b"{}\n")
    return process


class LocalPipes:
    """See rpc.process.Pipes. Each pipe is closed by the thread that uses it."""

    def __init__(self, process: Popen) -> None:
        self._process = process

    def send(self, data: bytes) -> bool:
        """See Pipes."""
        view = memoryview(data)
        try:
            while view:
                view = view[os.write(_fd(self._process.stdin), view) :]
        except BrokenPipeError:
            return False
        return True

    def end_input(self) -> None:
        """See Pipes."""
        _close(self._process.stdin)

    def receive(self) -> bytes:
        """See Pipes."""
        return os.read(_fd(self._process.stdout), _BLOCK)

    def ending(self) -> tuple[int, str]:
        """See Pipes."""
        stderr = self._process.stderr
        said = stderr.read().decode(errors="replace") if stderr else ""
        for stream in (stderr, self._process.stdout):
            _close(stream)
        try:
            return self._process.wait(timeout=_ENDS), said
        except subprocess.TimeoutExpired:
            return -1, said

    def lost(self) -> NodeError | None:
        """There is no way to this machine that could break."""
        return None

    def close(self) -> None:
        """See Pipes."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=_ENDS)
        child.end(self._process, grace=_GRACE)


class OneVerb(LocalPipes):
    """The way to an agent that carries out one verb, as if that were the first request of one that takes many: it need
    not fork for it, which takes longer than many a look.
    """

    def __init__(self, process: Popen) -> None:
        super().__init__(process)
        self._frames = Frames()
        self._room = WINDOW  # bytes of its stdout that the caller will take
        self._changed = threading.Condition()

    def send(self, data: bytes) -> bool:
        """See Pipes."""
        for told in self._frames.feed(data):
            if told.word == "in" and not super().send(told.data):
                return False
            if told.word == "took":
                self._may_take(int(told.data))
            elif told.word in {"end", "stop"}:
                self.end_input()
        return True

    def receive(self) -> bytes:
        """See Pipes."""
        with self._changed:
            self._changed.wait_for(lambda: self._room > 0)
            size = min(PIECE, self._room)
        data = os.read(_fd(self._process.stdout), size)
        self._may_take(-len(data))
        return frame(SELF + 1, "out", data) if data else b""

    def close(self) -> None:
        """See Pipes."""
        self._may_take(WINDOW)  # who receives sees its end
        super().close()

    def _may_take(self, size: int) -> None:
        with self._changed:
            self._room += size
            self._changed.notify()


def _fd(stream: IO[bytes] | None) -> int:
    if stream is None:
        raise RuntimeError("an agent without pipes")
    return stream.fileno()


def _close(stream: IO[bytes] | None) -> None:
    if stream is not None:
        stream.close()


def command(verb: str) -> list[str]:
    """What starts it: python, its options, `-c`, a program, and the program's arguments."""
    return [sys.executable, "-I", "-S", "-c", _BOOT, _PACKAGE_PARENT, _site(), verb]


def _site() -> str:
    """The folder of installed packages that this Python itself uses for xxhash; "" when there is none."""
    for folder in sys.path:
        if os.path.isdir(os.path.join(folder, "xxhash")):
            return folder
    return ""
