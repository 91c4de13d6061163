"""Building blocks of the demo's chapters. Each renders itself as HTML, and some also in a terminal."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType

__all__ = ["Block", "Cell", "Chapter", "Code", "Figures", "Heading", "TableBlock", "Words", "escape", "inline_html"]

_CODE = re.compile(r"`([^`]+)`")

escape = html.escape


class Block(Protocol):
    """A part of the page."""

    def to_html(self) -> str:
        """The block as HTML, with all text escaped."""


@dataclass(frozen=True)
class Chapter:
    """One chapter of the demo: its blocks in order, and its data as plain values for ``--json``."""

    name: str
    title: str
    blocks: Sequence[Block]
    data: Mapping[str, Any]


def inline_html(text: str) -> str:
    """Text as HTML, with text between backticks as code."""
    return _CODE.sub(r"<code>\1</code>", escape(text))


@dataclass(frozen=True)
class Heading:
    """A heading, with an optional line below it."""

    text: str
    below: str = ""

    def to_html(self) -> str:
        """An ``h3``."""
        below = f'<p class="below">{inline_html(self.below)}</p>' if self.below else ""
        return f"<h3>{inline_html(self.text)}</h3>{below}"


@dataclass(frozen=True)
class Words:
    """Paragraphs."""

    paragraphs: Sequence[str]

    def to_html(self) -> str:
        """One ``p`` per paragraph."""
        return "".join(f"<p>{inline_html(text)}</p>" for text in self.paragraphs)


@dataclass(frozen=True)
class Code:
    """Lines of code."""

    text: str

    def to_html(self) -> str:
        """A ``pre``."""
        return f"<pre><code>{escape(self.text)}</code></pre>"


@dataclass(frozen=True)
class Figures:
    """A few prominent numbers: (number, description)."""

    figures: Sequence[tuple[str, str]]

    def to_html(self) -> str:
        """A row of tiles."""
        tiles = "".join(
            f'<div class="figure"><strong>{inline_html(number)}</strong><span>{inline_html(what)}</span></div>'
            for number, what in self.figures
        )
        return f'<div class="figures">{tiles}</div>'

    def __rich__(self) -> RenderableType:
        from rich.table import Table
        from rich.text import Text

        grid = Table.grid(padding=(0, 2))
        grid.add_column(justify="right", no_wrap=True)
        grid.add_column()
        for number, what in self.figures:
            grid.add_row(Text(number, style="bold green"), Text(what.replace("`", "")))
        return grid


@dataclass(frozen=True)
class Cell:
    """A cell of a :class:`TableBlock`: text, a remark below it, CSS classes, and a Rich style."""

    text: str
    remark: str = ""
    kind: str = ""
    style: str = ""


@dataclass(frozen=True)
class TableBlock:
    """A table. Columns whose name starts with ``>`` are numbers. On a narrow page each row becomes a block."""

    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    foot: Sequence[Cell] = ()
    notes: Sequence[str] = field(default_factory=tuple)

    def to_html(self) -> str:
        """A ``table``. Cells carry the name of their column, for narrow pages."""
        names = [name.removeprefix(">") for name in self.columns]
        numbers = [name.startswith(">") for name in self.columns]

        def row(cells: Sequence[Cell], head: bool = False) -> str:
            tags = []
            for position, (cell, name, number) in enumerate(zip(cells, names, numbers, strict=True)):
                kind = " ".join(part for part in ("number" if number else "", cell.kind) if part)
                attribute = f' class="{escape(kind)}"' if kind else ""
                remark = f"<small>{inline_html(cell.remark)}</small>" if cell.remark else ""
                tag = "th" if position == 0 and not head else "td"
                scope = ' scope="row"' if tag == "th" else ""
                content = f"<span>{inline_html(cell.text)}{remark}</span>"
                tags.append(f'<{tag}{scope}{attribute} data-label="{escape(name)}">{content}</{tag}>')
            return f"<tr>{''.join(tags)}</tr>"

        head = "".join(
            f'<th scope="col"{" class=number" if number else ""}>{inline_html(name)}</th>'
            for name, number in zip(names, numbers, strict=True)
        )
        foot = f"<tfoot>{row(self.foot)}</tfoot>" if self.foot else ""
        notes = "".join(f"<li>{inline_html(note)}</li>" for note in self.notes)
        below = f'<ul class="notes">{notes}</ul>' if notes else ""
        return (
            f"<table><caption>{inline_html(self.caption)}</caption><thead><tr>{head}</tr></thead>"
            f"<tbody>{''.join(row(cells) for cells in self.rows)}</tbody>{foot}</table>{below}"
        )

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        from rich.measure import Measurement
        from rich.text import Text

        table = self._draw(remarks=True)
        if Measurement.get(console, options, table).minimum > options.max_width:
            table = self._draw(remarks=False)
        yield table
        for note in self.notes:
            yield Text(f"  {note.replace('`', '')}", style="dim")

    def _draw(self, *, remarks: bool) -> RenderableType:
        from rich import box
        from rich.table import Table

        table = Table(
            title=self.caption.replace("`", ""), title_justify="left", title_style="bold", box=box.SIMPLE_HEAD
        )
        for name in self.columns:
            number = name.startswith(">")
            table.add_column(name.removeprefix(">"), justify="right" if number else "left", no_wrap=True)
        rows = [*self.rows, *([self.foot] if self.foot else [])]
        for position, cells in enumerate(rows):
            table.add_row(*(_rich_cell(cell, remarks) for cell in cells))
            if self.foot and position == len(self.rows) - 1:
                table.add_section()
        return table


def _rich_cell(cell: Cell, remarks: bool) -> RenderableType:
    from rich.text import Text

    text = Text(cell.text.replace("`", ""), style=cell.style)
    if cell.remark and remarks:
        text.append(f" {cell.remark}", style="dim")
    return text
