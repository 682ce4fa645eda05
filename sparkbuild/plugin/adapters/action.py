"""Actions: what doit and a run want of each, and running a program; with a log of its own and no use of sys.stdout.

doit's own PythonAction swaps sys.stdout for the whole process, which breaks under threads.
"""

from __future__ import annotations

import os
import sys
import time
import traceback
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from doit.action import BaseAction
from doit.exceptions import TaskError, TaskFailed

from sparkbuild.app.opened import Opened
from sparkbuild.core import child
from sparkbuild.core.errors import ChildError, SparkbuildError, StateError, UnsureError
from sparkbuild.plugin.adapters.current import opened


class Unsure(TaskFailed):  # type: ignore[misc]
    """A failure that is none yet: not all that had to be asked did answer."""

    code = 4


class _Action(BaseAction, ABC):  # type: ignore[misc]
    """What doit wants of an action, and what a run wants of ours."""

    needs_workspace = True  # False: carried out though nothing can be written to the workspace

    def __init__(self) -> None:
        self.task: Any = None
        self.out = ""
        self.err = ""
        self.result: Any = None
        self.values: dict[str, object] = {}

    def execute(self, out: Any = None, err: Any = None) -> Any:
        """Do it; a failure is returned, a stop (Interrupted) is raised."""
        del out, err
        here = opened()
        log = here.work.runlog.task_log(self.task.name)
        start = time.time()
        try:
            self.work(here, log)
        except SparkbuildError as error:
            self._failed(here, log, start, str(error))
            return Unsure(str(error)) if isinstance(error, UnsureError) else TaskFailed(str(error))
        except Exception as error:  # noqa: BLE001 - a bug of ours: the user gets one line, the log gets the rest
            text = traceback.format_exc()
            message = f"{type(error).__name__}: {error}\n  where:  {here.catalog.relative(log)} has the traceback"
            try:
                log.parent.mkdir(parents=True, exist_ok=True)
                with log.open("a", encoding="utf-8") as file:
                    file.write(text)
            except OSError as refused:
                message = f"{type(error).__name__}: {error}\n  next:   {log}: {refused.strerror}; df {here.root}"
            self._failed(here, log, start, message)
            return TaskError(message)
        return None

    def check(self, here: Opened) -> None:
        """Look at the task's arguments, before any task of the run begins; raises SparkbuildError for wrong ones. For
        an action of a task that takes some.
        """

    @abstractmethod
    def work(self, here: Opened, log: Path) -> None:
        """The action itself; raises SparkbuildError to fail."""

    def _failed(self, here: Opened, log: Path, start: float, message: str) -> None:
        seconds = round(time.time() - start, 3)
        with suppress(StateError):  # the failure itself is what is to be heard
            here.work.runlog.write(
                "failed", task=self.task.name, seconds=seconds, error=message, log=here.catalog.relative(log)
            )


class Proc(_Action):
    """Run a program: its own process group, its output in the task's log and, with `show`, on the terminal as well.

    `argv[0]` "python" means this Python. Ends with the run: SIGTERM to the group, then SIGKILL.
    """

    def __init__(self, argv: Sequence[str], *, env: Mapping[str, str] | None = None, show: bool = False) -> None:
        super().__init__()
        self.argv = [sys.executable if argv[0] == "python" else argv[0], *argv[1:]]
        self.env = dict(env or {})
        self.show = show

    def __str__(self) -> str:
        return " ".join(self.argv)

    def work(self, here: Opened, log: Path) -> None:
        """See the class."""
        start = time.time()
        env = {**os.environ, **self.env}
        extra = list(self.task.pos_arg_val or [])  # set where the task takes arguments of its own
        here.work.runlog.write("start", task=self.task.name, argv=self.argv + extra)
        if self.show and sys.stdout is sys.__stdout__:
            # straight to the terminal: a progress display of the program's own needs it to be one. A reporter that
            # took sys.stdout away (doit's json) wants it for itself.
            code = child.reap(child.spawn([*self.argv, *extra], env=env, stdout=None, stderr=None))
            if code:
                raise ChildError(f"{Path(self.argv[0]).name} ended with code {code}")
        else:
            child.run([*self.argv, *extra], log=log, env=env)
        here.work.runlog.write(
            "made", task=self.task.name, seconds=round(time.time() - start, 3), log=here.catalog.relative(log)
        )
