"""``hpfracc completion``: print a script with which the shell completes commands, actions and options."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from typing import Any

from hpfracc.cli.answer import Answer, refuse_json

#: zsh runs completions of bash.
_ZSH = "autoload -U +X compinit && compinit\nautoload -U +X bashcompinit && bashcompinit\n"
_BASH = """_hpfracc() {{
    local word words path="" current="${{COMP_WORDS[COMP_CWORD]}}"
    for word in "${{COMP_WORDS[@]:1:COMP_CWORD-1}}"; do
        case "$path/$word" in
            {known}) path="$path/$word" ;;
        esac
    done
    case "$path" in
{cases}
    esac
    COMPREPLY=($(compgen -W "$words" -- "$current"))
}}
complete -o default -F _hpfracc hpfracc
"""


def add_command(commands: Any, summary: str, common: argparse.ArgumentParser) -> None:
    """Add this command to the parser."""
    parser = commands.add_parser("completion", help=summary, parents=[common], allow_abbrev=False)
    parser.add_argument("shell", choices=("bash", "zsh", "fish"), help="the shell: bash, zsh or fish")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> Answer:
    """Print the script."""
    from hpfracc.cli import build_parser

    refuse_json(arguments, "the script")
    words = dict(_words(build_parser(), ()))
    text = _fish(words) if arguments.shell == "fish" else _bash(words)
    if arguments.shell == "zsh":
        text = _ZSH + text
    return Answer({}, None, on_stdout=text.encode())


def _words(parser: argparse.ArgumentParser, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], list[str]]]:
    """What may follow each command and action: the actions of the next level, and the options."""
    choices = parser.get_default("choices") or {}
    options = re.findall(r"(?<![\w-])--[a-z][a-z-]*", parser.format_help())
    yield path, [*choices, *dict.fromkeys(["--help", *options])]
    for name, child in choices.items():
        yield from _words(child, (*path, name))


def _bash(words: dict[tuple[str, ...], list[str]]) -> str:
    paths = {path: "".join(f"/{name}" for name in path) for path in words}
    cases = "\n".join(f'        "{paths[path]}") words="{" ".join(found)}" ;;' for path, found in words.items())
    return _BASH.format(known="|".join(name for name in paths.values() if name), cases=cases)


def _fish(words: dict[tuple[str, ...], list[str]]) -> str:
    lines = []
    for path, found in words.items():
        names = [name for name in found if not name.startswith("-")]
        seen = [f"__fish_seen_subcommand_from {name}" for name in path]
        if names:
            seen.append(f"not __fish_seen_subcommand_from {' '.join(names)}")
        when = f"complete -c hpfracc -n '{'; and '.join(seen)}'"
        lines += [f"{when} -a '{' '.join(names)}'"] if names else []
        lines += [f"{when} -l {name[2:]}" for name in found if name not in names]
    return "\n".join(lines) + "\n"
