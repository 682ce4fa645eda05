"""`doit list`: what can be made, each with a line that helps to choose."""

from __future__ import annotations

import fnmatch
import shutil
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from doit.cmd_list import List as DoitList
from doit.exceptions import InvalidCommand

from sparkbuild.core.goal import DOWNLOADS
from sparkbuild.plugin.adapters.current import current
from sparkbuild.plugin.adapters.docs import all_docs
from sparkbuild.plugin.commands.base import FactCommand

if TYPE_CHECKING:
    from sparkbuild.app.opened import Opened

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
        opened = self.opened_or_none
        if opened is None:
            return int(super()._execute(subtasks, quiet, status, private, list_deps, template, sort, pos_args))
        show_all = subtasks or not brief
        if current.listing:
            self._print_fast(opened, quiet=quiet, downloads=subtasks)
        else:
            known = self.checked(pos_args or [])
            if show_all and not pos_args:
                self.task_list = [task for task in self.task_list if task.subtask_of or not task.has_subtask]
            groups = opened.catalog.names.groups
            for task in self.task_list:  # doit gives them all the text of the one function that makes all tasks
                if task.has_subtask and ":" not in task.name:
                    members = groups.get(task.name) or task.task_dep
                    task.doc = f"{task.name} all of the workspace ({len(members)})"
            pos_args = self._taken_apart(pos_args or [], known)
            if status:
                opened.planned.plan(self.chosen([]))
            if template is None and not quiet and (columns := self._columns()):
                before = 2 if status else 0  # the letter of the state
                pad, docs = fitted({task.name: task.doc or "" for task in self.task_list}, columns - before)
                template = ("{status} " if status else "") + f"{{name:<{pad}}}{{doc}}"
                for task in self.task_list:
                    task.doc = docs[task.name]
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
        current.listing = self.plain

    def _print_fast(self, opened: Opened, *, quiet: bool, downloads: bool) -> None:
        """Downloads are left out unless they are wanted: an image may stand on twenty, and nobody asks for one."""
        lines = all_docs(opened.catalog.names, opened.stops())
        for task in self.task_list:
            if (task.subtask_of or not task.has_subtask) and not task.name.startswith("_"):
                lines[task.name] = task.doc or ""
        shown = {name: lines[name] for name in sorted(lines) if downloads or name.partition(":")[0] not in DOWNLOADS}
        pad, docs = fitted(shown, self._columns())
        for name, doc in docs.items():
            self.outstream.write(f"{name}\n" if quiet else f"{name:<{pad}}{doc}\n")

    def _columns(self) -> int:
        """The width of the terminal that it is printed on; 0: a file or a pipe, which gets all of it."""
        return shutil.get_terminal_size().columns if self.outstream.isatty() else 0


def fitted(docs: Mapping[str, str], columns: int) -> tuple[int, dict[str, str]]:
    """The width that names are padded to, and the lines that stand behind them, for a terminal of `columns` (0: no
    bound). Names stay whole, since they are what is typed; what does not fit of a line ends with an ellipsis.
    """
    longest = max(map(len, docs), default=0) + 3
    if not columns:
        return longest, dict(docs)
    pad = min(longest, columns // 2)
    return pad, {name: _cut(name, doc, pad, columns) for name, doc in docs.items()}


def _cut(name: str, doc: str, pad: int, columns: int) -> str:
    begin = max(pad, len(name) + 2)
    gap = " " * (begin - max(pad, len(name)))
    room = columns - begin
    if len(doc) <= room:
        return gap + doc
    return f"{gap}{doc[: room - 1]}…" if room > 1 else ""
