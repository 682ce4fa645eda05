"""One running agent, from this side: any number of requests at once over one pair of pipes (agent/wire/frames.py)."""

from __future__ import annotations

import itertools
import queue
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Protocol

from sparkbuild.agent.wire.frames import PIECE, SELF, WINDOW, Frame, Frames, frame
from sparkbuild.core.errors import NodeError
from sparkbuild.core.interrupt import cancel

_POLL = 0.2  # seconds between two looks whether the run was told to stop
LONGEST = 64 << 20  # bytes of one line
Check = Callable[[], None]


def _number(text: bytes) -> int:
    return int(text) if text.removeprefix(b"-").isdigit() and len(text) < 10 else -1


class Pipes(Protocol):
    """The way to an agent, which may be used by two threads: one that sends, one that receives."""

    def send(self, data: bytes) -> bool:
        """Send all of it; False when nobody reads it any more."""

    def end_input(self) -> None:
        """Nothing more will be sent; called by the thread that sends."""

    def receive(self) -> bytes:
        """What has come, once something has; b"" when nothing will."""

    def ending(self) -> tuple[int, str]:
        """How it ended, after the last byte was received: its exit code (minus the signal; -1: not known), stderr."""

    def lost(self) -> NodeError | None:
        """Why, when that is because the way to it broke."""

    def close(self) -> None:
        """End it: its stdin closes."""


def no_check() -> None:
    """For what goes on though the run was told to stop."""


class Request:
    """One request of an agent: a process on the node, with a stdin and a stdout of its own."""

    def __init__(self, process: AgentProcess, number: int, verb: str) -> None:
        self.verb = verb
        self.code = -1  # its exit code, once `ended`
        self.said = ""  # the end of its stderr, once `ended`
        self.ended = False  # all that it said was received
        self.process = process
        self._number = number
        self._inbox: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._rest = b""
        self._used = 0  # bytes that the agent was not told of
        self._room = WINDOW  # bytes of its stdin that the agent will take
        self._owed = WINDOW  # bytes of its stdout that we will take
        self._changed = threading.Condition()
        self.over = False  # it has ended, though not all of its output is used
        self._cut = False  # with the agent, and not by itself
        self._closed = False  # its stdin

    # -- by the thread that receives -------------------------------------------------------------------------------

    def told(self, said: Frame) -> None:
        """Take a frame of it. What comes beyond the window is of no agent of ours, and dropped."""
        if said.word == "out" and len(said.data) <= self._owed:
            with self._changed:
                self._owed -= len(said.data)
            self._inbox.put(said.data)
        elif said.word == "err":
            self.said = said.data.decode(errors="replace")
        elif said.word == "took":
            with self._changed:
                self._room += _number(said.data)
                self._changed.notify_all()
        elif said.word == "exit":
            self.code = _number(said.data)
            self.end()

    def cut(self, code: int, said: str) -> None:
        """The agent has ended, and this with it."""
        self.code, self.said, self._cut = code, said, True
        self.end()

    def end(self) -> None:
        """Nothing more comes."""
        with self._changed:
            self.over = True
            self._changed.notify_all()
        self._inbox.put(None)

    # -- what it says ----------------------------------------------------------------------------------------------

    def receive(self, check: Check, size: int = PIECE) -> bytes:
        """At most so many bytes of its stdout, b"" at the end. NodeError when the way to the node broke."""
        while not self._rest and not self.ended:
            check()
            try:
                self._use(self._inbox.get(timeout=_POLL))
            except queue.Empty:
                continue
        taken, self._rest = self._rest[:size], self._rest[size:]
        if not taken:
            check()
            if self._cut:
                self.process.check()
        return taken

    def _use(self, data: bytes | None) -> None:
        if data is None:
            self.ended = True
            return
        self._rest = data
        self._used += len(data)
        if self._used >= WINDOW // 4:
            with self._changed:
                self._owed += self._used
            self.process.put(self._number, "took", str(self._used))
            self._used = 0

    def lines(self, check: Check) -> Iterator[bytes]:
        """Its output, line by line, until it ends."""
        pieces: list[bytes] = []
        size = 0
        while data := self.receive(check):
            *whole, rest = data.split(b"\n")
            for line in whole:
                yield b"".join((*pieces, line))
                pieces, size = [], 0
            if rest:
                pieces.append(rest)
                size += len(rest)
            if size > LONGEST:
                raise self.process.too_long(size)
        if pieces:
            yield b"".join(pieces)

    def line(self, check: Check) -> bytes:
        """One line, and nothing of what follows it; b"" at the end."""
        line = bytearray()
        while len(line) < LONGEST and (data := self.receive(check)):
            head, end, tail = data.partition(b"\n")
            line += head
            if end:
                self._rest = tail + self._rest
                return bytes(line) or b" "
        return bytes(line)

    # -- what it is told -------------------------------------------------------------------------------------------

    def send(self, data: bytes, check: Check) -> bool:
        """Write to its stdin; False when it does not read any more."""
        at = 0
        while at < len(data):
            with self._changed:
                while self._room <= 0 and not self.over:
                    self._changed.wait(_POLL)
                    check()
                if self.over or self._closed:
                    return False
                size = min(PIECE, self._room, len(data) - at)
                self._room -= size
            self.process.put(self._number, "in", data[at : at + size])
            at += size
        return True

    def end_input(self) -> None:
        """Nothing more will be sent."""
        if not self._closed:
            self._closed = True
            self.process.put(self._number, "end")

    def stop(self, grace: float, wait: float = 0.0) -> None:
        """End it, if it has not ended: its stdin closes, and after `grace` seconds it is killed. Its end is waited for
        for `wait` seconds.
        """
        self._closed = True
        if not self.over:
            self.process.put(self._number, "stop", str(grace))
            with self._changed:
                self._changed.wait_for(lambda: self.over, wait)
        self.process.forget(self._number)

    # -- as a channel, see ssh.stream -------------------------------------------------------------------------------

    def recv(self, size: int) -> bytes:
        """What it says, as it comes; b"" at the end, also when it was lost."""
        try:
            return self.receive(no_check, size)
        except NodeError:
            return b""

    def sendall(self, data: bytes) -> None:
        """Write to its stdin. BrokenPipeError when it does not read any more."""
        if not self.send(data, no_check):
            raise BrokenPipeError

    def shutdown_write(self) -> None:
        """Nothing more will be sent."""
        self.end_input()

    def close(self) -> None:
        """End it, without waiting for that."""
        self.stop(0.5)


class _Desk:
    """What the threads of an agent know: not the agent, which ends when nobody knows it any more."""

    def __init__(self, pipes: Pipes) -> None:
        self.pipes = pipes
        self.outbox: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self.requests: dict[int, Request] = {}
        self.guard = threading.Lock()
        self.over = threading.Event()
        self.code = -1
        self.said = ""

    def write(self, pulse: float | None) -> None:
        """Send what is put, and a line end when there is nothing for `pulse` seconds: the agent hears that we live."""
        data: bytes | None = b"\n"
        while data is not None and self.pipes.send(data):
            try:
                data = self.outbox.get(timeout=pulse)
            except queue.Empty:
                data = b"\n"
        self.pipes.end_input()

    def read(self) -> None:
        """Hand out what comes, until it ends."""
        frames = Frames()
        try:
            while data := self.pipes.receive():
                for one in frames.feed(data):
                    request = self.requests.get(one.number)
                    if request is not None:
                        request.told(one)
            self.code, self.said = self.pipes.ending()
        finally:
            # whoever waits is told, whatever happened here
            with self.guard:
                self.over.set()
                requests = tuple(self.requests.values())
            for request in requests:
                if not request.over:
                    request.cut(self.code, self.said)
            self.outbox.put(None)


class AgentProcess:
    """A running agent that takes frames. `pulse`: seconds between two signs of life to it, None where it needs none."""

    def __init__(self, node: str, pipes: Pipes, pulse: float | None = None) -> None:
        self._node = node
        self._desk = _Desk(pipes)
        self._numbers = itertools.count(SELF + 1)
        for work in ((self._desk.write, pulse), (self._desk.read,)):
            threading.Thread(target=work[0], args=work[1:], name=f"agent {node}", daemon=True).start()
        # an agent that nobody knows any more ends; nothing is waited for where garbage is collected
        weakref.finalize(self, self._desk.outbox.put, None)

    @property
    def alive(self) -> bool:
        """Whether it still takes requests, as far as is known."""
        return not self._desk.over.is_set()

    def begin(self, verb: str, *more: str) -> Request:
        """Start the process of a request. `more`: what a `facts` will look at; their modules are loaded with it."""
        with cancel.held():  # one that nobody knows of would go on
            request = Request(self, next(self._numbers), verb)
            with self._desk.guard:
                self._desk.requests[request._number] = request  # noqa: SLF001
                over = self._desk.over.is_set()
            self.put(request._number, "run", " ".join((verb, *more)))  # noqa: SLF001
            if over:
                request.cut(self._desk.code, self._desk.said)
        return request

    def load(self, *words: str) -> None:
        """Let it import what a request will need, while nobody waits for it."""
        self.put(SELF, "load", " ".join(words))

    def put(self, number: int, word: str, data: bytes | str = b"") -> None:
        """Send a frame; nobody waits for that."""
        self._desk.outbox.put(frame(number, word, data))

    def forget(self, number: int) -> None:
        """What still comes of a request is not for anybody."""
        with self._desk.guard:
            self._desk.requests.pop(number, None)

    def lost(self) -> NodeError | None:
        """Why it ended, when that is because the way to it broke."""
        return None if self.alive else self._desk.pipes.lost()

    def check(self) -> None:
        """Raise that error, if there is one."""
        error = self.lost()
        if error is not None:
            raise error

    def too_long(self, size: int) -> NodeError:
        """What comes is no line of an agent."""
        return NodeError(f"{self._node} talks without end", where=f"node {self._node}", found=f"a line of {size} bytes")

    def close(self) -> None:
        """End it, and with it all that it works on."""
        self._desk.outbox.put(None)
        self._desk.pipes.close()
