"""`gpugrant completion SHELL`: what a shell needs to complete the commands of all our programs.

bash splits words at `=`, `:` and `@` (COMP_WORDBREAKS), which stand in every device name and in `repo@machine`: its
function takes the words from the line itself, and gives back what follows the part that bash keeps.
"""

from __future__ import annotations

from collections.abc import Mapping

import click
from click.shell_completion import get_completion_class

SHELLS = ("bash", "zsh", "fish")

_BASH = r"""
%(function)s() {
    local line="${COMP_LINE:0:$COMP_POINT}" current="${COMP_WORDS[COMP_CWORD]}" kept="" typed last reply
    local IFS=$' \t'
    read -ra typed <<< "$line"
    last=${#typed[@]}
    [[ $line == *[[:blank:]] ]] || last=$((last - 1))
    [[ $current == [=:@] ]] && current=""
    [[ -n ${typed[last]} ]] && kept="${typed[last]%%"$current"}"
    COMPREPLY=()
    while IFS=, read -r kind reply; do
        case $kind in
            plain) COMPREPLY+=("${reply#"$kept"}") ;;
            dir) compopt -o dirnames ;;
            file) compopt -o default ;;
        esac
    done < <(COMP_WORDS="$line" COMP_CWORD=$last %(variable)s=bash_complete %(program)s)
}
complete -o nosort -F %(function)s %(program)s
"""


def script(shell: str, programs: Mapping[str, click.Command]) -> str:
    """The shell's text for these programs by name."""
    return "\n".join(_one(shell, name, command) for name, command in programs.items())


def _one(shell: str, name: str, command: click.Command) -> str:
    variable = f"_{name.upper()}_COMPLETE"
    if shell == "bash":
        return _BASH % {"function": f"_{name}_completion", "variable": variable, "program": name}
    made = get_completion_class(shell)
    if made is None:
        raise ValueError(f"click knows no shell {shell}")
    return made(command, {}, name, variable).source()


def show(shell: str) -> None:
    """Prints it."""
    from gpugrant_operator.cli import gpugrant, rdc, renet

    click.echo(script(shell, {"gpugrant": gpugrant.cli, "rdc": rdc.cli, "renet": renet.cli}))
