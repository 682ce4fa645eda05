"""`doit forget [TASK ...]` and `doit ignore TASK ...`: doit's own, told as ours of what is no task."""

from __future__ import annotations

from typing import Any

from doit.cmd_forget import Forget as DoitForget
from doit.cmd_ignore import Ignore as DoitIgnore
from doit.exceptions import InvalidCommand

from sparkbuild.plugin.commands.base import FactCommand


class Forget(FactCommand, DoitForget):  # type: ignore[misc]
    """The command `forget`."""

    name = "forget"
    doc_purpose = "forget when and how a task was made last: a hint, so nothing becomes stale"

    def _execute(self, forget_sub: bool, forget_disable_default: bool, forget_all: bool) -> None:  # noqa: FBT001
        if self.opened_or_none is not None:
            if not self.sel_tasks and not forget_all:  # a workspace has no default tasks
                raise InvalidCommand("name what to forget: doit forget TASK, or doit forget --all")
            _refuse_unknown(self, self.sel_tasks)
            # state that cannot be written reads as empty: doit would find nothing to forget, and say that it did
            for name in () if forget_all else self.sel_tasks:
                self.dep_manager.backend.store.drop_rows(name)
        super()._execute(forget_sub, forget_disable_default, forget_all)


class Ignore(FactCommand, DoitIgnore):  # type: ignore[misc]
    """The command `ignore`."""

    name = "ignore"
    doc_purpose = "skip a task until `doit forget` of it"

    def _execute(self, pos_args: Any) -> None:
        if self.opened_or_none is not None:
            if not pos_args:
                raise InvalidCommand("name what to ignore: doit ignore TASK; doit forget TASK ends that")
            _refuse_unknown(self, pos_args)
        super()._execute(pos_args)


def _refuse_unknown(command: FactCommand, names: list[str]) -> None:
    """Both take names of tasks only: no pattern, no target."""
    command.checked(names)
    tasks = {task.name for task in command.task_list}
    for name in names:
        if name not in tasks:
            raise InvalidCommand(f"{name} is no task of its own: doit {command.name} takes the names of tasks")
