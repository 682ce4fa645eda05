"""The tasks of this workspace, and of this repository's own tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sparkbuild.app.opened import Opened
from sparkbuild.plugin.tasks import *  # noqa: F403 - doit finds tasks by name in this module
from sparkbuild.plugin.tasks import Proc, config

DOIT_CONFIG = config()
_LAYERS = ("unit", "agent", "slow", "rack")
_TEXT = {"type": str, "default": ""}


class Tests(Proc):
    """pytest, with the options of the task before its arguments."""

    def work(self, here: Opened, log: Path) -> None:
        """See Proc."""
        options = self.task.options
        mark = f"{options['mark']} and not long" if options["mark"] in _LAYERS else options["mark"]
        self.argv += ["--changed"] if options["changed"] else []
        self.argv += [word for flag, text in (("-m", mark), ("-k", options["words"])) if text for word in (flag, text)]
        super().work(here, log)


def task_test() -> dict[str, Any]:
    """Run the tests of sparkbuild itself (paths, and options after `--`, go to pytest: doit test -m unit)."""
    return {
        "actions": [Tests(["python", "-m", "tests.chosen"], show=True)],
        "params": [
            {**_TEXT, "name": "mark", "short": "m", "long": "mark", "help": "unit, agent, slow, rack, or as pytest -m"},
            {**_TEXT, "name": "words", "short": "k", "long": "words", "help": "as pytest -k"},
            {"name": "changed", "long": "changed", "type": bool, "default": False, "help": "what a change can reach"},
        ],
        "pos_arg": "args",
    }
