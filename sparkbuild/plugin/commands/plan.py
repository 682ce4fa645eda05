"""`doit plan [TASK...]`: what would run, where, why, and how many bytes would move. Changes nothing."""

from __future__ import annotations

from typing import Any

from sparkbuild.plugin.commands.base import FactCommand

_JSON = {"name": "as_json", "long": "json", "type": bool, "default": False, "help": "print the plan as JSON"}
_VERBOSE = {
    "name": "verbose",
    "short": "v",
    "long": "verbose",
    "type": bool,
    "default": False,
    "help": "show also what is up to date, and the exact command and environment of each lane",
}
_STAGE = {
    "name": "stage",
    "long": "stage",
    "type": str,
    "default": "auto",
    "help": "as for doit serve:<recipe>: auto, skip or force",
}
_EVICT = {
    "name": "evict",
    "long": "evict",
    "type": bool,
    "default": False,
    "help": "as for doit stage:<recipe>: show also which staged data of others would be removed to make room",
}


class PlanCommand(FactCommand):
    """The command `plan`."""

    name = "plan"
    needs_tasks = False
    asks = True
    doc_purpose = "show what would run, where, why, and how many bytes would move"
    doc_usage = "[TASK ...]"
    doc_description = (
        "States: run = stale; ok = up to date; maybe = right by itself, but waits for something stale;"
        " unknown = its node does not answer, or one that decides whether it is needed. Exit code 0 whatever the states"
        " are, 2 when a part of the workspace cannot be read."
    )
    cmd_options = (_JSON, _VERBOSE, _STAGE, _EVICT)

    def _execute(self, as_json: bool, verbose: bool, stage: str, evict: bool, pos_args: Any = None) -> int:  # noqa: FBT001
        # this module is loaded before the nodes are asked, and each millisecond before that is waited for
        from sparkbuild.plugin.commands.planview import PlanView  # noqa: PLC0415 - as above

        names = list(pos_args or ())
        view = PlanView(self, names, verbose=verbose)
        view.take_options(stage, evict=evict)
        view.show(as_json=as_json)
        return 2 if self.tell_problems(names) else 0
