"""What a run tells: for each task what was done, why, how long it took, and where its log is."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Any

from doit.exceptions import UnmetDependency

from sparkbuild.app.opened import Opened
from sparkbuild.app.spoken import spoken
from sparkbuild.core import units
from sparkbuild.core.goal import DOWNLOADS
from sparkbuild.core.plan import UNKNOWN
from sparkbuild.core.screen import complain
from sparkbuild.plugin.adapters.action import Unsure
from sparkbuild.plugin.adapters.dependencies import goal_of
from sparkbuild.plugin.adapters.goalaction import came_with
from sparkbuild.plugin.adapters.progress import Display, display


class Reporter:
    """doit reporter `sparkbuild`. `opened` is the workspace of the run; None where doit itself made the reporter."""

    opened: Opened | None = None
    desc = "what was done, why, how long, and where its log is"

    def __init__(self, outstream: Any, options: Any) -> None:
        del options
        self.outstream = outstream
        self.display: Display = display(outstream)
        self._started: dict[str, float] = {}
        self._counts = {"made": 0, "up to date": 0, "failed": 0, "not tried": 0, "unknown": 0}
        self._errors: list[str] = []
        self._told: set[str] = set()
        self._pending: set[str] = set()  # tasks of which nothing was said yet
        self._begin = time.monotonic()
        self.interrupted: dict[str, str] = {}  # task, what is left of it

    def initialize(self, tasks: Any, selected_tasks: Any) -> None:
        """Before the first task."""
        self._pending = _below(tasks, selected_tasks)
        if self.opened is not None:
            self.opened.work.display = self.display

    def get_status(self, task: Any) -> None:
        """A task is looked at."""

    def execute_task(self, task: Any) -> None:
        """A task's actions start."""
        if not task.actions or task.name.startswith("_"):
            return
        self._started[task.name] = time.monotonic()
        self.display.line(f"run   {task.name}{self._why(task)}")

    def add_success(self, task: Any) -> None:
        """A task's actions ended well, and that is stored."""
        if not task.actions or task.name.startswith("_"):
            return
        self.display.end(task.name)
        self._pending.discard(task.name)
        self._counts["up to date" if self._was_made(task) else "made"] += 1
        self.display.line(f"done  {task.name}  {self._cost(task)}")

    def add_failure(self, task: Any, fail: Any) -> None:
        """A task failed, or could not be tried."""
        self.display.end(task.name)
        self._pending.discard(task.name)
        if not task.actions:
            return  # a group: what failed is told of its tasks
        unsure, untried = isinstance(fail, Unsure), isinstance(fail, UnmetDependency)
        self._counts["unknown" if unsure else "not tried" if untried else "failed"] += 1
        message = getattr(fail, "message", None) or fail.get_msg()
        if untried:  # its message is nothing but their names
            message = f"not tried, since this was not made: {message}"
        message = str(message).removeprefix(f"ERROR: Task '{task.name}' checking dependencies: ")  # doit's words
        goal, opened = goal_of(task), self.opened
        if goal is not None and opened is not None and not untried:
            refused, step = opened.planned.refused.get(goal.target), opened.planned.step(goal)
            texts = [str(refused)] if refused is not None else []
            if step.state == UNKNOWN:
                texts = texts or list(dict.fromkeys(reason.text for reason in step.reasons))
            fresh = [text if text not in self._told else text.partition("\n")[0] for text in texts]
            self._told.update(texts)  # what is wrong with a node is told once, and not with each goal on it
            message = "\n".join(fresh) or message
        text = "\n      ".join(str(message).rstrip().splitlines())
        self.display.line(spoken(f"{'?' if unsure else 'FAIL':<4}  {task.name}\n      {text}{self._log(task)}"))

    def skip_uptodate(self, task: Any) -> None:
        """A task is up to date."""
        self._pending.discard(task.name)
        if not task.actions or task.name.startswith("_"):
            return
        goal = goal_of(task)
        step = self.opened.planned.step(goal) if goal and self.opened else None
        if step and step.waits:
            return  # whether it is needed is not known: the goals that would say so fail
        self._counts["up to date"] += 1
        if step and step.goal.uri.scheme in DOWNLOADS and step.unneeded:
            return  # a download of something that is complete: an image may stand on twenty
        self.display.line(f"ok    {task.name}{self._why(task, ok=True)}")

    def skip_ignore(self, task: Any) -> None:
        """A task is ignored because the user said so."""
        self._pending.discard(task.name)
        self.display.line(f"skip  {task.name}  (ignored: doit forget {task.name} ends that)")

    def cleanup_error(self, exception: Any) -> None:
        """Doit's teardown failed; ours has none, a user's dodo.py may."""
        self._errors.append(exception.get_msg())

    def runtime_error(self, msg: str) -> None:
        """Doit itself cannot go on."""
        self._errors.append(msg)

    def teardown_task(self, task: Any) -> None:
        """A teardown starts."""

    def note(self, task: Any, text: str) -> None:
        """A remark about a task at work."""
        self.display.line(f"      {task.name + ': ' if task is not None else ''}{text}")

    def complete_run(self) -> None:
        """After the last task."""
        self.display.close()
        for error in self._errors:
            complain(f"ERROR: {error}")
        if self.interrupted or self._counts["failed"] or self._counts["unknown"]:
            self._counts["not tried"] += len(self._pending - self.interrupted.keys())
        counts = [f"{count} {what}" for what, count in self._counts.items() if count]
        words = [", ".join(counts)] if counts else []
        broken = [f"{name} ({left})" if left else name for name, left in self.interrupted.items()]
        if broken:
            words.insert(0, f"interrupted in {', '.join(broken)}")
        if words:
            words.append(units.duration(time.monotonic() - self._begin))
            words += ["what was finished is kept, and the same command goes on from there"] if broken else []
            self.display.line("; ".join(words))

    def _why(self, task: Any, *, ok: bool = False) -> str:
        goal, opened = goal_of(task), self.opened
        if goal is None or opened is None:
            return ""
        step = opened.planned.step(goal)
        if ok:
            text = step.verdict.told or next((reason.text for reason in step.reasons), "")
            return f"  {text}" if text and step.state == "ok" else ""
        texts = ["because it was asked for"] if step.state == "ok" else [reason.because for reason in step.reasons]
        return spoken("".join(f"\n      {text}" for text in texts))

    def _was_made(self, task: Any) -> bool:
        """Whether there was nothing to do when its turn came."""
        goal, opened = goal_of(task), self.opened
        if goal is None or opened is None or opened.work.force or task.result:
            return False  # a launch that is not waited for has a result
        return goal.target not in opened.work.made

    def _cost(self, task: Any) -> str:
        seconds = time.monotonic() - self._started.pop(task.name, time.monotonic())
        goal, opened = goal_of(task), self.opened
        text = units.duration(seconds)
        if goal is not None and opened is not None:
            cost = opened.work.made.get(goal.target)
            if cost is None:
                if self._was_made(task):
                    giver = came_with(goal, opened.work.made)
                    text += f", nothing to do: {f'it came with {giver}' if giver else 'another run had made it'}"
            elif cost.bytes:
                text += f", {units.size(cost.bytes)}"
        if isinstance(task.result, str) and task.result:
            text += f"\n      {task.result}" if goal is not None else f"  {task.result}"
        return text + self._log(task)

    def _log(self, task: Any) -> str:
        if self.opened is None:
            return ""
        log = self.opened.work.runlog.task_log(task.name)
        if not log.exists():
            return ""
        return f"\n      log: {self.opened.catalog.relative(log)}"


def _below(tasks: Mapping[str, Any], selected: Iterable[str]) -> set[str]:
    """The names of the selected tasks and of all they stand on, those that do something."""
    names: set[str] = set()
    waiting = list(selected)
    while waiting:
        name = waiting.pop()
        if name not in names and name in tasks:
            names.add(name)
            waiting += tasks[name].task_dep
    return {name for name in names if tasks[name].actions and not name.startswith("_")}
