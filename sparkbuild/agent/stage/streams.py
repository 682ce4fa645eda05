"""What the copies of one call share: a bounded lot of buffers, a limit of bytes per second, and the first error.

Several files are copied at once, since one stream does not fill a NAS. All of them together have at most 8 buffers of
4 MiB, whatever the number of streams: the agent has to stay under 64 MiB. A big file takes 2 to 4 of them, so at most
four big ones are under way; small files are done in the 256 KiB that each stream has of its own.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import copy_context
from typing import Any, TypeVar

from sparkbuild.agent.ledger.digest import CHUNK
from sparkbuild.agent.source.source import Source
from sparkbuild.agent.wire.protocol import Reporter

SMALL = 256 << 10  # bytes
MOST = 16  # streams
_BUFFERS, _EACH = 8, 4  # more than 4 for one file gain nothing
_T = TypeVar("_T")


class Stopped(Exception):  # noqa: N818 - not an error: another stream had it
    """Another stream failed: this one ends as well, and keeps what it has."""


class Buffers:
    """At most 8 buffers of 4 MiB, made when first needed."""

    def __init__(self, streams: int) -> None:
        self._share = max(2, min(_EACH, _BUFFERS // max(1, streams)))
        self._free: list[memoryview] = []
        self._left = _BUFFERS
        self._change = threading.Condition()

    @contextmanager
    def some(self, chunks: int, size: int) -> Iterator[list[memoryview]]:
        """Buffers for a file of so many chunks and bytes; waits for other files when there are too few."""
        wanted = min(chunks, self._share)
        with self._change:
            self._change.wait_for(lambda: len(self._free) + self._left >= wanted)
            missing = max(0, wanted - len(self._free))
            self._left -= missing
            taken = [self._free.pop() for _ in range(wanted - missing)]
        new = [memoryview(bytearray(min(CHUNK, size))) for _ in range(missing)]
        try:
            yield taken + new
        finally:
            with self._change:
                for buffer in taken + new:
                    if len(buffer) == CHUNK:
                        self._free.append(buffer)
                    else:
                        self._left += 1
                self._change.notify_all()


class Counter:
    """Bytes that passed in one phase, of `total` as far as was known beforehand; told from several threads."""

    def __init__(self, reporter: Reporter, phase: str, total: int | None) -> None:
        self._reporter, self._phase, self._total = reporter, phase, total
        self._guard, self._done = threading.Lock(), 0

    def moved(self, size: int) -> None:
        """So many bytes passed."""
        with self._guard:
            self._done += size
            total = None if self._total is None else max(self._total, self._done)
            self._reporter.progress(self._phase, self._done, total)


class Meter:
    """Counts what comes from sources and from peers, and holds the former to so many bytes per second (0: no limit)."""

    def __init__(self, limit: int, stop: threading.Event) -> None:
        self.read = self.received = 0
        self.tick: Callable[[int], None] = lambda _size: None  # told while the limit holds things up
        self._limit, self._stop = limit, stop
        self._guard, self._paid = threading.Lock(), time.monotonic()

    def took(self, read: int, received: int) -> None:
        """So many bytes came. Waits until the limit allows for them."""
        with self._guard:
            self.read += read
            self.received += received
            if not self._limit or not read:
                return
            self._paid = max(self._paid, time.monotonic()) + read / self._limit
            pause = self._paid - time.monotonic()
        self._stop.wait(max(0.0, pause))
        self.tick(0)

    def halt(self) -> None:
        """Raise Stopped when another stream failed."""
        if self._stop.is_set():
            raise Stopped

    @property
    def step(self) -> int:
        """Bytes to read at once, so that a slow limit does not make bursts and pauses of seconds."""
        return max(64 << 10, self._limit // 8) if self._limit else CHUNK


class Metered:
    """A source whose bytes are counted; see Source. `received` of the source are those that came from a peer."""

    def __init__(self, source: Source, meter: Meter) -> None:
        self.path, self.size = source.path, source.size
        self.inner, self._meter = source, meter

    def read(self, view: memoryview, offset: int) -> int:
        """Fill `view` from `offset`."""
        done, step = 0, self._meter.step
        while done < len(view):
            before = self._received()
            with view[done : done + step] as piece:
                got = self.inner.read(piece, offset + done)
                short = got < len(piece)
            received = min(got, self._received() - before)
            self._meter.took(got - received, received)
            done += got
            if short:
                break
        return done

    def check(self) -> None:
        """Of the source."""
        self.inner.check()

    def close(self) -> None:
        """Of the source."""
        self.inner.close()

    def _received(self) -> int:
        return int(getattr(self.inner, "received", 0))


def each(streams: int, items: Sequence[_T], work: Callable[[_T, memoryview], Any], stop: threading.Event) -> list[Any]:
    """`work(item, small buffer)` for every item in so many threads (none at all for one); the results in order.

    The first error is raised when all threads have ended; `stop` tells the others of it.
    """
    done: list[Any] = [None] * len(items)
    left = iter(range(len(items)))
    errors: list[BaseException] = []
    guard = threading.Lock()

    def run() -> None:
        small = memoryview(bytearray(SMALL))
        while not stop.is_set():
            with guard:
                index = next(left, None)
            if index is None:
                return
            try:
                done[index] = work(items[index], small)
            except Stopped:
                return
            except BaseException as error:  # noqa: BLE001 - raised again in the thread that called
                errors.append(error)
                stop.set()

    more = range(min(streams, len(items)) - 1)
    threads = [threading.Thread(target=copy_context().run, args=(run,), daemon=True) for _ in more]
    for thread in threads:
        thread.start()
    run()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return done
