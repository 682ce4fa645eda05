"""One agent for a node and a run: takes requests as frames (see wire.frames), and forks a process for each.

A verb is a process of its own, as if it had been started alone: it may change its umask, wait for a disk that hangs,
crash, be killed, or end its group, and no other one notices. The process that forks has loaded its modules (a start of
Python and its imports take twenty times as long as a fork), and stays single-threaded: a fork beside threads may copy a
lock that nobody opens any more. It carries out nothing itself, and so it always has time for its pipes.
"""

from __future__ import annotations

import gc
import json
import os
import select
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

from sparkbuild.agent.wire.frames import GONE, PIECE, SELF, WINDOW, Frame, Frames, frame

GRACE = 10.0  # seconds that a request has when the caller is gone: stopping.GRACE, and some
_FULL = 4 * PIECE  # bytes that wait to be sent, from which on nothing is taken from a request
_STDERR = 1 << 16  # bytes of it that are kept
_EXIT = 0.5  # seconds that the process of a request may take to end after its stdout did
_STEP = 0.002
_SIGKILL = 9  # importing `signal` takes longer than most looks
Run = Callable[[str], int]
Load = Callable[[Sequence[str]], None]


class _Request:
    """The process of one request, and our ends of its pipes; a pipe that is closed is -1."""

    def __init__(self, number: int, pid: int, pipes: tuple[int, int, int]) -> None:
        self.number = number
        self.pid = pid
        self.stdin, self.stdout, self.stderr = pipes
        self.waiting = bytearray()  # for its stdin
        self.at_end = False  # nothing more will come for it
        self.taken = 0  # bytes of its stdin that the caller was not told of
        self.room = WINDOW  # bytes of its stdout that the caller will take
        self.said = bytearray()  # on stderr
        self.killed_at = float("inf")  # when that is due
        self.silent_at = float("inf")  # when its stdout was at its end

    def fds(self) -> list[int]:
        """Those that are open."""
        return [fd for fd in (self.stdin, self.stdout, self.stderr) if fd >= 0]

    def close(self, name: str) -> None:
        """Close one of the pipes; fine when it is closed."""
        fd = getattr(self, name)
        if fd >= 0:
            setattr(self, name, -1)
            os.close(fd)


class Server:
    """The agent that forks. `run` carries out a verb in the new process and returns its exit code; `load` imports what
    a verb will need, and raises nothing.
    """

    def __init__(self, run: Run, load: Load, patience: float | None) -> None:
        self._run = run
        self._load = load
        self._patience = patience  # seconds without a byte of the caller: then it is gone, though it closed nothing
        self._requests: dict[int, _Request] = {}
        self._frames = Frames()
        self._sending = bytearray()
        self._heard = time.monotonic()
        self._open = True  # our stdin
        self._listened_to = True  # our stdout

    def serve(self, begun: bytes = b"") -> None:
        """Until stdin is at its end and all requests have ended. `begun`: what was read of stdin already."""
        os.set_blocking(1, False)
        self._send(SELF, "ready")
        self._take(begun)
        while self._open or self._requests:
            self._turn()
        self._flush()

    # -- one turn ------------------------------------------------------------------------------------------------

    def _turn(self) -> None:
        poll = select.poll()
        if self._open:
            poll.register(0, select.POLLIN)
        if self._sending:
            poll.register(1, select.POLLOUT)
        for request in self._requests.values():
            if request.stdin >= 0 and request.waiting:
                poll.register(request.stdin, select.POLLOUT)
            if request.stdout >= 0 and request.room > 0 and len(self._sending) < _FULL:
                poll.register(request.stdout, select.POLLIN)
            if request.stderr >= 0:
                poll.register(request.stderr, select.POLLIN)
        self._pass_on({fd for fd, _ in poll.poll(self._wait() * 1000)})

    def _pass_on(self, ready: set[int]) -> None:
        if 1 in ready:
            self._flush()
        for request in tuple(self._requests.values()):
            self._serve(request, ready)
        if 0 in ready:
            self._listen()
        if self._open and self._patience and time.monotonic() - self._heard > self._patience:
            self._caller_is_gone()

    def _wait(self) -> float:
        """Seconds until something is due though no pipe has anything."""
        now = time.monotonic()
        due = [request.killed_at - now for request in self._requests.values() if request.killed_at < float("inf")]
        if any(request.silent_at < float("inf") for request in self._requests.values()):
            due.append(_STEP)
        if self._open and self._patience:
            due.append(self._heard + self._patience - now + _STEP)
        return max(0.0, min((*due, 3600.0)))

    def _serve(self, request: _Request, ready: set[int]) -> None:
        if request.stdin in ready:
            self._write(request)
        if request.stderr in ready:
            self._hear(request)
        if request.stdout in ready:
            data = _read(request.stdout, min(PIECE, request.room))
            if data:
                request.room -= len(data)
                self._send(request.number, "out", data)
            else:
                request.close("stdout")
                request.silent_at = time.monotonic()
        now = time.monotonic()
        if now > request.killed_at:
            _kill(request.pid)
            request.killed_at = float("inf")
            request.silent_at = min(request.silent_at, now + _EXIT)  # what left its group may hold its stdout
        if now >= request.silent_at:
            self._reap(request, gone=now > request.silent_at + _EXIT)

    def _reap(self, request: _Request, *, gone: bool) -> None:
        """Tell of its end, if it has ended; or, `gone`, that it says no more: one that waits for a disk that hangs has
        closed its stdout, and can be ended by nobody.
        """
        try:
            pid, status = os.waitpid(request.pid, os.WNOHANG)
        except ChildProcessError:  # whoever started us ignores SIGCHLD: the kernel keeps no code
            pid, status = request.pid, 0
        if not pid and not gone:
            return
        while request.stderr >= 0 and self._hear(request):
            pass
        if request.said:
            self._send(request.number, "err", bytes(request.said[-PIECE:]))
        self._send(request.number, "exit", str(os.waitstatus_to_exitcode(status) if pid else -1))
        for name in ("stdin", "stdout", "stderr"):
            request.close(name)
        del self._requests[request.number]

    # -- what the caller says --------------------------------------------------------------------------------------

    def _listen(self) -> None:
        data = _read(0, 4 * PIECE)
        if data is None:
            return
        if not data:
            self._caller_is_gone()
            return
        self._heard = time.monotonic()
        self._take(data)

    def _take(self, data: bytes) -> None:
        for one in self._frames.feed(data):
            request = self._requests.get(one.number)
            if one.word == "run" and one.number != SELF:
                self._begin(one)
            elif one.word == "load":
                self._load(one.data.decode().split())
            elif request is not None:
                self._told(request, one)

    def _told(self, request: _Request, said: Frame) -> None:
        if said.word == "in":
            request.waiting += said.data
            self._write(request)
        elif said.word == "end":
            request.at_end = True
            self._write(request)
        elif said.word == "took":
            request.room += int(said.data)
        elif said.word == "stop":
            self._stop(request, float(said.data or GRACE))

    def _begin(self, asked: Frame) -> None:
        """Fork the process of a request."""
        words = asked.data.decode(errors="replace").split() or [""]
        self._load(words)
        pipes: list[int] = []
        try:
            for _ in range(3):
                pipes += os.pipe()
            pid = os.fork()
        except OSError as error:
            for fd in pipes:
                os.close(fd)
            self._send(asked.number, "err", f"no process for it: {error.strerror}")
            self._send(asked.number, "exit", "1")
            return
        theirs, ours = (pipes[0], pipes[3], pipes[5]), (pipes[1], pipes[2], pipes[4])
        if pid == 0:
            self._become(words[0], theirs, ours)
        for fd in theirs:
            os.close(fd)
        for fd in ours:
            os.set_blocking(fd, False)
        with suppress(OSError):
            os.setpgid(pid, pid)  # as the new process does, whoever is first
        self._requests[asked.number] = _Request(asked.number, pid, ours)

    def _become(self, verb: str, theirs: tuple[int, int, int], ours: tuple[int, int, int]) -> None:
        """In the new process: be an agent that was started with this verb alone."""
        code = 1
        try:
            os.setpgid(0, 0)
            for number, fd in enumerate(theirs):
                os.dup2(fd, number)
            # a pipe that another request's process holds as well would not end with us
            for fd in (*theirs, *ours, *(fd for request in self._requests.values() for fd in request.fds())):
                os.close(fd)
            _called(f"agent {verb}")
            gc.freeze()  # what is shared with the process that forked would be copied to be looked at
            gc.enable()
            code = self._run(verb)
        except BaseException as error:  # noqa: BLE001 - nothing may return into the loop of the process that forked
            if isinstance(error, ModuleNotFoundError) and str(error.name).startswith("sparkbuild."):
                code = GONE
            sys.excepthook(type(error), error, error.__traceback__)
        finally:
            os._exit(code)

    # -- pipes -----------------------------------------------------------------------------------------------------

    def _write(self, request: _Request) -> None:
        """Give it what it takes now of its stdin, and tell the caller."""
        if request.stdin >= 0 and request.waiting:
            try:
                size = os.write(request.stdin, request.waiting)
            except BlockingIOError:
                return
            except BrokenPipeError:
                size = len(request.waiting)
                request.close("stdin")
            del request.waiting[:size]
            request.taken += size
        elif request.stdin < 0:  # it reads no more: its end says why
            request.taken += len(request.waiting)
            request.waiting.clear()
        if request.taken and (request.taken >= WINDOW // 4 or not request.waiting):
            self._send(request.number, "took", str(request.taken))
            request.taken = 0
        if request.at_end and not request.waiting:
            request.close("stdin")

    def _hear(self, request: _Request) -> bool:
        data = _read(request.stderr, PIECE)
        if data is None:
            return False
        if not data:
            request.close("stderr")
        request.said += data
        del request.said[:-_STDERR]
        return bool(data)

    def _send(self, number: int, word: str, data: bytes | str = b"") -> None:
        if self._listened_to:
            self._sending += frame(number, word, data)
            self._flush()

    def _flush(self) -> None:
        try:
            while self._sending:
                del self._sending[: os.write(1, self._sending)]
        except BlockingIOError:
            return
        except OSError:
            self._listened_to = False
            self._sending.clear()
            self._caller_is_gone()

    def _stop(self, request: _Request, grace: float) -> None:
        """A verb ends when its stdin does, behind what was sent of it; one that does not is killed."""
        request.at_end = True
        self._write(request)
        request.killed_at = min(request.killed_at, time.monotonic() + grace)
        request.room = 1 << 62  # nobody reads it any more

    def _caller_is_gone(self) -> None:
        self._open = False
        for request in self._requests.values():
            self._stop(request, GRACE)


def _called(name: str) -> None:
    """What `ps` shows of this process, beside a command line that is the same for all."""
    with suppress(OSError), open("/proc/self/comm", "w", encoding="utf-8") as file:
        file.write(name[:15])


def _read(fd: int, size: int) -> bytes | None:
    """None when there is nothing now."""
    try:
        return os.read(fd, size)
    except BlockingIOError:
        return None


def _kill(pid: int) -> None:
    for end in (os.killpg, os.kill):
        try:
            end(pid, _SIGKILL)
        except OSError:
            continue


def run(line: bytes, carry_out: Run, load: Load) -> int:
    """Serve until the caller is gone. `line`: what was read of stdin, b"" for nothing; its first line is {"patience"?:
    seconds without a sign of the caller, until it counts as gone}.
    """
    while b"\n" not in line:
        block = os.read(0, PIECE)
        if not block:
            return 0
        line += block
    first, _, begun = line.partition(b"\n")
    Server(carry_out, load, json.loads(first).get("patience")).serve(begun)
    return 0
