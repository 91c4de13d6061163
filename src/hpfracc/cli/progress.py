"""A progress bar on stderr, where a person is watching."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from hpfracc.cli.answer import make_console

__all__ = ["Report", "progress_bar"]

#: ``report(share, text)``: how much of the work is done, between 0 and 1, and what is being done now.
Report = Callable[[float, str], None]


@contextmanager
def progress_bar(title: str) -> Iterator[Report]:
    """A bar for as long as the block lasts; nothing where stderr is not a terminal."""
    if not sys.stderr.isatty():
        yield _ignore
        return
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("[bold]{task.description}"),
        BarColumn(bar_width=28),
        TimeElapsedColumn(),
        TextColumn("[dim]{task.fields[doing]}", markup=True),
    )
    with Progress(*columns, console=make_console(errors=True), transient=True) as bars:
        task = bars.add_task(title, total=1.0, doing="")

        def report(share: float, text: str) -> None:
            bars.update(task, completed=min(max(share, 0.0), 1.0), doing=text.replace("[", r"\["))

        yield report


def _ignore(share: float, text: str) -> None:
    """Nobody is watching."""
