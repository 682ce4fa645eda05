"""`doit help [COMMAND|TASK]`: the kinds of tasks and the commands, or the options of one of them."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping
from typing import Any

from doit.cmd_help import Help as DoitHelp
from doit.cmdparse import CmdOption
from doit.exceptions import InvalidCommand
from doit.version import VERSION as DOIT_VERSION

from sparkbuild import __version__
from sparkbuild.app.spoken import CALLED
from sparkbuild.core.units import count
from sparkbuild.plugin.adapters.options import EVICT, members, options_of
from sparkbuild.plugin.commands.base import FactCommand
from sparkbuild.plugin.commands.withheld import WITHHELD

# The kinds of tasks, in the order in which one meets them.
KINDS = {
    "serve:RECIPE": "image, data, launch, readiness, gates: whatever of a lane is stale",
    "stop:RECIPE": "stop a lane",
    "bench:RECIPE": "benchmark a lane with real harnesses; leaves a report",
    "stage:RECIPE": "make the model data of a recipe local to its nodes",
    "image:NAME": "build an image from its lock",
    "sync:IMAGE:NODE": "bring an image to a node",
    "artifact:LOCK:COMPONENT": "fetch one pinned file",
    "repro:IMAGE": "build an image twice without cache, and name the files that differ",
    "lock:check, lock:verify": "compare locks with the files they pin, and with upstream",
    "lock:update, lock:pin:LOCK": "take what upstream has that is newer; pin local files anew",
}
_DOCUMENTATION = "README.md and docs/ of sparkbuild; https://pydoit.org for doit itself"


def overview(commands: Mapping[str, Any]) -> str:
    """What there is to type: the kinds of tasks, the commands that a workspace has, where to read on."""
    version = ".".join(str(part) for part in DOIT_VERSION)
    rows = {
        "Usage": {"TASK ...": "make what is stale of these tasks, and nothing else", "COMMAND ...": "look, or explain"},
        "Tasks": KINDS,
        "Commands": {name: commands[name].doc_purpose for name in sorted(commands) if name not in WITHHELD},
        "Read on": {
            "list": "the tasks of this workspace",
            "help COMMAND|TASK": "the options of one of them",
        },
    }
    lines = [f"sparkbuild {__version__} on doit {version}: an incremental build system for serving language models"]
    for title, entries in rows.items():
        lines += ["", title, *(f"  {f'{CALLED} {name}':<{28 + len(CALLED)}}{text}" for name, text in entries.items())]
    return "\n".join([*lines, f"  {_DOCUMENTATION}", ""])


def _print_overview(self: DoitHelp, cmds: Mapping[str, Any]) -> None:
    """`doit --help` is printed by doit itself, before any command of ours is asked: it makes a `Help` of its own. That
    loads this module, which is the only moment to say what there is to type in a workspace.
    """
    if _is_workspace():
        sys.stdout.write(overview(cmds))
    else:
        _DOITS_USAGE(self, cmds)


_DOITS_USAGE = DoitHelp.print_usage
DoitHelp.print_usage = _print_overview


def _is_workspace() -> bool:
    """Whether this folder is a workspace of ours, or none of doit's at all: nothing is loaded for it."""
    try:
        with open("dodo.py", encoding="utf-8", errors="replace") as file:
            return "sparkbuild" in file.read(1 << 20)
    except OSError:
        return not os.path.exists("dodo.py")


class Help(FactCommand, DoitHelp):  # type: ignore[misc]
    """Replaces doit's `help`."""

    name = "help"
    doc_purpose = "show the kinds of tasks and the commands, or the options of one of them"
    doc_usage = "[COMMAND|TASK]"

    def execute(self, params: Any, args: Any) -> Any:
        """See FactCommand; only help on a task needs a workspace."""
        if len(args) > 1:
            raise InvalidCommand("name one command or task: doit help <name>")
        if args and args[0].startswith(("health:", "verify:")):  # commands that are spelled as tasks
            args = [args[0].partition(":")[0]]
        if not args and _is_workspace():
            self.outstream.write(overview(self.cmds))
            return 0
        if not args or args[0] == "task" or args[0] in self.cmds:
            return DoitHelp.execute(self, params, args)
        return super().execute(params, args)

    def _execute(self, pos_args: Any) -> bool:
        if self.opened_or_none is None:
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
