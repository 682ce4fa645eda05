"""A run of doit in a workspace: what is selected, what of it is refused beforehand, and the runner over the rest."""

from __future__ import annotations

import contextlib
import fnmatch
import gc
from typing import Any, NamedTuple

from doit.action import PythonAction
from doit.control import TaskControl
from doit.exceptions import InvalidCommand
from doit.task import Stream

from sparkbuild.app.opened import Opened
from sparkbuild.app.silent import silent
from sparkbuild.app.space import eviction
from sparkbuild.app.spoken import spoken
from sparkbuild.core.plan import UNKNOWN, Plan
from sparkbuild.core.screen import complain
from sparkbuild.plugin.adapters.action import _Action
from sparkbuild.plugin.adapters.dependencies import goal_of
from sparkbuild.plugin.adapters.misread import HELP
from sparkbuild.plugin.adapters.options import EVICT, selection
from sparkbuild.plugin.adapters.runner import runner
from sparkbuild.plugin.commands.base import FactCommand
from sparkbuild.plugin.commands.help import of_task

# Groups that nobody means as a whole: what happens then cannot be undone.
_ONE_BY_ONE = {
    "stop": "stopping every lane at once is not offered; name the lane, as in doit stop:<recipe>",
    "repro": "building every image twice is not offered; name the image, as in doit repro:<image>",
    "lock": "name what to do with which lock, as in doit lock:check, doit lock:update <name> or doit lock:pin:<name>",
    "lock:pin": "pinning every lock at once is not offered; name the lock, as in doit lock:pin:<name>",
}


class Options(NamedTuple):
    """doit's options of `run`."""

    outfile: Any
    reporter: Any
    num_process: int
    failure_verbosity: int
    verbosity: Any
    always: bool
    goes_on: bool
    single: bool
    delayed: bool
    force_verbosity: bool
    pdb: bool


class Making:
    """One run of the command."""

    def __init__(self, command: FactCommand, opened: Opened) -> None:
        self._command, self._opened = command, opened

    def make(self, options: Options) -> int:
        """Run what is selected; the exit code."""
        command, opened = self._command, self._opened
        if (code := self._other_command()) is not None:
            return code
        gc.freeze()
        gc.enable()
        self._check_selection()
        if self._help_asked():
            return 0
        evicts = self._take_options()
        lacking = command.tell_problems(self._task_names())
        self._leave_out()
        PythonAction.pm_pdb = options.pdb
        command.control = control = TaskControl(command.task_list, auto_delayed_regex=options.delayed)
        control.process(command.sel_tasks)
        self._check_arguments(control)
        if options.single:
            for name in control.selected_tasks:
                control.tasks[name].task_dep = []
        reporter = options.reporter
        reporter_class = command.reporters[reporter] if isinstance(reporter, str) else reporter
        with contextlib.ExitStack() as open_files:
            stream = options.outfile or command.outstream  # doit kept None where stdout was closed when it was loaded
            if isinstance(options.outfile, str):
                stream = open_files.enter_context(open(options.outfile, "w", encoding="utf-8"))
            told = reporter_class(stream, {"failure_verbosity": options.failure_verbosity})
            if hasattr(told, "opened"):  # ours; another one is doit's, and asks for nothing
                told.opened = opened
            plan = opened.planned.plan(command.chosen(self._task_names()))
            self._preflight(plan, goes_on=options.goes_on)
            if evicts:
                eviction.carry_out(opened.observed, plan, lambda text: _say(told, text), opened.work.runlog)
            shown = Stream(options.verbosity, options.force_verbosity)
            args = [command.dep_manager, told, options.goes_on, options.always, shown]
            code = int(runner(opened, args, options.num_process).run_all(control.task_dispatcher()))
            return code or (2 if lacking else 0)

    def _other_command(self) -> int | None:
        """Run what is typed as a task and is a command: doit lets no task have a command's name. None for tasks."""
        first = str((self._command.sel_tasks or [""])[0])
        if not first.startswith(("health:", "verify:")):
            return None
        from sparkbuild.plugin.commands import health, verify  # noqa: PLC0415 - other runs need none of it

        command = self._command
        if first.startswith("health:"):
            return health.spelled_as_task(command, command.sel_tasks, command.outstream)
        return verify.spelled_as_task(command, command.sel_tasks, command.outstream)

    def _help_asked(self) -> bool:
        """Whether help is asked of a task; it is given then."""
        asked = next((name for name, options in self._selection() if HELP & options.keys()), "")
        if asked:
            self._command.outstream.write(of_task(asked, self._command.task_list))
        return bool(asked)

    def _preflight(self, plan: Plan, *, goes_on: bool) -> None:
        """What is known to fail at the end is said at the start: a launch comes after hours of building and staging.
        With `goes_on`, those goals alone fail.
        """
        planned = self._opened.planned
        errors = planned.refusals(plan)
        if goes_on:
            planned.refused = errors
            return
        tags = [error for step in plan if (error := errors.get(step.goal.target)) and step.state == UNKNOWN]
        error = next(iter(tags), None) or silent(plan) or next(iter(errors.values()), None)
        if error is not None:
            raise error

    def _check_selection(self) -> None:
        if not self._command.sel_tasks:
            raise InvalidCommand("name what to make, for example one of these:\n" + "\n".join(self._examples()))
        names = self._task_names()
        known = self._command.checked(names, commands=True)
        for name in names:
            if name in _ONE_BY_ONE or (name.partition(":")[0] in _ONE_BY_ONE and "*" in name):
                raise InvalidCommand(f"{name}: {_ONE_BY_ONE[name.partition(':')[0]]}")
            if "*" in name and not fnmatch.filter(known, name):
                raise InvalidCommand(f"no task matches {name!r}\n  next:   doit list")

    def _check_arguments(self, control: TaskControl) -> None:
        """Wrong words behind a task that takes arguments are refused before anything begins."""
        for name in control.selected_tasks:
            for action in control.tasks[name].actions:
                if isinstance(action, _Action):
                    action.check(self._opened)

    def _leave_out(self) -> None:
        """Take out of groups and patterns what is no part of them; doit makes both from the names alone."""
        goals, groups = self._opened.catalog.goals, self._opened.catalog.names.groups
        for task in self._command.task_list:
            if task.has_subtask and ":" not in task.name:
                # all goals of a group within this one are in it themselves
                task.task_dep = [name for name in task.task_dep if name not in groups and goals.is_part(name)]
        patterns = {name for name in self._task_names() if "*" in name}
        every = {task.name: [task.name] for task in self._command.task_list} | groups
        words: list[str] = []
        for word in self._command.sel_tasks:
            words += (self._command.matching(word, every) or [word]) if word in patterns else [word]
        self._command.sel_tasks = words

    def _task_names(self) -> list[str]:
        """What of the command line names tasks: not a task's options, nor what follows one that takes arguments."""
        return [name for name, _ in self._selection()]

    def _selection(self) -> list[tuple[str, dict[str, str]]]:
        """The names of the command line, each with its options (`--label`, ...) and their values."""
        own: dict[str, str] = {}  # doit's options, each as it is typed
        for one in self._command.cmdparser.options:
            value = "" if one.type is bool else " ..."
            own |= {name: name + value for name in (f"--{one.long}", f"-{one.short}") if name.strip("-")}
        return selection(self._command.sel_tasks, {task.name: task for task in self._command.task_list}, own)

    def _take_options(self) -> bool:
        """Options that act on goals below what they are said of: `--stage` of a lane, and `--evict` of what is staged,
        which doit would take for a single task only. Returns whether to evict.
        """
        evicts = False
        for name, options in self._selection():
            if "--stage" in options:
                self._opened.observed.choice.choose(self._command.chosen([name]), options["--stage"])
            evicts = evicts or EVICT in options
        if evicts:
            self._command.sel_tasks[:] = [word for word in self._command.sel_tasks if word != EVICT]
        return evicts

    def _examples(self) -> list[str]:
        lines = [f"  doit {task.name:<24} {task.doc}" for task in self._command.task_list if _is_lane(task)]
        return [*lines[:8], "  doit list                     what else can be made"]


def _say(told: Any, text: str) -> None:
    """A line among those of the reporter, or on stderr beside one that prints for programs."""
    if hasattr(told, "display"):
        told.display.line(spoken(text))
    else:
        complain(spoken(text))


def _is_lane(task: Any) -> bool:
    goal = goal_of(task)
    return goal is not None and goal.uri.scheme == "lane"
