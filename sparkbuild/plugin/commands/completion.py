"""`doit completion bash|zsh|fish`: a completion script for doit and ./doitw in workspaces."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from doit.exceptions import InvalidCommand

from sparkbuild.app.spoken import spoken
from sparkbuild.plugin.adapters.misread import OF_TASKS
from sparkbuild.plugin.commands.base import FactCommand
from sparkbuild.plugin.commands.health import Health
from sparkbuild.plugin.commands.list import List
from sparkbuild.plugin.commands.logs import Logs
from sparkbuild.plugin.commands.outdated import Outdated
from sparkbuild.plugin.commands.plan import PlanCommand
from sparkbuild.plugin.commands.status import Status
from sparkbuild.plugin.commands.trust import Trust
from sparkbuild.plugin.commands.verify import Verify
from sparkbuild.plugin.commands.withheld import WITHHELD

_SHELLS = ("bash", "zsh", "fish")
# What some commands take, as a filter over the names of tasks: recipes, staged places, what can be updated.
_NAMES = {
    "logs": "s/^serve:\\([^ ]*\\).*/\\1/p",
    "status": "s/^serve:\\([^ ]*\\).*/\\1/p",
    "verify": "s/^stage:\\([^ ]*\\).*/\\1/p",
    "lock:update": "s/^lock:update:\\([^ ]*\\).*/\\1/p",
    "outdated": "s/^lock:update:\\([^ ]*\\).*/\\1/p",
}

# The colon is one of bash's word breaks, so `serve:de<TAB>` arrives as three words: they are joined for matching, and
# what is already typed up to the last colon is cut from the answers.
_BASH = """\
_sparkbuild_complete() {
    local word line prefix names
    line="${COMP_LINE:0:COMP_POINT}"
    word="${line##* }"
    local -a found
    if [[ $word == -* ]]; then
        case " $line" in
@OPTIONS@
        esac
    else
        case " $line" in
@NAMES@
            *" completion "*) found=(bash zsh fish) ;;
            *" health "*|*" trust "*) ;;
            *" plan "*|*" why "*|*" list "*|*" forget "*|*" ignore "*)
                found=($("${COMP_WORDS[0]}" list -q 2>/dev/null)) ;;
            *) found=($("${COMP_WORDS[0]}" list -q 2>/dev/null) @COMMANDS@) ;;
        esac
    fi
    COMPREPLY=($(compgen -W "${found[*]}" -- "$word"))
    prefix="${word%"${word##*:}"}"
    COMPREPLY=("${COMPREPLY[@]#"$prefix"}")
}
complete -F _sparkbuild_complete doit ./doitw doitw
"""

_ZSH = """\
#compdef doit doitw
_sparkbuild_complete() {
    local -a found
    local line=" ${(j: :)words[1,CURRENT-1]} "
    if [[ $words[CURRENT] == -* ]]; then
        case "$line" in
@OPTIONS@
        esac
    else
        case "$line" in
@NAMES@
            *" completion "*) found=(bash zsh fish) ;;
            *" health "*|*" trust "*) ;;
            *) found=(${(f)"$(${words[1]} list -q 2>/dev/null)"}); (( CURRENT == 2 )) && found+=(@COMMANDS@) ;;
        esac
    fi
    compadd -a -- found
}
compdef _sparkbuild_complete doit doitw ./doitw
"""
# `commandline` gives the words before the cursor; fish itself matches what is typed of the current one.
_FISH = """\
function __sparkbuild_complete
    set -l words (commandline -opc)
    set -l line " "(string join " " -- $words[2..-1])" "
    if string match -q -- "-*" (commandline -ct)
        switch $line
@OPTIONS@
        end
        return
    end
    switch $line
@NAMES@
        case "* completion *"
            string split " " "bash zsh fish"
        case "* health *" "* trust *"
        case "*"
            $words[1] list -q 2>/dev/null
            test (count $words) -eq 1; and string split " " "@COMMANDS@"
    end
end
complete -c doit -f -a "(__sparkbuild_complete)"
complete -c doitw -f -a "(__sparkbuild_complete)"
"""
_LISTED = {"bash": '$("${COMP_WORDS[0]}" list -q', "zsh": '${(f)"$(${words[1]} list -q'}
_END = {"bash": "", "zsh": '"}'}


def script(shell: str, commands: Iterable[str]) -> str:
    """The script for bash, zsh or fish. `commands`: the names of all commands of doit."""
    offered = " ".join(sorted({*commands} - WITHHELD))
    if shell == "fish":
        return _fish().replace("@COMMANDS@", offered)
    options = [f'            *" {name} "*) found=({" ".join(found)}) ;;' for name, found in _of_commands().items()]
    options += [f'            *" {name}"*) found=({" ".join(found)}) ;;' for name, found in _of_tasks().items()]
    names = [
        f"            *\" {name} \"*) found=({_LISTED[shell]} 2>/dev/null | sed -n '{text}'){_END[shell]}) ;;"
        for name, text in _NAMES.items()
    ]
    text = {"bash": _BASH, "zsh": _ZSH}[shell]
    text = text.replace("@OPTIONS@", "\n".join(options)).replace("@NAMES@", "\n".join(names))
    return text.replace("@COMMANDS@", offered)


def _fish() -> str:
    options = [
        f'            case "* {name} *"\n                string split " " -- "{" ".join(flags)}"'
        for name, flags in _of_commands().items()
    ]
    options += [
        f'            case "* {name}*"\n                string split " " -- "{" ".join(flags)}"'
        for name, flags in _of_tasks().items()
    ]
    names = [
        f"        case \"* {name} *\"\n            $words[1] list -q 2>/dev/null | sed -n '{text}'"
        for name, text in _NAMES.items()
    ]
    return _FISH.replace("@OPTIONS@", "\n".join(options)).replace("@NAMES@", "\n".join(names))


def _of_commands() -> dict[str, list[str]]:
    """The options of our commands."""
    classes: list[type[FactCommand]] = [Health, List, Logs, Outdated, PlanCommand, Status, Trust, Verify]
    return {one.name: [f"--{option['long']}" for option in one.cmd_options if option.get("long")] for one in classes}


def _of_tasks() -> dict[str, list[str]]:
    """The options of tasks, by how their names begin."""
    found: dict[str, list[str]] = {"lock:update": ["--dry-run"]}
    for option, kind in OF_TASKS.items():
        found.setdefault(kind, []).append(option)
    return found


class Completion(FactCommand):
    """The command `completion`."""

    name = "completion"
    doc_purpose = "print a shell completion script"
    doc_usage = "bash|zsh|fish"
    doc_description = (
        'Use it as: eval "$(doit completion bash)"; in zsh: eval "$(doit completion zsh)";'
        " in fish: doit completion fish | source. It completes doit, and ./doitw in a clone."
    )
    cmd_options = ()

    def execute(self, params: Any, args: Any) -> int:
        """Needs no workspace, so no dodo.py is loaded."""
        del params
        if len(args) != 1 or args[0] not in _SHELLS:
            raise InvalidCommand(spoken("name a shell: doit completion bash, zsh or fish"))
        self.outstream.write(script(args[0], self.loader.cmd_names))
        return 0
