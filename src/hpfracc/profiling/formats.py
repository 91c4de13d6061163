"""Times, sizes and percentages for people, and tables of summaries and bottlenecks for a terminal."""

from __future__ import annotations

import math
import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import RenderableType

    from hpfracc.profiling.document import Document

__all__ = [
    "bottleneck_table", "format_bytes", "format_seconds", "format_share", "make_table", "show", "summary_table",
]  # fmt: skip

#: Rows shown by default, and the width of output to a file or a pipe.
_MAX_ROWS = 30
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


def show(renderable: RenderableType) -> None:
    """Print to the terminal, or with a fixed width to a file or a pipe."""
    from rich.console import Console

    console = Console(highlight=False)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = _WIDTH_ELSEWHERE
    console.print(renderable, markup=False)


def make_table(**columns: str) -> Any:
    """A table of ``rich`` with these columns: ``"text"``, which folds, ``"number"``, or ``"word"``."""
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for name, kind in columns.items():
        if kind == "text":
            table.add_column(name, overflow="fold", min_width=16)
        else:
            table.add_column(name, justify="right" if kind == "number" else "left", no_wrap=True)
    return table


def summary_table(document: Document, rows: int = _MAX_ROWS) -> RenderableType:
    """The names with the largest self time, and a breakdown of the whole run."""
    from rich.console import Group
    from rich.text import Text

    numbers = ("calls", "total", "self", "mean", "p50", "p95", "device", "peak")
    table = make_table(span="text", **dict.fromkeys(numbers, "number"))
    items = list(document.summary.items())
    for name, row in items[:rows]:
        device = format_seconds(row["device"])
        if row["device"] is None and row["device_at_most"] is not None:
            device = f"<{format_seconds(row['device_at_most'])}"
        table.add_row(
            Text(name),
            f"{row['count']:,}",
            *(format_seconds(row[key]) for key in ("total", "self", "mean", "p50", "p95")),
            device,
            format_bytes(row["memory_peak"]),
        )
    parts: list[RenderableType] = [table]
    if len(items) > rows:
        parts.append(Text(f"  and {len(items) - rows:,} more names", style="dim"))
    return Group(*parts, Text(_whole(document)))


def _whole(document: Document) -> str:
    whole = document.breakdown
    wall = whole.wall or 1
    shares = {"host": whole.host, "transfers": whole.transfer, "compilation": whole.compile}
    shares |= {"idle": whole.idle, "profiler": whole.overhead}
    parts = [f"{name} {format_share(value / wall)}" for name, value in shares.items() if value]
    parts += [f"{device} busy {format_share(share)}" for device, share in whole.utilisation().items()]
    text = f"  {format_seconds(whole.wall / 1e9)} in total: {', '.join(parts) or 'nothing recorded'}"
    if document.dropped:
        text += f"\n  {document.dropped:,} older spans were dropped; increase the capacity to keep them"
    return text


def bottleneck_table(document: Document, top: int) -> RenderableType:
    """The names with the largest self time, with advice; then advice on the whole run."""
    from rich.console import Group
    from rich.text import Text

    table = make_table(rank="number", span="text", self="number", share="number", calls="number", advice="text")
    told: set[str] = set()
    for number, row in enumerate(document.bottlenecks(top), start=1):
        told.update(row["advice"])
        figures = format_seconds(row["self"]), format_share(row["share"]), f"{row['count']:,}"
        table.add_row(str(number), Text(row["name"]), *figures, Text("\n".join(row["advice"]) or "-"))
    rest = [Text(f"  {remark['text']}") for remark in document.advice if remark["text"] not in told]
    return Group(table, *rest)
