"""`doit help [COMMAND|TASK]`: doit's own, which knows the options of groups and says when a name is none."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from doit.cmd_help import Help as DoitHelp
from doit.cmdparse import CmdOption
from doit.exceptions import InvalidCommand

from sparkbuild.core.sizes import count
from sparkbuild.plugin.adapters.options import EVICT, members, options_of
from sparkbuild.plugin.commands.base import FactCommand


class Help(FactCommand, DoitHelp):  # type: ignore[misc]
    """Replaces doit's `help`."""

    name = "help"

    def execute(self, params: Any, args: Any) -> Any:
        """See FactCommand; only help on a task needs a workspace."""
        if len(args) > 1:
            raise InvalidCommand("name one command or task: doit help <name>")
        if args and args[0].startswith(("health:", "verify:")):  # commands that are spelled as tasks
            args = [args[0].partition(":")[0]]
        if not args or args[0] == "task" or args[0] in self.cmds:
            return DoitHelp.execute(self, params, args)
        return super().execute(params, args)

    def _execute(self, pos_args: Any) -> bool:
        if self.session_or_none is None:
            return bool(super()._execute(pos_args))
        self.checked(pos_args, commands=True)
        self.outstream.write(of_task(pos_args[0], self.task_list))
        return True


def of_task(name: str, tasks: Iterable[Any]) -> str:
    """What a task, group or pattern is, and its options; of several tasks, those that all of them take together."""
    known = {task.name: task for task in tasks}
    parts = members(name, known)
    options = options_of(parts[0]) if parts else options_of(known[name]) if name in known else {}
    shown = {one["name"]: one for spelled, one in options.items() if not parts or spelled == EVICT}
    doc = known[name].doc if name in known else ""
    head = f"{name}  {count(len(parts), 'task') if parts and (':' not in name or not doc) else doc}\n"
    return head + "".join(f"{line}\n" for one in shown.values() for line in CmdOption(one).help_doc())
