"""The command ``hpfracc``. Each subcommand is a file; what it needs is imported when it runs."""

from __future__ import annotations

import argparse
import contextlib
import errno
import io
import os
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from typing import TYPE_CHECKING

from hpfracc.cli.answer import printable
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

#: What a shell expects of a command that was refused, could not write its answer, was interrupted, or whose reader
#: went away.
_REFUSED, _UNWRITTEN, _INTERRUPTED, _BROKEN_PIPE = 2, 74, 130, 141


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status.

    Parameters
    ----------
    argv : sequence of str, optional
        The arguments; those of the process by default.
    """
    with _usable_streams() as stdout_is_open:
        try:
            return _run(sys.argv[1:] if argv is None else list(argv), stdout_is_open)
        except KeyboardInterrupt:
            _complain("interrupted")
            return _INTERRUPTED


def _run(argv: Sequence[str], stdout_is_open: bool) -> int:
    said = io.StringIO()
    try:
        with contextlib.redirect_stdout(said):  # argparse hides that it could not print
            arguments = build_parser().parse_args(argv)
    except SystemExit as end:  # help, the version, or a mistake that argparse has explained
        if end.code:
            return end.code if isinstance(end.code, int) else _REFUSED
        return _deliver(lambda: print(said.getvalue(), end=""), stdout_is_open)
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _show_warning
            answer: Answer = arguments.run(arguments)
            return _deliver(lambda: answer.show(as_json=arguments.json), stdout_is_open) or answer.status
    except HpfraccError as error:
        _complain(f"error: {error}")
        return _REFUSED


def _deliver(show: Callable[[], None], stdout_is_open: bool) -> int:
    """Print by ``show``; 0, or the exit status where that cannot be done."""
    try:
        if not stdout_is_open:
            raise OSError(errno.EBADF, "it is closed")
        show()
        sys.stdout.flush()
    except (BrokenPipeError, SystemExit):  # the latter is how Rich says it
        _drop_output()
        return _BROKEN_PIPE
    except OSError as error:
        _drop_output()
        _complain(f"error: stdout cannot be written ({error.strerror or error}); give the answer somewhere to go")
        return _UNWRITTEN
    return 0


def _drop_output() -> None:
    """Let what is left in the buffer go nowhere; without this the interpreter would complain at its end."""
    with contextlib.suppress(OSError, ValueError):  # a stdout without a file, as in tests
        descriptor = os.open(os.devnull, os.O_WRONLY)
        os.dup2(descriptor, sys.stdout.fileno())
        os.close(descriptor)


@contextlib.contextmanager
def _usable_streams() -> Iterator[bool]:
    """Standard streams that can be asked and written to, even if the shell closed them; whether stdout is open.

    What an encoding lacks is written as an escape rather than being an error.
    """
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:  # the next file to be opened would get its number, and what is printed
            os.open(os.devnull, os.O_RDWR)
    before = sys.stdin, sys.stdout, sys.stderr
    with open(os.devnull, "r+", encoding="utf-8") as nowhere:
        sys.stdin, sys.stdout, sys.stderr = (nowhere if stream is None else stream for stream in before)
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper) and stream.errors == "strict":
                stream.reconfigure(errors="backslashreplace")
        try:
            yield before[1] is not None
        finally:
            sys.stdin, sys.stdout, sys.stderr = before


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
    line = printable(" ".join(text.split()))
    with contextlib.suppress(OSError):  # a stderr that is full; the status tells
        print(f"hpfracc: {line}", file=sys.stderr, flush=True)
