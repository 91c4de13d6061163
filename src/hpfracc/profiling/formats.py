"""Tables and text for a terminal."""

from __future__ import annotations

import os
from typing import Any

#: Columns in a file or a pipe, and the fewest for a table.
_DEFAULT_WIDTH, _MIN_WIDTH = 132, 40


def make_console(*, errors: bool = False) -> Any:
    """A console of ``rich`` on stdout, or on stderr if ``errors``; with a fixed width in a file or a pipe."""
    from rich.console import Console

    # Text may come from files, so markup and emoji codes in it are not interpreted.
    console = Console(stderr=errors, highlight=False, markup=False, emoji=False)
    if not console.is_terminal and not os.environ.get("COLUMNS"):
        console.width = _DEFAULT_WIDTH
    console.width = max(console.width, _MIN_WIDTH)
    return console


def make_table(title: str | None = None, /, **columns: str) -> Any:
    """A table of ``rich`` with columns of ``"text"``, which folds, ``"number"`` or ``"word"``.

    Where it does not fit, it is printed as ``name: value``.
    """
    from hpfracc.profiling.tables import FittingTable

    return FittingTable(title, columns)
