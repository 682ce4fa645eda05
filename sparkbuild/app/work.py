"""What this run does: what bounds it, where it is shown and logged, and what it has made."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple, Protocol

from sparkbuild.core import STATE
from sparkbuild.core.pools import Pools
from sparkbuild.core.run import Progress, Run
from sparkbuild.core.runlog import RunLog
from sparkbuild.core.state import StateStore
from sparkbuild.nodes.cluster import Nodes

STATE_FILE = f"{STATE}/state.db"


class Display(Protocol):
    """Where progress is shown."""

    def update(self, task: str, progress: Progress) -> None:
        """Show how far a task is."""


class Cost(NamedTuple):
    """What making a goal took: seconds, and bytes that were moved or written."""

    seconds: float
    bytes: int


class Work:
    """`force`: goals are made though they look right. `display` is where progress goes, None: nowhere. `told`: tasks,
    and what became of them, said should the run be interrupted. `made`: by target, what making it took.
    """

    def __init__(self, root: Path, nodes: Nodes, pools: Pools, state: StateStore) -> None:
        self.root = root
        self.pools = pools
        self.state = state
        self.runlog = RunLog(root / STATE / "runs")
        self.locks = root / STATE / "locks"
        self.force = False
        self.display: Display | None = None
        self.told: list[tuple[str, str]] = []
        self.made: dict[str, Cost] = {}
        self._nodes = nodes

    def run(self, task: str, *, force: bool = False, options: Mapping[str, object] | None = None) -> Run:
        """What a step of a task is given. `options` are the task's, `force` beyond that of the whole run."""
        return Run(
            root=self.root,
            log=self.runlog.task_log(task),
            agent=self._nodes.agent,
            report=lambda progress: self._report(task, progress),
            tell=lambda text: self.told.append((task, text)),
            force=self.force or force,
            options=options,
        )

    def _report(self, task: str, progress: Progress) -> None:
        if self.display is not None:
            with contextlib.suppress(OSError):  # a terminal that was closed ends no step
                self.display.update(task, progress)
