"""Tables that a narrow terminal shows as ``name: value``. The only module that imports ``rich`` when it is loaded."""

from __future__ import annotations

from rich import box
from rich.columns import Columns
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.measure import Measurement
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

#: The fewest characters of a column of text, whose longest word is not broken up to the second number.
_LEAST, _WORD = 16, 32
#: The most characters of values that are aligned over all rows.
_ALIGNED = 24
_ENDLESS = 10_000


class FittingTable(Table):
    """A table in which no number, unit or name is cut: where it does not fit, each row is a list of its values."""

    def __init__(self, title: str | None, columns: dict[str, str]) -> None:
        look = {"box": box.SIMPLE_HEAD, "padding": (0, 1, 0, 0)}
        super().__init__(title=title, title_justify="left", title_style="bold", **look)  # type: ignore[arg-type]
        for name, kind in columns.items():
            if kind == "text":
                self.add_column(name, overflow="fold", min_width=_LEAST)
            else:
                self.add_column(name, justify="right" if kind == "number" else "left", no_wrap=True)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """The table, or its rows as lists; both end with an empty line, and one stands before a title."""
        if self.title:
            yield Text("")
        endless = options.update_width(_ENDLESS)
        width = Measurement.get(console, endless, self).maximum
        for column in self.columns:
            if not column.no_wrap:
                sizes = [Measurement.get(console, endless, cell) for cell in (column.header, *column.cells)]
                column.min_width = min(max(_LEAST, *(size.minimum for size in sizes)), _WORD)
                width -= max(0, max(size.maximum for size in sizes) - column.min_width)
        if width <= options.max_width:
            yield from super().__rich_console__(console, options)
        else:
            yield from self._lists()

    def _lists(self) -> RenderResult:
        """Each row as its name and values, aligned over all rows; text takes lines of its own."""
        if self.title:
            yield Text(str(self.title), style="bold")
        head = next((each for each in self.columns if each.header and each.justify == "left"), self.columns[0])
        rows = list(zip(*(each.cells for each in self.columns), strict=True))
        named = [
            [
                (each, Text.assemble(f"{each.header}: ", _text(cell)))
                for each, cell in zip(self.columns, row, strict=True)
                if each.header and each is not head and str(cell) not in ("", "-")
            ]
            for row in rows
        ]
        longest = max((len(text) for row in named for each, text in row if each.no_wrap), default=1)
        width = longest if longest <= _ALIGNED else None
        for row, found, look in zip(rows, named, self.rows, strict=True):
            marks = (cell for each, cell in zip(self.columns, row, strict=True) if not each.header or each is head)
            name = Text(" ").join(_text(cell) for cell in marks if str(cell))
            name.stylize(look.style or "bold")
            name.overflow = "fold"
            short = [text for each, text in found if each.no_wrap]
            yield Group(name, *([Padding(Columns(short, padding=(0, 2), width=width), (0, 0, 0, 2))] if short else []))
            yield from (Padding(text, (0, 0, 0, 2)) for each, text in found if not each.no_wrap)
        yield Text("")


def _text(cell: RenderableType) -> Text:
    return cell if isinstance(cell, Text) else Text(str(cell))
