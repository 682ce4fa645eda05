"""The options of tasks as they stand behind their names: `doit bench:demo --label night stage:demo --evict`."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from doit.exceptions import InvalidCommand

from sparkbuild.plugin.adapters.dependencies import check_label
from sparkbuild.plugin.adapters.misread import HELP, no_option

EVICT = "--evict"  # acts on all that a name stands for, so that groups and patterns take it too


def selection(
    words: Sequence[str], tasks: Mapping[str, Any], own: Mapping[str, str]
) -> list[tuple[str, dict[str, str]]]:
    """The names of a command line, each with its options and their values. What follows a task that takes arguments is
    no name. `own`: the options of doit itself, each with how it is typed.

    Raises InvalidCommand for an option that what it stands behind has not: doit takes any beginning of one, which is
    not looked for here, and knows nothing of those of groups.
    """
    found: list[tuple[str, dict[str, str]]] = []
    rest = iter(words)
    for word in rest:
        if word == "--":
            break
        if word.startswith("-") and found:
            name, options = found[-1]
            option = word.partition("=")[0]
            _check(word, name, tasks, own)
            options[option] = _value(tasks.get(name), word, rest)
            if option == "--label":
                check_label(options[option])
            continue
        if found and found[-1][0] in tasks and tasks[found[-1][0]].pos_arg is not None:
            break
        found.append((word, {}))
    return found


def options_of(task: Any) -> dict[str, Mapping[str, Any]]:
    """The options of a task by how they are typed, `--long` and `-s`."""
    params = (*task.params, *task.creator_params)
    spelled = {f"--{one[key]}": one for one in params for key in ("long", "inverse") if one.get(key)}
    return spelled | {f"-{one['short']}": one for one in params if one.get("short")}


def members(name: str, tasks: Mapping[str, Any]) -> list[Any]:
    """The tasks that a group or pattern stands for; none when it is neither."""
    if "*" in name:
        return [tasks[one] for one in fnmatch.filter(tasks, name) if tasks[one].actions]
    if name not in tasks or tasks[name].actions:
        return []
    found = [tasks[one] for one in tasks[name].task_dep if one in tasks]
    return [task for one in found for task in ([one] if one.actions else members(one.name, tasks))]


def _check(word: str, name: str, tasks: Mapping[str, Any], own: Mapping[str, str]) -> None:
    option, sep, _ = word.partition("=")
    parts = members(name, tasks)
    if option in HELP or not (parts or name in tasks):  # help is given, and an unknown name is told of as such
        return
    if option == EVICT and name.partition(":")[0] != "stage":
        raise InvalidCommand(f"{EVICT} is an option of what is staged: doit stage:<recipe> {EVICT}, not {name}")
    known = options_of(tasks[name]) if not parts else {}
    if parts and any(EVICT in options_of(task) for task in parts):
        known = {EVICT: options_of(next(task for task in parts if EVICT in options_of(task)))[EVICT]}
    if option in known:
        if sep and known[option].get("type") is bool:
            raise InvalidCommand(f"{option} takes no value: doit {name} {option}")
        return
    if not option.startswith("--") and any(not one.startswith("--") for one in known):
        return  # short ones may be joined, or have their value joined to them: doit knows
    whose = next((task.name for task in parts if option in options_of(task)), "")
    if whose:
        raise InvalidCommand(f"{option} is an option of a single task, and {name} is several: doit {whose} {option}")
    if option in own:
        raise InvalidCommand(f"{option} is an option of doit, and stands before the names: doit {own[option]} {name}")
    raise InvalidCommand(no_option(option, name, known))


def _value(task: Any, word: str, rest: Iterator[str]) -> str:
    """The value of an option, taken from the words after it where it is not in the same word."""
    option, sep, value = word.partition("=")
    param = options_of(task).get(option) if task is not None else None
    return value if sep or param is None or param.get("type") is bool else next(rest, "")
