"""`doit list`: what can be made, each with a line that helps to choose."""

from __future__ import annotations

from typing import Any

from doit.cmd_list import List as DoitList

from sparkbuild.plugin.command import FactCommand
from sparkbuild.plugin.session import current

_MORE = {
    "name": "brief",
    "short": "b",
    "long": "brief",
    "type": bool,
    "default": False,
    "help": "only the groups, as plain doit lists them",
}


class List(FactCommand, DoitList):  # type: ignore[misc]
    """Replaces doit's `list`: sub-tasks are what people run here, so they are shown."""

    name = "list"
    cmd_options = (*DoitList.cmd_options, _MORE)

    def _execute(  # noqa: PLR0913 - doit passes options by these names
        self,
        subtasks: bool = False,  # noqa: FBT001, FBT002
        quiet: bool = False,  # noqa: FBT001, FBT002
        status: bool = False,  # noqa: FBT001, FBT002
        private: bool = False,  # noqa: FBT001, FBT002
        list_deps: bool = False,  # noqa: FBT001, FBT002
        template: Any = None,
        sort: str = "name",
        brief: bool = False,  # noqa: FBT001, FBT002
        pos_args: Any = None,
    ) -> int:
        session = current()
        if session is None:
            return int(super()._execute(subtasks, quiet, status, private, list_deps, template, sort, pos_args))
        self.checked(pos_args or [])
        show_all = subtasks or not brief
        if show_all and not pos_args:
            self.task_list = [task for task in self.task_list if task.subtask_of or not task.has_subtask]
        if status:
            session.plan(self.chosen([]))
        super()._execute(show_all, quiet, status, private, list_deps, template, sort, pos_args)
        return 2 if self.tell_problems() else 0
