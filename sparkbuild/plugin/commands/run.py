"""`doit TASK...`: doit's run with threads, task locks, orderly signals and the plan as the judge."""

from __future__ import annotations

import sys
from typing import Any

from doit import doit_cmd
from doit.cmd_run import Run as DoitRun
from doit.exceptions import InvalidCommand

from sparkbuild.plugin.adapters.misread import HELP
from sparkbuild.plugin.commands.base import FactCommand


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
        if self.opened_or_none is None:
            return int(
                super()._execute(
                    outfile, verbosity, always, continue_, reporter, num_process, par_type,
                    single, auto_delayed_regex, force_verbosity, failure_verbosity, pdb,
                )
            )  # fmt: skip
        if par_type != "thread":
            raise InvalidCommand("tasks of a workspace run in threads: -P process is not offered")
        # this module is loaded before the nodes are asked, and each millisecond before that is waited for
        from sparkbuild.plugin.commands.making import Making, Options  # noqa: PLC0415

        options = Options(
            outfile, reporter, num_process, failure_verbosity, verbosity,
            always=always, goes_on=continue_, single=single, delayed=auto_delayed_regex,
            force_verbosity=force_verbosity, pdb=pdb,
        )  # fmt: skip
        return Making(self, self.opened_or_none).make(options)

    def help(self) -> str:
        """The options of `run`. `doit -h` arrives here too, and asks about all of doit."""
        if sys.argv[1:2] and sys.argv[1] in HELP:
            from sparkbuild.plugin.commands.help import overview  # noqa: PLC0415 - only when it was asked for

            return overview(doit_cmd.DoitMain(config_filenames=()).get_cmds().to_dict())
        return str(super().help())
