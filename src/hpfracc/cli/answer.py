"""What a command has to say: for people, or as JSON for programs."""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

__all__ = ["Answer", "make_console", "plain"]

#: Columns of a table that goes into a file or a pipe.
_WIDTH_ELSEWHERE = 132


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
    """

    data: Mapping[str, Any]
    view: Callable[[], RenderableType]
    status: int = 0

    def show(self, *, as_json: bool) -> None:
        """Print it."""
        if as_json:
            print(json.dumps(plain(self.data), indent=2, allow_nan=False))
        else:
            make_console().print(self.view(), markup=False)


def make_console(*, errors: bool = False) -> Console:
    """A console on stdout, or on stderr; wide where no terminal sets a width."""
    from rich.console import Console

    stream = sys.stderr if errors else sys.stdout
    width = None if stream.isatty() or "COLUMNS" in os.environ else _WIDTH_ELSEWHERE
    return Console(stderr=errors, width=width, highlight=False)


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
