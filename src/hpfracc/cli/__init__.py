"""The command ``hpfracc``. Each subcommand is a file; what it needs is imported when it runs."""

from __future__ import annotations

import argparse
import os
import sys
import warnings
from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING

from hpfracc.cli.version import library_version
from hpfracc.errors import HpfraccError

if TYPE_CHECKING:
    from hpfracc.cli.answer import Answer

__all__ = ["build_parser", "main"]

#: The commands in the order in which the help shows them; each is a module of this folder.
_COMMANDS = {
    "demo": "what the engine chooses here, derivatives, lattices and a profile, as a report of one page",
    "info": "what this machine has, which backends can be used, and what is known already",
    "calibrate": "time every arm on this machine, within a box of time",
    "explain": "say which arm a call would take, and why",
    "bench": "compare what the engine chooses with the best there is",
    "wisdom": "show, share or forget what was learned",
    "profile": "run a script with spans on, show a profile as a page, compare two",
}

#: What a shell expects of a command that was refused, interrupted, or whose reader went away.
_REFUSED, _INTERRUPTED, _BROKEN_PIPE = 2, 130, 141


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status.

    Parameters
    ----------
    argv : sequence of str, optional
        The arguments; those of the process by default.
    """
    try:
        arguments = build_parser().parse_args(sys.argv[1:] if argv is None else list(argv))
    except SystemExit as end:  # help, the version, or a mistake that argparse has explained
        return end.code if isinstance(end.code, int) else _REFUSED
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _show_warning
            answer: Answer = arguments.run(arguments)
            answer.show(as_json=arguments.json)
            sys.stdout.flush()
    except HpfraccError as error:
        _complain(f"error: {error}")
        return _REFUSED
    except KeyboardInterrupt:
        _complain("interrupted")
        return _INTERRUPTED
    except BrokenPipeError:
        # Whatever is left in the buffer has no reader; without this the interpreter would complain at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _BROKEN_PIPE
    return answer.status


def build_parser() -> argparse.ArgumentParser:
    """The parser of the whole command line."""
    parser = argparse.ArgumentParser(
        prog="hpfracc", description="Fractional calculus at the speed of the hardware.", allow_abbrev=False
    )
    parser.add_argument("--version", action="version", version=f"hpfracc {library_version()}")
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--json", action="store_true", help="print JSON and nothing else")
    commands = parser.add_subparsers(dest="command", metavar="command", required=True)
    for name, summary in _COMMANDS.items():
        module = import_module(f"{__name__}.{name}")
        module.add_command(commands, summary, common)
    return parser


def _show_warning(message: Warning | str, *_: object, **__: object) -> None:
    _complain(f"warning: {message}")


def _complain(text: str) -> None:
    line = " ".join(text.split())
    print(f"hpfracc: {line}", file=sys.stderr)
