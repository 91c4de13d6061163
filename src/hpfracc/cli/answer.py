"""Output of a command: as text for people or JSON for programs, and a progress bar on stderr."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hpfracc._files import to_json
from hpfracc._interrupts import live_bar
from hpfracc.errors import InvalidInputError
from hpfracc.profiling.formats import make_console

#: File names that mean stdout.
_STDOUT = ("-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1")

#: ``report(fraction, text)``: fraction of the work that is done, and a description of the current step.
Report = Callable[[float, str], None]


@dataclass(frozen=True, slots=True)
class Answer:
    """Result of a command.

    Attributes
    ----------
    data : Mapping
        The result as plain values, for ``--json``.
    view : callable or None
        Returns the result as a Rich renderable; not called with ``--json``. None prints nothing.
    status : int
        The exit status.
    on_stdout : bytes or None
        A file that the user asked to be written to stdout. The view then goes to stderr.
    """

    data: Mapping[str, Any]
    view: Callable[[], Any] | None
    status: int = 0
    on_stdout: bytes | None = None

    def show(self, *, as_json: bool) -> None:
        """Print the result."""
        if self.on_stdout is not None:
            sys.stdout.write(self.on_stdout.decode("utf-8", "backslashreplace"))
        if as_json and self.on_stdout is None:
            print(json.dumps(to_json(self.data), indent=2, allow_nan=False))
        elif not as_json and self.view is not None:
            make_console(errors=self.on_stdout is not None).print(_Printable(self.view()))


def is_stdout(path: Path) -> bool:
    """Whether an output path means stdout."""
    return str(path) in _STDOUT


def refuse_json(arguments: argparse.Namespace, what: str) -> None:
    """Raise an error if both JSON and ``what`` are to be written to stdout."""
    if arguments.json:
        raise InvalidInputError(f"--json and {what} cannot both go to stdout; omit --json, or name a file")


def add_action(
    actions: Any, common: argparse.ArgumentParser, name: str, run: Callable[[argparse.Namespace], Answer], words: str
) -> argparse.ArgumentParser:
    """Add an action of a command, such as ``hpfracc wisdom show``."""
    action: argparse.ArgumentParser = actions.add_parser(
        name, help=words, description=f"{words[0].upper()}{words[1:]}.", parents=[common], allow_abbrev=False
    )
    action.set_defaults(run=run)
    return action


def names(text: str) -> list[str]:
    """The names in a text, separated by commas."""
    return [name.strip() for name in text.split(",") if name.strip()]


def make_folder(folder: Path, option: str) -> None:
    """Create a folder that an option names."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidInputError(
            f"folder {str(folder)!r} cannot be created ({error.strerror or error}); name another with {option}"
        ) from None


class _Printable:
    """A view whose text contains no control characters; Rich's own styles still apply."""

    def __init__(self, view: Any) -> None:
        self._view = view

    def __rich_console__(self, console: Any, options: Any) -> Any:
        from rich.segment import Segment

        for segment in console.render(self._view, options):
            yield segment if segment.control else Segment(printable(segment.text), segment.style)


def printable(text: str) -> str:
    """Replace escapes, control characters and surrogates by U+FFFD."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() or each == "\n" else "\ufffd" for each in text)


@contextmanager
def progress_bar(title: str) -> Iterator[Report]:
    """Context manager for a progress bar on stderr. Shows nothing if stderr is not a terminal."""
    if not sys.stderr.isatty():
        yield _ignore
        return
    with live_bar(title, 1.0, "{task.elapsed:.1f} s", "{task.fields[doing]}", counts=False, doing="") as update:
        yield lambda share, text: update(completed=min(max(share, 0.0), 1.0), doing=text.replace("[", r"\["))


def _ignore(fraction: float, text: str) -> None:
    """Do nothing."""


def hpfracc_version() -> str:
    """``hpfracc.__version__``. Read from ``sys.modules``, because modules must not import the package's root."""
    return str(sys.modules[__name__.partition(".")[0]].__version__)
