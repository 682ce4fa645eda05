"""doit's own commands that would mislead in a workspace: they look at files and at doit's rows, not at facts."""

from __future__ import annotations

from doit.cmd_clean import Clean as DoitClean
from doit.cmd_completion import TabCompletion as DoitTabCompletion
from doit.cmd_dumpdb import DumpDB as DoitDumpDB
from doit.cmd_info import Info as DoitInfo
from doit.cmd_resetdep import ResetDep as DoitResetDep
from doit.cmd_strace import Strace as DoitStrace
from doit.exceptions import InvalidCommand

from sparkbuild.plugin.commands.base import FactCommand

# by their names: neither help nor completion offers them
WITHHELD = frozenset({"clean", "dumpdb", "info", "reset-dep", "strace", "tabcompletion"})


class _Withheld(FactCommand):
    """In a workspace says what to use instead; elsewhere doit's own command works as ever."""

    instead = ""

    def prepare(self) -> None:
        """See FactCommand."""
        raise InvalidCommand(f"doit {self.name} is not offered in a workspace: {self.instead}")


class Clean(_Withheld, DoitClean):  # type: ignore[misc]
    """The command `clean`."""

    name = "clean"
    instead = "what tasks make here are goals, not files. Removing .sparkbuild/node frees all that this node holds"


class DumpDB(_Withheld, DoitDumpDB):  # type: ignore[misc]
    """The command `dumpdb`."""

    name = "dumpdb"
    instead = "the state is sqlite (.sparkbuild/state.db), and what was done is in .sparkbuild/runs/*/run.jsonl"


class Info(_Withheld, DoitInfo):  # type: ignore[misc]
    """The command `info`."""

    name = "info"
    instead = "doit why TASK says why it would run, doit plan TASK what that costs"


class ResetDep(_Withheld, DoitResetDep):  # type: ignore[misc]
    """The command `reset-dep`."""

    name = "reset-dep"
    instead = "what is there is always looked at, so there is nothing to reset"


class Strace(_Withheld, DoitStrace):  # type: ignore[misc]
    """The command `strace`."""

    name = "strace"
    instead = "it looks for files that a task reads, and goals are no files. doit why TASK names what one stands on"


class TabCompletion(_Withheld, DoitTabCompletion):  # type: ignore[misc]
    """The command `tabcompletion`."""

    name = "tabcompletion"
    instead = "doit completion bash, zsh or fish knows the tasks of a workspace"
