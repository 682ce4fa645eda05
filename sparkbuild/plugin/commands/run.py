"""`doit TASK...`: doit's run with threads, task locks, orderly signals and the plan as the judge."""

from __future__ import annotations

import contextlib
import fnmatch
import gc
import sys
from typing import TYPE_CHECKING, Any

from doit.action import PythonAction
from doit.cmd_run import Run as DoitRun
from doit.control import TaskControl
from doit.exceptions import InvalidCommand
from doit.task import Stream

from sparkbuild.app.silent import silent
from sparkbuild.app.spoken import spoken
from sparkbuild.core.plan import UNKNOWN, Plan
from sparkbuild.core.screen import complain
from sparkbuild.plugin.adapters.action import _Action
from sparkbuild.plugin.adapters.dependencies import goal_of
from sparkbuild.plugin.adapters.misread import HELP
from sparkbuild.plugin.adapters.options import EVICT, selection
from sparkbuild.plugin.adapters.runner import runner
from sparkbuild.plugin.commands.base import FactCommand

if TYPE_CHECKING:
    from sparkbuild.app.opened import Opened

# Groups that nobody means as a whole: what happens then cannot be undone.
_ONE_BY_ONE = {
    "stop": "stopping every lane at once is not offered; name the lane, as in doit stop:<recipe>",
    "repro": "building every image twice is not offered; name the image, as in doit repro:<image>",
    "lock": "name what to do with which lock, as in doit lock:check, doit lock:update <name> or doit lock:pin:<name>",
    "lock:pin": "pinning every lock at once is not offered; name the lock, as in doit lock:pin:<name>",
}


class Run(FactCommand, DoitRun):  # type: ignore[misc]
    """Replaces doit's `run`; where the dodo.py is no workspace, doit's own code runs unchanged."""

    name = "run"
    doc_purpose = "make tasks; `doit run TASK` is the same as `doit TASK`"
    execute_tasks = True
    asks = True
    sel_tasks: Any

    def _execute(  # noqa: PLR0917 - doit passes options by these names
        self,
        outfile: Any,
        verbosity: Any = None,
        always: bool = False,  # noqa: FBT001, FBT002
        continue_: bool = False,  # noqa: FBT001, FBT002
        reporter: Any = "console",
        num_process: int = 0,
        par_type: str = "thread",
        single: bool = False,  # noqa: FBT001, FBT002
        auto_delayed_regex: bool = False,  # noqa: FBT001, FBT002
        force_verbosity: bool = False,  # noqa: FBT001, FBT002
        failure_verbosity: int = 0,
        pdb: bool = False,  # noqa: FBT001, FBT002
    ) -> int:
        opened = self.opened_or_none
        if opened is None:
            return int(
                super()._execute(
                    outfile, verbosity, always, continue_, reporter, num_process, par_type,
                    single, auto_delayed_regex, force_verbosity, failure_verbosity, pdb,
                )
            )  # fmt: skip
        if par_type != "thread":
            raise InvalidCommand("tasks of a workspace run in threads: -P process is not offered")
        if (code := self._other_command()) is not None:
            return code
        gc.freeze()
        gc.enable()
        self._check_selection()
        if self._help_asked():
            return 0
        evicts = self._take_options()
        lacking = self.tell_problems(self._task_names())
        self._leave_out()
        PythonAction.pm_pdb = pdb
        self.control = TaskControl(self.task_list, auto_delayed_regex=auto_delayed_regex)
        self.control.process(self.sel_tasks)
        self._check_arguments(opened)
        if single:
            for name in self.control.selected_tasks:
                self.control.tasks[name].task_dep = []
        reporter_class = self.reporters[reporter] if isinstance(reporter, str) else reporter
        with contextlib.ExitStack() as open_files:
            stream = outfile or self.outstream  # doit kept None where stdout was closed when it was loaded
            if isinstance(outfile, str):
                stream = open_files.enter_context(open(outfile, "w", encoding="utf-8"))
            told = reporter_class(stream, {"failure_verbosity": failure_verbosity})
            if hasattr(told, "opened"):  # ours; another one is doit's, and asks for nothing
                told.opened = opened
            made = opened.planned.plan(self.chosen(self._task_names()))
            self._preflight(made, goes_on=continue_)
            if evicts:
                from sparkbuild.app.space import eviction  # noqa: PLC0415 - only when it was asked for

                eviction.carry_out(opened.observed, made, lambda text: _say(told, text), opened.work.runlog)
            args = [self.dep_manager, told, continue_, always, Stream(verbosity, force_verbosity)]
            code = int(runner(opened, args, num_process).run_all(self.control.task_dispatcher()))
            return code or (2 if lacking else 0)

    def _other_command(self) -> int | None:
        """Run what is typed as a task and is a command: doit lets no task have a command's name. None for tasks."""
        first = str((self.sel_tasks or [""])[0])
        if first.startswith("health:"):
            from sparkbuild.plugin.commands.health import spelled_as_task  # noqa: PLC0415 - other runs need none of it

            return spelled_as_task(self, self.sel_tasks, self.outstream)
        if first.startswith("verify:"):
            from sparkbuild.plugin.commands import verify  # noqa: PLC0415 - as above

            return verify.spelled_as_task(self, self.sel_tasks, self.outstream)
        return None

    def _help_asked(self) -> bool:
        """Whether help is asked of a task; it is given then."""
        asked = next((name for name, options in self._selection() if HELP & options.keys()), "")
        if asked:
            from sparkbuild.plugin.commands.help import of_task  # noqa: PLC0415 - only when it was asked for

            self.outstream.write(of_task(asked, self.task_list))
        return bool(asked)

    def help(self) -> str:
        """The options of `run`. `doit -h` arrives here too, and asks about all of doit."""
        if sys.argv[1:2] and sys.argv[1] in HELP:
            from doit.doit_cmd import DoitMain  # noqa: PLC0415 - only when it was asked for

            from sparkbuild.plugin.commands.help import overview  # noqa: PLC0415 - as above

            return overview(DoitMain(config_filenames=()).get_cmds().to_dict())
        return str(super().help())

    def _preflight(self, made: Plan, *, goes_on: bool) -> None:
        """What is known to fail at the end is said at the start: a launch comes after hours of building and staging.
        With `goes_on`, those goals alone fail.
        """
        planned = self.opened.planned
        errors = planned.refusals(made)
        if goes_on:
            planned.refused = errors
            return
        tags = [error for step in made if (error := errors.get(step.goal.target)) and step.state == UNKNOWN]
        error = next(iter(tags), None) or silent(made) or next(iter(errors.values()), None)
        if error is not None:
            raise error

    def _check_selection(self) -> None:
        if not self.sel_tasks:
            raise InvalidCommand("name what to make, for example one of these:\n" + "\n".join(self._examples()))
        names = self._task_names()
        known = self.checked(names, commands=True)
        for name in names:
            if name in _ONE_BY_ONE or (name.partition(":")[0] in _ONE_BY_ONE and "*" in name):
                raise InvalidCommand(f"{name}: {_ONE_BY_ONE[name.partition(':')[0]]}")
            if "*" in name and not fnmatch.filter(known, name):
                raise InvalidCommand(f"no task matches {name!r}\n  next:   doit list")

    def _check_arguments(self, opened: Opened) -> None:
        """Wrong words behind a task that takes arguments are refused before anything begins."""
        for name in self.control.selected_tasks:
            for action in self.control.tasks[name].actions:
                if isinstance(action, _Action):
                    action.check(opened)

    def _leave_out(self) -> None:
        """Take out of groups and patterns what is no part of them; doit makes both from the names alone."""
        goals, groups = self.catalog.goals, self.catalog.groups
        for task in self.task_list:
            if task.has_subtask and ":" not in task.name:
                # all goals of a group within this one are in it themselves
                task.task_dep = [name for name in task.task_dep if name not in groups and goals.is_part(name)]
        patterns = {name for name in self._task_names() if "*" in name}
        every = {task.name: [task.name] for task in self.task_list} | groups
        words: list[str] = []
        for word in self.sel_tasks:
            words += (self.matching(word, every) or [word]) if word in patterns else [word]
        self.sel_tasks = words

    def _task_names(self) -> list[str]:
        """What of the command line names tasks: not a task's options, nor what follows one that takes arguments."""
        return [name for name, _ in self._selection()]

    def _selection(self) -> list[tuple[str, dict[str, str]]]:
        """The names of the command line, each with its options (`--label`, ...) and their values."""
        own: dict[str, str] = {}  # doit's options, each as it is typed
        for one in self.cmdparser.options:
            value = "" if one.type is bool else " ..."
            own |= {name: name + value for name in (f"--{one.long}", f"-{one.short}") if name.strip("-")}
        return selection(self.sel_tasks, {task.name: task for task in self.task_list}, own)

    def _take_options(self) -> bool:
        """Options that act on goals below what they are said of: `--stage` of a lane, and `--evict` of what is staged,
        which doit would take for a single task only. Returns whether to evict.
        """
        evicts = False
        for name, options in self._selection():
            if "--stage" in options:
                self.opened.observed.choice.choose(self.chosen([name]), options["--stage"])
            evicts = evicts or EVICT in options
        if evicts:
            self.sel_tasks[:] = [word for word in self.sel_tasks if word != EVICT]
        return evicts

    def _examples(self) -> list[str]:
        lines = [f"  doit {task.name:<24} {task.doc}" for task in self.task_list if _is_lane(task)]
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
