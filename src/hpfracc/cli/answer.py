"""What a command has to say: for people, or as JSON for programs."""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType, RenderResult

__all__ = ["Answer", "is_stdout", "make_console", "plain", "printable"]

#: Columns of a table that goes into a file or a pipe, and the range that ``COLUMNS`` may set: in less no table can be
#: read.
_WIDTH_ELSEWHERE = 132
_NARROWEST, _WIDEST = 40, 10_000
#: Names of stdout that a command may be given for a file.
_STDOUT = ("-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1")


@dataclass(frozen=True, slots=True)
class Answer:
    """The outcome of a command.

    Attributes
    ----------
    data : Mapping
        Everything, as plain values.
    view : callable
        Makes what a person sees in a terminal; only called where one looks.
    status : int
        The exit status.
    on_stdout : bytes or None
        What the user asked to be written to stdout. What a person sees goes to stderr then.
    """

    data: Mapping[str, Any]
    view: Callable[[], RenderableType]
    status: int = 0
    on_stdout: bytes | None = None

    def show(self, *, as_json: bool) -> None:
        """Print it."""
        if self.on_stdout is not None:
            sys.stdout.write(self.on_stdout.decode("utf-8", "backslashreplace"))
        if as_json and self.on_stdout is None:
            print(json.dumps(plain(self.data), indent=2, allow_nan=False))
        elif not as_json:
            make_console(errors=self.on_stdout is not None).print(_Printable(self.view()))


def is_stdout(path: Path) -> bool:
    """Whether a file that a command is to write stands for stdout."""
    return str(path) in _STDOUT


def make_console(*, errors: bool = False) -> Console:
    """A console on stdout, or on stderr; wide where no terminal sets a width."""
    from rich.console import Console

    stream = sys.stderr if errors else sys.stdout
    width, height = _size(stream)
    # What is shown may come from files: brackets and colons in it mean nothing.
    return Console(stderr=errors, width=width, height=height, highlight=False, markup=False, emoji=False)


def _size(stream: TextIO) -> tuple[int, int]:
    """Columns and lines: as ``COLUMNS`` says, else of the terminal, else wide."""
    width, height = _WIDTH_ELSEWHERE, 25
    if stream.isatty():
        try:
            width, height = os.get_terminal_size(stream.fileno())
        except (OSError, ValueError):  # a terminal that only says so
            width = 0
        width, height = width or 80, height or 25
    wanted = os.environ.get("COLUMNS", "")
    if wanted.isascii() and wanted.isdigit() and wanted.strip("0"):
        width = int(wanted[:9])
    return min(max(width, _NARROWEST), _WIDEST), height


class _Printable:
    """What a command shows, with nothing in it that a terminal would obey but its own styles."""

    def __init__(self, view: RenderableType) -> None:
        self._view = view

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from rich.segment import Segment

        for segment in console.render(self._view, options):
            yield segment if segment.control else Segment(printable(segment.text), segment.style)


def printable(text: str) -> str:
    """The text with a question mark in a box for what cannot be printed: escapes, control characters, surrogates."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() or each == "\n" else "\ufffd" for each in text)


def plain(value: Any) -> Any:
    """The value with nothing in it that JSON does not have: numbers that are not finite become None."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        items = sorted(value) if isinstance(value, set | frozenset) else value
        return [plain(item) for item in items]
    return value
