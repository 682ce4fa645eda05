"""What doit says of a command line that it cannot read, as one line: its own message lists objects of its parser."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from sparkbuild.core.suggest import nearest

# and the tasks whose options these are
OF_TASKS = {"--no-wait": "serve:", "--stage": "serve:", "--evict": "stage:", "--label": "bench:", "--again": "bench:"}
# patterns that are not compiled yet: that takes 1 ms, and most command lines can be read
_UNKNOWN = r"(?s)Error parsing (Command|Task): (.*?) \(parsing options: (.*)\)\. Got:"
_LONG = r"'long':'([^']+)'"
_VALUE = r"(?s)Error parsing parameter '(\w+)' <class '(\w+)'>\.\n.*?: (.*)"
_SPELLED = {"num_process": "-n", "failure_verbosity": "--failure-verbosity"}  # where doit's name is another
_KINDS = {"int": "a whole number", "float": "a number", "bool": "yes or no"}

HELP = frozenset({"--help", "-h"})  # what asks for help, wherever it stands


def told(text: str, command: str, words: Sequence[str], known: Iterable[str]) -> str:
    """The message for an error `text` of doit's parser. `words` are what stood after the command, `known` its options,
    as typed.
    """
    value = re.match(_VALUE, text)
    if value:
        name, kind, found = value.group(1), value.group(2), value.group(3).strip()
        option = _SPELLED.get(name, f"--{name}")
        return f"{option} takes {_KINDS.get(kind, kind)}, and {found} is none"
    unknown = re.match(_UNKNOWN, text)
    if not unknown:
        return text
    place, what, options = unknown.groups()
    option = re.sub(r".*?(--?[\w-]+).*", r"\1", what, flags=re.DOTALL)
    if place == "Task":
        names = ", ".join(f"--{name}" for name in re.findall(_LONG, options))
        return f"{what}: that task has {f'the options {names}' if names else 'no options'}"
    if command == "run" and option in OF_TASKS:
        kind = OF_TASKS[option]
        name = next((word for word in words if word.startswith(kind)), f"{kind}<recipe>")
        return f"{option} is an option of the task, and stands after its name: doit {name} {option}"
    if "not recognized" in what:
        return no_option(option, f"doit {command}", known, command)
    return f"{what}; doit help {command} lists its options"


def no_option(option: str, owner: str, known: Iterable[str], command: str = "") -> str:
    """The message for an option that `owner` has not, a task, or doit with a `command`. `known`: those that it has, as
    typed; of a command they are not listed, since most are doit's own.
    """
    names = [name for name in known if name.startswith("--")]
    lines = [f"{owner} has no option {option}"]
    best = nearest(option, names)
    if best:
        lines.append(f"  did you mean: {best}?")
    if not command:
        lines.append(f"  wanted: {', '.join(names) or 'none: it has no options'}")
    return "\n".join([*lines, f"  next:   doit help {command or owner}"])
