"""Times, sizes and percentages for people, and tables for a terminal."""

from __future__ import annotations

import math
import os
from typing import Any

#: Width of output to a file or a pipe.
_WIDTH_ELSEWHERE = 120


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


def show(renderable: Any) -> None:
    """Print to the terminal, or with a fixed width to a file or a pipe."""
    from rich.console import Console

    console = Console(highlight=False)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = _WIDTH_ELSEWHERE
    console.print(renderable, markup=False)


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
