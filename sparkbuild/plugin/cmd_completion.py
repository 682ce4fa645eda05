"""`doit completion bash|zsh`: a completion script for doit and ./doitw in workspaces."""

from __future__ import annotations

from typing import Any

from doit.exceptions import InvalidCommand

from sparkbuild.plugin.command import FactCommand

_COMMANDS = "clean completion forget health help ignore info list logs outdated plan run status trust verify why"
_RECIPE_COMMANDS = "logs|status"
# `lock:update` and `outdated` take what there are tasks `lock:update:...` of: locks, and recipes as `serve:NAME`.
_PINNED = "lock:update|outdated"

# The colon is one of bash's word breaks, so `serve:de<TAB>` arrives as three words: they are joined for matching, and
# what is already typed up to the last colon is cut from the answers.
_BASH = f"""\
_sparkbuild_complete() {{
    local word line prefix
    line="${{COMP_LINE:0:COMP_POINT}}"
    word="${{line##* }}"
    local -a found
    case " $line" in
        *" logs "*|*" status "*)
            found=($("${{COMP_WORDS[0]}}" list -q 2>/dev/null | sed -n 's/^serve:\\([^ ]*\\).*/\\1/p')) ;;
        *" lock:update "*|*" outdated "*)
            found=($("${{COMP_WORDS[0]}}" list -q 2>/dev/null | sed -n 's/^lock:update:\\([^ ]*\\).*/\\1/p')) ;;
        *" completion "*) found=(bash zsh) ;;
        *) found=($("${{COMP_WORDS[0]}}" list -q 2>/dev/null) {_COMMANDS}) ;;
    esac
    COMPREPLY=($(compgen -W "${{found[*]}}" -- "$word"))
    prefix="${{word%"${{word##*:}}"}}"
    COMPREPLY=("${{COMPREPLY[@]#"$prefix"}}")
}}
complete -F _sparkbuild_complete doit ./doitw doitw
"""

_ZSH = f"""\
#compdef doit doitw
_sparkbuild_complete() {{
    local -a tasks commands
    if [[ ${{words[2]}} == ({_RECIPE_COMMANDS}) && CURRENT -gt 2 ]]; then
        tasks=(${{(f)"$(${{words[1]}} list -q 2>/dev/null | sed -n 's/^serve:\\([^ ]*\\).*/\\1/p')"}})
        compadd -a tasks
        return
    fi
    if [[ ${{words[2]}} == ({_PINNED}) && CURRENT -gt 2 ]]; then
        tasks=(${{(f)"$(${{words[1]}} list -q 2>/dev/null | sed -n 's/^lock:update:\\([^ ]*\\).*/\\1/p')"}})
        compadd -a tasks
        return
    fi
    tasks=(${{(f)"$(${{words[1]}} list -q 2>/dev/null | sed 's/ *$//')"}})
    commands=({_COMMANDS})
    compadd -a tasks
    (( CURRENT == 2 )) && compadd -a commands
}}
compdef _sparkbuild_complete doit doitw ./doitw
"""


class Completion(FactCommand):
    """The command `completion`."""

    name = "completion"
    doc_purpose = "print a shell completion script"
    doc_usage = "bash|zsh"
    doc_description = 'Use it as: eval "$(doit completion bash)", or in zsh: eval "$(doit completion zsh)".'
    cmd_options = ()

    def execute(self, params: Any, args: Any) -> int:
        """Needs no workspace, so no dodo.py is loaded."""
        del params
        scripts = {"bash": _BASH, "zsh": _ZSH}
        if len(args) != 1 or args[0] not in scripts:
            raise InvalidCommand("name a shell: doit completion bash, or doit completion zsh")
        self.outstream.write(scripts[args[0]])
        return 0
