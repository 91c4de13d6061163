"""A comparison as a table in a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hpfracc.profiling.formats import format_seconds

if TYPE_CHECKING:
    from rich.console import RenderableType

__all__ = ["comparison_table"]

_STYLES = {"slower": "bold red", "faster": "bold green", "inconclusive": "dim"}


def comparison_table(told: dict[str, Any]) -> RenderableType:
    """Every path with its verdict, from what ``Comparison.to_dict`` tells."""
    from rich import box
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("span", overflow="fold", min_width=16)
    for name in ("before", "after", "ratio", "repeats"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    table.add_column("why", overflow="fold")
    for row in told["rows"]:
        table.add_row(
            Text(" > ".join(row["path"])),
            format_seconds(row["before"]),
            format_seconds(row["after"]),
            "-" if row["ratio"] is None else f"{row['ratio']:.2f}x",
            "+".join(map(str, row["repeats"])),
            Text(row["verdict"], style=_STYLES[row["verdict"]]),
            Text(row["reason"]),
        )
    return Group(table, Text("  " + ", ".join(f"{count} {verdict}" for verdict, count in told["verdicts"].items())))
