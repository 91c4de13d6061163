"""Tables of summaries and bottlenecks for a terminal."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from hpfracc.profiling.formats import format_bytes, format_seconds, format_share

if TYPE_CHECKING:
    from rich.console import RenderableType

    from hpfracc.profiling.document import Document

__all__ = ["bottleneck_table", "show", "summary_table"]

#: Rows shown by default, and the width of output to a file or a pipe.
_MAX_ROWS = 30
_WIDTH_ELSEWHERE = 120


def show(renderable: RenderableType) -> None:
    """Print to the terminal, or with a fixed width to a file or a pipe."""
    from rich.console import Console

    console = Console(highlight=False)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = _WIDTH_ELSEWHERE
    console.print(renderable, markup=False)


def summary_table(document: Document, rows: int = _MAX_ROWS) -> RenderableType:
    """The names with the largest self time, and a breakdown of the whole run."""
    from rich import box
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("span", overflow="fold", min_width=16)
    for name in ("calls", "total", "self", "mean", "p50", "p95", "device", "peak"):
        table.add_column(name, justify="right", no_wrap=True)
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
    parts = [
        f"{name} {format_share(value / wall)}"
        for name, value in (
            ("host", whole.host),
            ("transfers", whole.transfer),
            ("compilation", whole.compile),
            ("idle", whole.idle),
            ("profiler", whole.overhead),
        )
        if value
    ]
    parts += [f"{device} busy {format_share(share)}" for device, share in whole.utilisation().items()]
    text = f"  {format_seconds(whole.wall / 1e9)} in total: {', '.join(parts) or 'nothing recorded'}"
    if document.dropped:
        text += f"\n  {document.dropped:,} older spans were dropped; increase the capacity to keep them"
    return text


def bottleneck_table(document: Document, top: int) -> RenderableType:
    """The names with the largest self time, with advice; then advice on the whole run."""
    from rich import box
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD)
    table.add_column("", justify="right")
    table.add_column("span", overflow="fold")
    for name in ("self", "share", "calls"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("advice", overflow="fold")
    told: set[str] = set()
    for number, row in enumerate(document.bottlenecks(top), start=1):
        told.update(row["advice"])
        table.add_row(
            str(number),
            Text(row["name"]),
            format_seconds(row["self"]),
            format_share(row["share"]),
            f"{row['count']:,}",
            Text("\n".join(row["advice"]) or "-"),
        )
    rest = [Text(f"  {remark['text']}") for remark in document.advice if remark["text"] not in told]
    return Group(table, *rest)
