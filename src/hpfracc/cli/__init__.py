"""The command ``hpfracc``. Each subcommand is a module, whose dependencies are imported when it runs."""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import sys
import warnings
from collections.abc import Callable, Sequence
from importlib import import_module

from hpfracc.cli.answer import Answer, hpfracc_version, printable
from hpfracc.errors import HpfraccError

#: The commands in the order of the help; each is a module of this package.
_COMMANDS = {
    "demo": "run the scripts of the gallery, and write their pictures into one HTML file",
    "info": "show the hardware, the backends, the stored measurements and the settings",
    "calibrate": "time every arm (backend, algorithm, device) on this machine at a few sizes",
    "explain": "show which arm (backend, algorithm, device) a call would use, and why",
    "wisdom": "show, export, import or clear stored measurements",
    "sweep": "resume or export a stored sweep over parameters, or show what is done",
    "profile": "profile a script, render a profile as a page, or compare profiles",
    "completion": "print a script with which the shell completes commands, actions and options",
}

#: Exit statuses: an error, output that cannot be written, an interrupt, a closed pipe.
_ERROR, _UNWRITTEN, _INTERRUPTED, _BROKEN_PIPE = 2, 74, 130, 141


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status; without arguments, print the help.

    Parameters
    ----------
    argv : sequence of str, optional
        The arguments; by default ``sys.argv[1:]``.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.errors == "strict":
            stream.reconfigure(errors="backslashreplace")  # for characters that the encoding lacks
    try:
        return _run(sys.argv[1:] if argv is None else list(argv))
    except KeyboardInterrupt as interrupt:
        _print_error("; ".join(["interrupted", *getattr(interrupt, "__notes__", ())]))
        return _INTERRUPTED


def _run(argv: Sequence[str]) -> int:
    help_text = io.StringIO()
    try:
        with contextlib.redirect_stdout(help_text):  # argparse ignores errors when it prints
            arguments = build_parser().parse_args(argv or ["--help"])
    except SystemExit as end:  # help, the version, or an error that argparse has printed
        if end.code:
            return end.code if isinstance(end.code, int) else _ERROR
        return _print_output(lambda: print(help_text.getvalue(), end=""))
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _show_warning
            answer: Answer = arguments.run(arguments)
            return _print_output(lambda: answer.show(as_json=arguments.json)) or answer.status
    except HpfraccError as error:
        _print_error(f"error: {error}")
        return _ERROR


def _print_output(show: Callable[[], None]) -> int:
    """Print with ``show``; returns 0, or the exit status if stdout cannot be written."""
    try:
        show()
        print(end="", flush=True)  # also where stdout is closed, and None
    except (BrokenPipeError, SystemExit):  # Rich raises SystemExit for a broken pipe
        _drop_output()
        return _BROKEN_PIPE
    except OSError as error:
        _drop_output()
        _print_error(f"error: stdout cannot be written ({error.strerror or error}); redirect it to another file")
        return _UNWRITTEN
    return 0


def _drop_output() -> None:
    """Discard buffered output, which the interpreter would otherwise try to write at exit."""
    with contextlib.suppress(OSError, ValueError):  # stdout may have no file descriptor, as in tests
        descriptor = os.open(os.devnull, os.O_WRONLY)
        os.dup2(descriptor, sys.stdout.fileno())
        os.close(descriptor)


def build_parser() -> argparse.ArgumentParser:
    """Parser of the whole command line."""
    parser = argparse.ArgumentParser(
        prog="hpfracc", description="Fractional calculus at the speed of the hardware.", allow_abbrev=False
    )
    # The short form also makes the column of the help as wide as the longest command.
    parser.add_argument("-V", "--version", action="version", version=f"hpfracc {hpfracc_version()}")
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--json", action="store_true", help="print only JSON")
    commands = parser.add_subparsers(dest="command", metavar="command", required=True)
    for name, summary in _COMMANDS.items():
        module = import_module(f"{__name__}.{name}")
        module.add_command(commands, summary, common)
        text = (module.__doc__ or "").partition(": ")[2]
        commands.choices[name].description = text[:1].upper() + text[1:]
    parser.set_defaults(choices=commands.choices)
    return parser


def _show_warning(message: Warning | str, *_: object, **__: object) -> None:
    _print_error(f"warning: {message}")


def _print_error(text: str) -> None:
    line = printable(" ".join(text.split()))
    with contextlib.suppress(OSError):  # stderr may be full; the exit status still tells
        print(f"hpfracc: {line}", file=sys.stderr, flush=True)
