"""Times, sizes and percentages for people, and tables for a terminal."""

from __future__ import annotations

import math
import os
from typing import Any

#: Columns in a file or a pipe, and the fewest for a table.
_DEFAULT_WIDTH, _MIN_WIDTH = 132, 40


def format_seconds(seconds: float | None) -> str:
    """A time with a suitable unit; ``-`` if it is unknown (None, nan) or infinite."""
    if seconds is None or not math.isfinite(seconds):
        return "-"
    for scale, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "us")):
        if abs(seconds) >= scale:
            return f"{seconds / scale:.3g} {unit}" if abs(seconds) < 1000.0 else f"{seconds:,.0f} s"
    return "0" if seconds == 0 else f"{seconds * 1e9:.3g} ns"


def format_bytes(size: float | None) -> str:
    """A number of bytes with a suitable unit; ``-`` if it is unknown."""
    if size is None:
        return "-"
    for scale, unit in ((2**40, "TiB"), (2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
        if abs(size) >= scale:
            return f"{size / scale:.3g} {unit}"
    return f"{size:.0f} B"


def format_share(share: float) -> str:
    """A fraction as a percentage."""
    return f"{share:.0%}" if share >= 0.1 or share == 0 else f"{share:.1%}"


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
    """A table of ``rich`` with these columns: ``"text"``, which folds, ``"number"``, or ``"word"``."""
    from rich import box
    from rich.table import Table

    table = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for name, kind in columns.items():
        if kind == "text":
            table.add_column(name, overflow="fold", min_width=16)
        else:
            table.add_column(name, justify="right" if kind == "number" else "left", no_wrap=True)
    return table
