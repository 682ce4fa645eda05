"""Stopping well: SIGINT, SIGTERM and SIGHUP end the children, save the state, and exit 128 + their number, quietly."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any


class Interrupted(SystemExit):
    """The run was told to stop; the exit code is 128 + the signal's number. `again`: it had been told so before, and
    cleaning up is not waited for.
    """

    again = False


class Cancel:
    """Says "stop" to every thread. Loops that wait must wait on it, so that nothing outlives a ctrl-C by long."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self._signal = 0
        self._active: list[str] = []
        self.cut: list[str] = []
        self.ended: list[str] = []
        self._idle = threading.Condition()
        self._on_stop: list[Callable[[], None]] = []
        self._held = 0

    @property
    def stopped(self) -> bool:
        """True once a signal came."""
        return self._event.is_set()

    @property
    def is_held(self) -> bool:
        """True inside `held`."""
        return self._held > 0

    def check(self) -> None:
        """Raise Interrupted when the run was told to stop."""
        if self._event.is_set():
            raise Interrupted(128 + self._signal)

    def wait(self, seconds: float) -> None:
        """Sleep, but wake and raise Interrupted at once when the run is told to stop."""
        self._event.wait(seconds)
        self.check()

    def stop(self, signum: int) -> None:
        """Tell everyone to stop and end what was registered (child processes)."""
        self._signal = signum
        self._event.set()
        for callback in list(self._on_stop):
            callback()

    def on_stop(self, callback: Callable[[], None]) -> None:
        """Call `callback` when the run is told to stop; from the signal handler, so it must not block."""
        self._on_stop.append(callback)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold the exception back in the main thread: what must not be torn apart (starting a process and noting it)
        ends first. The caller looks at `stopped` afterwards.
        """
        step = int(threading.current_thread() is threading.main_thread())
        self._held += step
        try:
            yield
        finally:
            self._held -= step

    @contextmanager
    def working(self, name: str) -> Iterator[None]:
        """Mark a thread as being inside a step; `drain` waits for these to clean up. What a second signal tears out of
        one is in `cut` afterwards, what any signal ended in `ended`.
        """
        with self._idle:
            self._active.append(name)
        try:
            yield
        except Interrupted as stop:
            self.ended.append(name)
            self.cut += [name] if stop.again else []
            raise
        finally:
            with self._idle:
                self._active.remove(name)
                self._idle.notify_all()

    @property
    def at_work(self) -> tuple[str, ...]:
        """The steps that threads are inside of."""
        with self._idle:
            return tuple(self._active)

    def drain(self, seconds: float) -> bool:
        """Wait until no step is at work any more; False when some still is after `seconds`."""
        with self._idle:
            return self._idle.wait_for(lambda: not self._active, timeout=seconds)


cancel = Cancel()

_NUDGES = (0.05, 0.2, 0.5)  # seconds before each
_ECHO = 0.25  # seconds within which the same signal is the same ctrl-C; nobody presses it twice as fast


@contextmanager
def handling(target: Cancel = cancel) -> Iterator[None]:
    """Turn SIGINT, SIGTERM and SIGHUP (a terminal that was closed) into Interrupted in the main thread for the duration
    of a run. A SIGHUP that is ignored already stays so: that is what nohup is for.

    One ctrl-C may come twice: the terminal sends it to all of the foreground group, and so does `timeout`, a script or
    another wrapper in that group that hands it on. The echo is no second one, which would cut the cleaning short.
    """
    came: dict[int, float] = {}

    def handler(signum: int, _frame: FrameType | None) -> None:
        now = time.monotonic()
        if now - came.get(signum, -_ECHO) < _ECHO:
            return
        came[signum] = now
        stop = Interrupted(128 + signum)
        stop.again = target.stopped
        if not target.stopped:
            target.stop(signum)
        if not target.is_held:  # a second ctrl-C comes through as well: the user means it
            raise stop

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    caught = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}
    if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN:
        caught.remove(signal.SIGHUP)
    before: dict[int, Any] = {number: signal.signal(number, handler) for number in caught}
    try:
        with _noticed():
            yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)


@contextmanager
def _noticed() -> Iterator[None]:
    """Have the main thread look at a signal that came just before it began to wait for something.

    Python runs handlers between two steps of the main thread. One that comes after the last look and before a wait for
    a lock is not seen before that wait ends, which may be hours. A second signal wakes the thread up: one whose handler
    does nothing, sent some times, since it can be missed in the same way.
    """
    main, ended, (reader, writer) = threading.get_ident(), threading.Event(), os.pipe()

    def nudge() -> None:
        while numbers := os.read(reader, 64):
            for pause in _NUDGES if set(numbers) != {signal.SIGURG} else ():
                if ended.wait(pause):
                    return
                signal.pthread_kill(main, signal.SIGURG)

    os.set_blocking(writer, False)  # as set_wakeup_fd wants it
    old, old_fd = signal.signal(signal.SIGURG, lambda _number, _frame: None), signal.set_wakeup_fd(writer)
    watcher = threading.Thread(target=nudge, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(old_fd)
        ended.set()
        os.close(writer)
        watcher.join()
        os.close(reader)
        signal.signal(signal.SIGURG, old)
