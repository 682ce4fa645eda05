"""`doit list`: what can be made, each with a line that helps to choose."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable
from typing import Any

from doit.cmd_list import List as DoitList
from doit.exceptions import InvalidCommand

from sparkbuild.core.uri import DOWNLOADS
from sparkbuild.plugin.adapters.factory import group_doc
from sparkbuild.plugin.commands.base import FactCommand

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
    doc_purpose = "list what can be made, with one line for each task"
    cmd_options = (*DoitList.cmd_options, _MORE)

    def _execute(  # noqa: PLR0917 - doit passes options by these names
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
        session = self.session_or_none
        if session is None:
            return int(super()._execute(subtasks, quiet, status, private, list_deps, template, sort, pos_args))
        known = self.checked(pos_args or [])
        show_all = subtasks or not brief
        if self.session.listing:
            self._print_fast(quiet=quiet, downloads=subtasks)
        else:
            if show_all and not pos_args:
                self.task_list = [task for task in self.task_list if task.subtask_of or not task.has_subtask]
            groups = session.groups
            for task in self.task_list:  # doit gives them all the text of the one function that makes all tasks
                if task.has_subtask and ":" not in task.name:
                    members = groups.get(task.name) or task.task_dep
                    task.doc = f"{task.name} all of the workspace ({len(members)})"
            pos_args = self._taken_apart(pos_args or [], known)
            if status:
                session.plan(self.chosen([]))
            super()._execute(show_all, quiet, status, private, list_deps, template, sort, pos_args)
        return 2 if self.tell_problems() else 0

    def _taken_apart(self, names: Iterable[str], known: Iterable[str]) -> list[str]:
        """The names of tasks: patterns taken apart, which doit does for a run only."""
        tasks = {task.name for task in self.task_list}
        found: dict[str, None] = {}
        for name in names:
            matching = [one for one in fnmatch.filter(known, name) if one in tasks] if "*" in name else [name]
            if not matching or not tasks.issuperset(matching):
                raise InvalidCommand(f"no task matches {name!r}\n  next:   doit list")
            found |= dict.fromkeys(matching)
        return list(found)

    def execute(self, params: Any, args: Any) -> Any:
        """See FactCommand. The plain list is printed from the goals; only its rarer forms need doit's tasks."""
        if not args and not any(params[name] for name in ("status", "list_deps", "template", "private", "brief")):
            self.plain = params["sort"] == "name"
        return super().execute(params, args)

    plain = False

    def prepare(self) -> None:
        """Before the tasks are made."""
        self.session.listing = self.plain

    def _print_fast(self, *, quiet: bool, downloads: bool) -> None:
        """Downloads are left out unless they are wanted: an image may stand on twenty, and nobody asks for one."""
        lines = {task: goal.doc for task, goal in self.session.goals.by_task.items()}
        for name, members in self.session.groups.items():
            if ":" in name:
                lines[name] = group_doc(name, members)
        for task in self.task_list:
            if (task.subtask_of or not task.has_subtask) and not task.name.startswith("_"):
                lines[task.name] = task.doc or ""
        width = max(map(len, lines), default=0) + 3
        for name in sorted(lines):
            if name.partition(":")[0] in DOWNLOADS and not downloads:
                continue
            self.outstream.write(f"{name}\n" if quiet else f"{name:<{width}}{lines[name]}\n")
