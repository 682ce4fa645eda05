"""What all our commands share: clean errors, signals, and the facts as doit's judge of up-to-date."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from typing import Any

from doit.cmd_base import DoitCmdBase
from doit.control import TaskControl
from doit.exceptions import InvalidCommand

from sparkbuild.core.errors import SparkbuildError
from sparkbuild.core.goal import Goal
from sparkbuild.core.interrupt import handling
from sparkbuild.plugin.dependencies import Dependencies, goal_of
from sparkbuild.plugin.session import Session, current


class FactCommand(DoitCmdBase):  # type: ignore[misc]
    """Mixed in before a doit command. In a folder that is no workspace of ours, doit's own behaviour is left alone."""

    execute_tasks = False

    def execute(self, params: Any, args: Any) -> Any:
        """See doit; every error that a user can cause is one message, never a traceback."""
        with handling():
            try:
                self.loader.setup(params)
                params.update_defaults(self.loader.load_doit_config())
                if params["backend"] == "sparkbuild":
                    self.dep_manager = Dependencies(
                        self._backends.get("sparkbuild"),
                        params["dep_file"],
                        checker_cls=self.get_checker_cls(params["check_file_uptodate"]),
                        codec_cls=self.get_codec_cls(params["codec_cls"]),
                    )
                return super().execute(params, args)
            except SparkbuildError as error:
                raise InvalidCommand(str(error)) from error
            except BrokenPipeError:
                # `doit plan | head`: the reader has seen enough; Python would complain again at exit
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
                return 141
            finally:
                session = current()
                if session is not None:
                    session.close()

    def parse_execute(self, in_args: Any) -> Any:
        """Options may stand before or after names; doit's getopt stops at the first name. Not so for `run`, where what
        follows a task are that task's own options."""
        if not self.execute_tasks:
            import getopt  # noqa: PLC0415

            try:
                options, names = getopt.gnu_getopt(in_args, self.cmdparser.get_short(), self.cmdparser.get_long())
            except getopt.GetoptError as error:
                raise InvalidCommand(f"{error}; doit help {self.name} lists its options") from error
            in_args = [piece for pair in options for piece in pair if piece] + names
        return super().parse_execute(in_args)

    @property
    def session(self) -> Session:
        """The workspace's session; an error in a folder without one."""
        found = current()
        if found is None:
            raise SparkbuildError(
                "this dodo.py is not a sparkbuild workspace",
                wanted="from sparkbuild.plugin.tasks import *  and  DOIT_CONFIG = config()",
                next="python -m sparkbuild init DIR makes one",
            )
        return found

    def checked(self, names: Iterable[str], *, commands: bool = False) -> None:
        """Raise for a name that is no task and no target, with a suggestion, or with the reason it is missing."""
        known = {task.name for task in self.task_list} | {target for task in self.task_list for target in task.targets}
        for name in names:
            if name in known or "*" in name or name.startswith("-"):
                continue
            session = current()
            problem = session.problem_for(name) if session is not None else None
            if problem is not None:
                raise InvalidCommand(str(problem))
            raise InvalidCommand(_unknown(name, sorted(known), list(self.loader.cmd_names) if commands else []))

    def chosen(self, names: Iterable[str]) -> tuple[Goal, ...]:
        """The goals of the named tasks (all goals when none is named), groups taken apart."""
        names = list(names)
        self.checked(names)
        tasks = {task.name: task for task in self.task_list}
        if not names:
            return tuple(goal for task in self.task_list if (goal := goal_of(task)) is not None)
        control = TaskControl(self.task_list)
        control.process(names)
        found: dict[str, Goal] = {}
        waiting = list(control.selected_tasks)
        while waiting:
            task = tasks[waiting.pop(0)]
            goal = goal_of(task)
            if goal is not None:
                found[goal.task] = goal
            elif not task.actions:
                waiting = list(task.task_dep) + waiting
        return tuple(found.values())

    def tell_problems(self) -> int:
        """Print what is wrong with parts of the workspace; the number of problems."""
        problems = self.session.goals.problems
        for error in problems.values():
            sys.stderr.write(f"ERROR: {error}\n")
        return len(problems)


def _unknown(name: str, tasks: list[str], commands: list[str]) -> str:
    import difflib  # noqa: PLC0415 - only after a typing error

    close = difflib.get_close_matches(name, tasks + commands, n=3, cutoff=0.6)
    if not close and ":" not in name:
        close = [task for task in tasks if task.endswith(f":{name}")][:3]
    lines = [f"there is no task {name!r}"]
    if close:
        lines.append(f"  did you mean: {', '.join(close)}?")
    lines.append("  next:   doit list")
    return "\n".join(lines)
