"""Progress: bars with bytes, rate and time left on a terminal, plain lines now and then elsewhere."""

from __future__ import annotations

import threading
import time
from typing import IO, TYPE_CHECKING, Any, Protocol

from sparkbuild.agent.wire.printable import lines, one_line
from sparkbuild.core import units
from sparkbuild.core.run import Progress
from sparkbuild.core.screen import painted

if TYPE_CHECKING:
    from sparkbuild.plugin.adapters.bars import Bars

PERIOD = 5.0  # seconds between two plain lines of one task


class Display(Protocol):
    """Where progress goes."""

    def update(self, task: str, progress: Progress) -> None:
        """Show how far a task is."""

    def end(self, task: str) -> None:
        """The task is over."""

    def line(self, text: str) -> None:
        """Print a line without disturbing the bars."""

    def close(self) -> None:
        """Leave the terminal as it was."""


class PlainDisplay:
    """Lines for logs and pipes: one for each phase, then one every few seconds."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream
        self._last: dict[str, tuple[str, float]] = {}
        self._guard = threading.Lock()

    def update(self, task: str, progress: Progress) -> None:
        """See Display."""
        now = time.monotonic()
        with self._guard:
            phase, at = self._last.get(task, ("", 0.0))
            if progress.phase == phase and now - at < PERIOD:
                return
            self._last[task] = (progress.phase, now)
            self._stream.write(f"      {task}: {one_line(progress.phase)}{_amount(progress)}\n")
            self._stream.flush()

    def end(self, task: str) -> None:
        """See Display."""
        with self._guard:
            self._last.pop(task, None)

    def line(self, text: str) -> None:
        """See Display."""
        with self._guard:
            self._stream.write(lines(text) + "\n")
            self._stream.flush()

    def close(self) -> None:
        """See Display."""


class RichDisplay:
    """Bars on a terminal. rich is imported only when the first task has something to show: it costs 50 ms.

    It would read `[...]` in any text as markup, and fail of `[/INST]`: no column and no line is given as markup.
    """

    def __init__(self, stream: IO[str]) -> None:
        self._stream = getattr(stream, "raw", stream)  # of a Screen: the bars are moved by escapes of ours
        self._bars: Bars | None = None
        self._ids: dict[str, tuple[Any, str]] = {}
        self._guard = threading.RLock()

    def update(self, task: str, progress: Progress) -> None:
        """See Display."""
        with self._guard:
            bars = self._started()
            bar, phase = self._ids.get(task, (None, ""))
            if bar is None or phase != progress.phase:
                if bar is not None:
                    bars.remove_task(bar)
                bar = bars.add_task(f"{task}  {one_line(progress.phase, 100)}", total=progress.total, amount="")
                self._ids[task] = (bar, progress.phase)
            bars.update(bar, completed=progress.done, total=progress.total, amount=_amount(progress, bars.tasks, bar))

    def _started(self) -> Bars:
        if self._bars is None:
            from sparkbuild.plugin.adapters import bars  # noqa: PLC0415 - see the class

            self._bars = bars.started(self._stream)
        return self._bars

    def end(self, task: str) -> None:
        """See Display."""
        with self._guard:
            bar, _ = self._ids.pop(task, (None, ""))
            if bar is not None and self._bars is not None:
                self._bars.remove_task(bar)
            if self._bars is not None and not self._ids:
                self.close()

    def line(self, text: str) -> None:
        """See Display."""
        with self._guard:
            if self._bars is None:
                self._stream.write(painted(lines(text), self._stream) + "\n")
                self._stream.flush()
            else:
                self._bars.line(painted(lines(text), self._stream))

    def close(self) -> None:
        """See Display."""
        with self._guard:
            if self._bars is not None:
                self._bars.stop()
                self._bars = None


def display(stream: IO[str]) -> Display:
    """Bars when the stream is a terminal, lines when not."""
    isatty = getattr(stream, "isatty", None)
    return RichDisplay(stream) if isatty is not None and isatty() else PlainDisplay(stream)


def _amount(progress: Progress, tasks: Any = None, bar: Any = None) -> str:
    """How much of how much, with rate and time left where they are known."""
    if progress.unit != "B":
        return f" {progress.done}/{progress.total} {progress.unit}" if progress.total else ""
    if not progress.done and not progress.total:
        return ""
    text = f" {units.size(progress.done)}"
    if progress.total:
        text += f" of {units.size(progress.total)}"
    speed = next((task.speed for task in tasks or () if task.id == bar), None)
    if speed:
        text += f", {units.size(speed)}/s"
        if progress.total and progress.total > progress.done:
            text += f", {units.duration((progress.total - progress.done) / speed)} left"
    return text
