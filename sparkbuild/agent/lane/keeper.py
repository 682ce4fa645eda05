"""Beside each lane that is a process: writes its log, which has a bound, and notes how it ended. It restarts nothing.

Run as a program by `launch`, in a session of its own: `main` with LOG GO TOLD, the command as a JSON list on stdin: who
looks for the engine's command finds the engine alone. That becomes a session of its own too, and its number is written
to the descriptor TOLD. It waits for a "1" from GO before it becomes the command:
should the agent die before the record is on disk, the pipe closes and there is never an engine that no record names.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
from contextlib import suppress

from sparkbuild.agent.disk.held import Held

LIMIT = 64 << 20  # bytes of a log; it then becomes LOG.1, of which there is one
_BLOCK = 1 << 16


def main(argv: list[str]) -> int:
    """See above."""
    path, go, told = argv
    command = [str(word) for word in json.load(sys.stdin)]
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(read)
        os.close(int(told))
        _become(int(go), write, command)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # the last words of what is stopped are written down
    os.close(write)
    os.close(int(go))
    os.write(int(told), f"{pid}\n".encode())
    os.close(int(told))
    _keep(path, read, pid)
    return 0


def _become(go: int, write: int, command: list[str]) -> None:
    """The child: never returns."""
    os.setsid()
    if os.read(go, 1) != b"1":
        os._exit(0)
    os.close(go)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(write, 1)
    os.dup2(write, 2)
    os.close(write)
    try:
        os.execvp(command[0], command)  # noqa: S606 - a list, no shell
    except OSError as error:
        os.write(2, f"cannot start {command[0]}: {error.strerror}\n".encode())
    os._exit(127)


def _keep(path: str, read: int, pid: int) -> None:
    """Until the pipe is at its end and the engine is gone; what it started may hold the pipe for longer."""
    log = _Log(path)
    is_open, is_gone = True, False
    while is_open or not is_gone:
        ready = select.select([read], [], [], 0.5)[0] if is_open else []
        if ready:
            block = os.read(read, _BLOCK)
            is_open = bool(block)
            log.write(block)
        if not is_gone and (not ready or not is_open):
            done, status = os.waitpid(pid, os.WNOHANG if is_open else 0)
            is_gone = bool(done)
            if is_gone:
                _note(path, status)


def _note(path: str, status: int) -> None:
    code = os.waitstatus_to_exitcode(status)
    folder, name = os.path.split(path)
    text = json.dumps({"code": code}).encode()
    with suppress(OSError), Held(folder) as held:
        held.replace(f"{name}.end", lambda file: file.write(text), 0o600, flush=False)


class _Log:
    """The log file. A full disk loses lines, and never stops the engine that writes them."""

    def __init__(self, path: str) -> None:
        self._folder, self._name = os.path.split(path)
        self._fd = -1
        self._size = 0
        self._open()

    def write(self, block: bytes) -> None:
        """Add to it."""
        if self._size + len(block) > LIMIT:
            with suppress(OSError):
                with Held(self._folder) as held:
                    held.rename(self._name, f"{self._name}.1")
                os.close(self._fd)
                self._open()
        with suppress(OSError):
            while block:
                written = os.write(self._fd, block)
                self._size += written
                block = block[written:]

    def _open(self) -> None:
        with Held(self._folder) as held:
            self._fd = held.open(self._name, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._size = os.fstat(self._fd).st_size
