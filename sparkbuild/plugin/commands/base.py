"""What all our commands share: clean errors, signals, and the facts as doit's judge of up-to-date."""

from __future__ import annotations

import fnmatch
import gc
import getopt
import itertools
import os
import sys
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from doit.cmd_base import DoitCmdBase
from doit.cmdparse import CmdParseError
from doit.exceptions import InvalidCommand

from sparkbuild.agent.wire.printable import lines
from sparkbuild.app.spoken import spoken
from sparkbuild.core import STATE
from sparkbuild.core.errors import SparkbuildError
from sparkbuild.core.interrupt import handling
from sparkbuild.core.screen import Screen, complain
from sparkbuild.core.suggest import closest
from sparkbuild.nodes.local.early import Early
from sparkbuild.plugin.adapters import streams
from sparkbuild.plugin.adapters.dodofile import users_code
from sparkbuild.plugin.adapters.misread import HELP, no_option, told

if TYPE_CHECKING:
    from sparkbuild.app.catalog import Catalog
    from sparkbuild.app.opened import Opened
    from sparkbuild.core.goal import Goal

JSON = {"name": "as_json", "long": "json", "type": bool, "default": False, "help": "print as JSON"}


class FactCommand(DoitCmdBase):  # type: ignore[misc]
    """Mixed in before a doit command. In a folder that is no workspace of ours, doit's own behaviour is left alone."""

    execute_tasks = False
    outstream: Any  # doit sets it; ours lets nothing through that is not printable
    needs_tasks = True  # False: works on goals alone, and does not pay for making a doit task of each

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        streams.opened()  # before doit keeps sys.stdout
        super().__init__(*args, **kwargs)

    def execute(self, params: Any, args: Any) -> Any:
        """See doit; every error that a user can cause is one message, never a traceback."""
        gc.disable()  # nothing made while loading is garbage; `run` turns it on again
        early = self._early()
        with handling():
            try:
                with users_code():
                    self.loader.setup(params)
                params.update_defaults(self.loader.load_doit_config())
                if params["backend"] != "sparkbuild":
                    return super().execute(params, args)
                self.outstream = Screen(self.outstream)
                from sparkbuild.plugin.adapters import current, dependencies  # noqa: PLC0415 - after the agent was started

                self.opened_or_none = current.opened(early)
                self.prepare()
                if not self.needs_tasks:
                    return self._execute_without_tasks(params, args)
                self.dep_manager = dependencies.Dependencies(
                    self.opened_or_none,
                    self._backends.get("sparkbuild"),
                    params["dep_file"],
                    checker_cls=self.get_checker_cls(params["check_file_uptodate"]),
                    codec_cls=self.get_codec_cls(params["codec_cls"]),
                )
                with users_code():
                    return super().execute(params, args)
            except SparkbuildError as error:
                raise InvalidCommand(spoken(str(error))) from error
            except InvalidCommand as error:
                raise InvalidCommand(lines(spoken(str(error)))) from error
            except BrokenPipeError:
                raise  # `doit plan | head`: the reader has seen enough
            except OSError as error:
                if streams.is_output(error):
                    raise streams.unwritable(error) from error
                raise InvalidCommand(_refused(error)) from error
            finally:
                if self.opened_or_none is not None:
                    self.opened_or_none.close()
                elif early is not None:
                    early.close()

    asks = False  # True: looks at nodes, and this machine is most often one of them

    def _early(self) -> Early | None:
        """An agent that is asked while the workspace is read, where there is one that was used."""
        if not self.asks or not os.path.isdir(STATE):
            return None
        try:
            return Early(os.path.abspath(STATE), sys.argv[1:])
        except OSError:
            return None

    def prepare(self) -> None:
        """Called when the workspace is read and before tasks are made."""

    def _execute_without_tasks(self, params: Any, args: Any) -> Any:
        params["pos_args"] = args
        names = self._execute.__code__.co_varnames[1 : self._execute.__code__.co_argcount]
        return self._execute(**{name: params[name] for name in names})

    def parse_execute(self, in_args: Any) -> Any:
        """Options may stand before or after names; doit's getopt stops at the first name. Not so for `run`, where what
        follows a task are that task's own options. `--help` is the same as `doit help COMMAND`.
        """
        return streams.printed(lambda: self._parse_execute(list(in_args)))

    def _parse_execute(self, words: list[str]) -> Any:
        if HELP.intersection([*itertools.takewhile(_is_option, words)] if self.execute_tasks else words):
            self.outstream.write(f"{self.help()}\n")
            return 0
        known = [f"--{option.long}" for option in self.cmdparser.options if option.long]
        if not self.execute_tasks:
            try:
                options, names = getopt.gnu_getopt(words, self.cmdparser.get_short(), self.cmdparser.get_long())
            except getopt.GetoptError as error:
                raise InvalidCommand(spoken(self._no_option(error.opt, str(error), known))) from error
            words = [piece for pair in options for piece in pair if piece] + names
        try:
            return super().parse_execute(words)
        except CmdParseError as error:
            raise InvalidCommand(spoken(told(str(error), self.name, words, known))) from error

    def _no_option(self, option: str, text: str, known: list[str]) -> str:
        if "not recognized" not in text:
            return f"{text}; doit help {self.name} lists its options"
        spelled = f"--{option}" if option and len(option) > 1 else f"-{option}"
        return no_option(spelled, f"doit {self.name}", known, self.name)

    opened_or_none: Opened | None = None

    @property
    def opened(self) -> Opened:
        """The workspace; an error in a folder without one."""
        if self.opened_or_none is None:
            raise SparkbuildError(
                "this dodo.py is not a sparkbuild workspace",
                wanted="from sparkbuild.plugin.tasks import *  and  DOIT_CONFIG = config()",
                next="python -m sparkbuild init DIR makes one",
            )
        return self.opened_or_none

    @property
    def catalog(self) -> Catalog:
        """What was read of the workspace."""
        return self.opened.catalog

    def known(self) -> dict[str, list[str]]:
        """Every name that may be selected, with the tasks of goals behind it."""
        goals = self.catalog.goals.by_task
        names = {task: [task] for task in goals} | self.catalog.names.groups
        names |= {goal.target: [task] for task, goal in goals.items()}
        for task in getattr(self, "task_list", None) or ():
            names.setdefault(task.name, [])
        for name in self.opened.stops():
            names.setdefault(f"stop:{name}", [])
        return names

    def checked(self, names: Iterable[str], *, commands: bool = False) -> dict[str, list[str]]:
        """Every known name; raises for one that is none, with a suggestion, or with the reason it is missing."""
        known = self.known()
        for name in names:
            if "*" in name and not fnmatch.filter(known, name) and (unread := self.catalog.lacking([name])):
                raise InvalidCommand(_nothing_left(name, unread.values()))
            if name in known or "*" in name or name.startswith("-"):
                continue
            if not self.needs_tasks and not hasattr(self, "task_list"):
                self.task_list = self.loader.load_tasks(cmd=self, pos_args=[])  # the user's own tasks, to suggest from
                known = self.known()
                if name in known:
                    continue
            problem = self.catalog.problem_for(name)
            if problem is not None:
                raise InvalidCommand(str(problem))
            known_part = ":" not in name or name.split(":")[1] in self.catalog.workspace.images
            lacking = self.catalog.lacking([name]) if known_part else {}  # else it is a typing error
            if lacking:
                raise InvalidCommand(_nothing_left(name, lacking.values()))
            if name == "stage":
                what = "no recipe has a [[staging]] block: there is nothing to stage"
                raise InvalidCommand(f"{what}\n  next:   doit list")
            raise InvalidCommand(_unknown(name, sorted(known), list(self.loader.cmd_names) if commands else []))
        return known

    def recipes(self, names: Iterable[str]) -> list[str]:
        """Names of recipes, `serve:` before them or not; those that are broken too, since their lanes may still run."""
        known = self.opened.stops()
        found = [name.removeprefix("serve:") for name in names]
        for name in found:
            if name not in known:
                raise InvalidCommand(_unknown_recipe(name, sorted(known)))
        return found

    def chosen(self, names: Iterable[str]) -> tuple[Goal, ...]:
        """The goals behind names, groups and `*` patterns taken apart; all that are asked for by name when none is."""
        goals = self.catalog.goals.by_task
        names = list(names)
        if not names:
            return tuple(goal for goal in goals.values() if not goal.transient)
        known = self.checked(names)
        found: dict[str, Goal] = {}
        for name in names:
            matching = self.matching(name, known) if "*" in name else known.get(name, [])
            if not matching and "*" in name and not fnmatch.filter(known, name):
                raise InvalidCommand(f"no task matches {name!r}\n  next:   doit list")
            if not matching and not self.execute_tasks:
                raise InvalidCommand(f"{name} is no goal: there is nothing to plan, it runs whenever it is asked for")
            found |= {task: goals[task] for task in matching}
        return tuple(found.values())

    def matching(self, pattern: str, known: Mapping[str, list[str]]) -> list[str]:
        """The goals that a pattern selects among the known names, those of groups that it fits as well."""
        found = dict.fromkeys(task for name in fnmatch.filter(known, pattern) for task in known[name])
        return [task for task in found if self.catalog.goals.is_part(task)]

    def tell_problems(self, names: Iterable[str] = ()) -> int:
        """Print what is wrong with parts of the workspace, or with those that groups among the names may lack goals
        for want of; the number of problems.
        """
        named = list(names)
        problems = self.catalog.lacking(named) if named else self.catalog.names.problems
        for error in problems.values():
            complain(spoken(f"ERROR: {error}"))
        return len(problems)


def _is_option(word: str) -> bool:
    return word.startswith("-")


def _nothing_left(name: str, problems: Iterable[SparkbuildError]) -> str:
    """There is no such group, and it may be for want of what cannot be read."""
    lines = [line for error in problems for line in str(error).splitlines()]
    return "\n".join([f"there is no task {name!r}: what it may stand for cannot be read", *(f"  {x}" for x in lines)])


def _refused(error: OSError) -> str:
    """The system refused: a read-only or foreign workspace, a full disk."""
    where = str(error.filename or "")
    lines = ["the system refused what this command needs", f"  found:  {error.strerror or error}"]
    if where:
        lines += [f"  where:  {where}", f"  next:   ls -ld '{where}'; df '{os.path.dirname(where) or '.'}'"]
    return "\n".join(lines)


def _unknown_recipe(name: str, names: list[str]) -> str:
    close = closest(name, names)
    lines = [f"there is no recipe {name!r}", f"  wanted: {', '.join(names) or 'a recipe in recipes/'}"]
    if close:
        lines.insert(1, f"  did you mean: {', '.join(close)}?")
    return "\n".join(lines)


def _unknown(name: str, names: list[str], commands: list[str]) -> str:
    # a recipe's bare name: serving it is what is meant most often
    close = sorted(
        (n for n in names if n.endswith(f":{name}") and "://" not in n), key=lambda n: not n.startswith("serve:")
    )
    close += closest(name, names + commands)
    lines = [f"there is no task {name!r}"]
    if close:
        lines.append(f"  did you mean: {', '.join(dict.fromkeys(close[:3]))}?")
    lines.append(f"  next:   {'python -m sparkbuild init DIR makes a workspace' if name == 'init' else 'doit list'}")
    return "\n".join(lines)
