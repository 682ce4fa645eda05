"""What a workspace's dodo.py imports: its tasks and doit's settings."""

from __future__ import annotations

from collections.abc import Iterator

from sparkbuild.app.work import STATE_FILE
from sparkbuild.plugin.adapters.action import Proc
from sparkbuild.plugin.adapters.checker import FactChecker
from sparkbuild.plugin.adapters.current import current, opened

__all__ = ["Proc", "config", "task_sparkbuild"]


def config(**settings: object) -> dict[str, object]:
    """Doit's settings for a workspace; `settings` override single ones.

    A bare `doit` selects nothing: it would stop every lane and start every bench otherwise.
    """
    return {
        "backend": "sparkbuild",
        "dep_file": STATE_FILE,
        "check_file_uptodate": FactChecker,
        "reporter": "sparkbuild",
        "default_tasks": [],
        "num_process": 8,  # a relay feeds those nodes together whose steps are at work together
        "par_type": "thread",
        "verbosity": 0,
        **settings,
    }


def task_sparkbuild() -> Iterator[dict[str, object]]:
    """All tasks of the workspace; none for `doit list`, which prints their lines without paying for thousands."""
    if not current.listing:
        from sparkbuild.plugin.alltasks import all_tasks  # noqa: PLC0415 - `doit list` needs none of it

        yield from all_tasks(opened())
