"""doit's runners, with a lock per task held until its success is stored, and an orderly stop."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from typing import Any

from doit.exceptions import DependencyError, UnmetDependency
from doit.runner import ERROR, FAILURE, MThreadRunner, Runner

from sparkbuild.app.opened import Opened
from sparkbuild.core.errors import StateError
from sparkbuild.core.interrupt import Interrupted, cancel
from sparkbuild.core.locks import TaskLock
from sparkbuild.core.writable import spared
from sparkbuild.plugin.adapters.dependencies import goal_of, needs_workspace

DRAIN = 30.0  # seconds that steps get to clean up after a signal

SYSTEM_REFUSED = 3  # the exit code where the disk of the workspace is in the way


class _Orderly:
    """Mixed into a doit runner."""

    opened: Opened
    dep_manager: Any
    reporter: Any
    always_execute: bool
    final_result: int

    def execute_task(self, task: Any) -> Any:
        """Run a task's actions under its lock; a task that another run made meanwhile is not made again."""
        if not task.actions:
            return super().execute_task(task)  # type: ignore[misc]
        self.opened.work.force = self.always_execute
        lock = TaskLock(self.opened.work.locks, task.name)
        with cancel.working(task.name):
            waited = False
            with spared(lambda text: self._note(task, text), needed=needs_workspace(task)):
                waited = lock.acquire(lambda who: self._note(task, f"waits: {who} is at it already"))
                self._locks()[task.name] = lock
            try:
                goal = goal_of(task)
                if waited and goal is not None:
                    self.opened.planned.waited_for(goal)
                elif waited and not self.always_execute and self._made(task):
                    self._note(task, "was made by another run meanwhile")
                    return None
                task.meta = {**(task.meta or {}), "sealed": self.dep_manager.seal(task)}
                return super().execute_task(task)  # type: ignore[misc]
            except BaseException:
                self._release(task)
                raise

    def process_task_result(self, node: Any, base_fail: Any) -> None:
        """Store the result, then let go of the lock."""
        try:
            super().process_task_result(node, base_fail)  # type: ignore[misc]
        except StateError as error:  # its work is done; that it was is what could not be noted
            if not node.task.actions:
                return  # a group: nothing was done, and its members have told of themselves
            self.final_result = self.final_result or SYSTEM_REFUSED
            told = "\n".join(f"      {line}" for line in str(error).splitlines())
            self._note(node.task, f"ERROR: what became of it could not be noted; its work is done\n{told}")
        finally:
            self._release(node.task)

    def _handle_task_error(self, node: Any, base_fail: Any) -> None:
        """A failure that brings an exit code of its own has it, unless something else failed as well. What could not be
        looked at failed; what was not tried for that adds nothing. doit calls both an error, as if of its own.
        """
        before = self.final_result
        super()._handle_task_error(node, base_fail)  # type: ignore[misc]
        code = int(getattr(base_fail, "code", 0))
        if code and before in {0, code}:
            self.final_result = code
        elif isinstance(base_fail, UnmetDependency):
            self.final_result = before or FAILURE
        elif isinstance(base_fail, DependencyError) and before != ERROR:
            self.final_result = FAILURE

    def run_tasks(self, task_dispatcher: Any) -> None:
        """Run; when told to stop, give the steps at work time to clean up before the process ends."""
        self._tasks = task_dispatcher.tasks
        try:
            super().run_tasks(task_dispatcher)  # type: ignore[misc]
        except Interrupted as stop:
            self._end(stop)
            raise

    def _end(self, stop: Interrupted) -> None:
        """Let what is at work clean up, and tell what became of it; a second signal ends that at once."""
        work = self.opened.work
        left: tuple[str, ...] = tuple(cancel.cut)
        began = dict.fromkeys((*cancel.ended, *cancel.at_work))
        try:
            work.runlog.write("interrupted", code=stop.code)
            if not stop.again:
                self._note(None, "interrupted: ending what is at work; what was finished is kept")
                if not cancel.drain(DRAIN):
                    self._note(None, f"some steps did not stop within {DRAIN:.0f} s")
        except Interrupted as again:
            stop.code = again.code
        left = tuple(dict.fromkeys((*cancel.cut, *left, *cancel.at_work)))
        broken = self._broken(began)
        for name, text in work.told:
            if name in broken and "\n" not in text:
                broken[name] = text
            else:
                self._note(None, f"{name}: {text}")
        self.reporter.interrupted = broken  # said at the very end; another reporter than ours does not look
        for name in left:
            basename, _, rest = name.partition(":")
            next_ = f"doit status, doit stop:{rest}" if basename == "serve" else "run it again"
            self._note(None, f"{name} was at work and was not cleaned up: {next_}")

    def _broken(self, names: Iterable[str]) -> dict[str, str]:
        """Of the steps that were at work, those that a signal ended; what is left of them is still to be said."""
        made = self.opened.work.made
        goals = {name: goal_of(self._tasks[name]) for name in names if name in self._tasks}
        return {name: "" for name, goal in goals.items() if goal is None or goal.target not in made}

    def _made(self, task: Any) -> bool:
        self.dep_manager.backend.reload(task.name)
        made = self.dep_manager.get_status(task, self._tasks).status == "up-to-date"
        if made:
            task.values = self.dep_manager.get_values(task.name)
        return bool(made)

    def _locks(self) -> dict[str, TaskLock]:
        held: dict[str, TaskLock] = self.__dict__.setdefault("_held", {})
        return held

    def _release(self, task: Any) -> None:
        lock = self._locks().pop(task.name, None)
        if lock is not None:
            lock.release()

    def _note(self, task: Any, text: str) -> None:
        note = getattr(self.reporter, "note", None)
        if note is not None:
            try:
                note(task, text)
            except OSError:  # the terminal was closed: that must hold up no cleaning, nor complain at exit
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class OrderlyRunner(_Orderly, Runner):  # type: ignore[misc]
    """One task at a time, in the main thread."""


class OrderlyThreadRunner(_Orderly, MThreadRunner):  # type: ignore[misc]
    """Several tasks at once, in threads. Processes would need picklable tasks and outlive a SIGTERM."""


def runner(opened: Opened, args: list[Any], threads: int) -> Any:
    """The runner for a run: serial for 0 threads."""
    made = OrderlyThreadRunner(*args, threads) if threads else OrderlyRunner(*args)
    made.opened = opened
    return made
