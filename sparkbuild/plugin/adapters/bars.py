"""The bars of rich, which is loaded with this module."""

from __future__ import annotations

from typing import IO

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn
from rich.table import Column
from rich.text import Text


class Bars(Progress):
    """A bar for each task, and lines above them."""

    def line(self, text: str) -> None:
        """A line, whose only markup are the escapes that it has."""
        self.console.print(Text.from_ansi(text), emoji=False, highlight=False, soft_wrap=True)


def started(stream: IO[str]) -> Bars:
    """No bars yet, on a terminal."""
    columns = (
        SpinnerColumn(),
        # in 80 columns the words give way, not the bar: without its own column rich shrinks the bar to nothing
        TextColumn("{task.description}", markup=False, table_column=Column(ratio=1, no_wrap=True)),
        BarColumn(20),
        TextColumn("{task.fields[amount]}", markup=False, table_column=Column(no_wrap=True)),
    )
    console = Console(file=stream, highlight=False, emoji=False)
    bars = Bars(*columns, console=console, transient=True, redirect_stdout=False, redirect_stderr=False, expand=True)
    bars.start()
    return bars
