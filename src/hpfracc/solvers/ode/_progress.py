"""How far a solve is: a bar with the time left, or the user's own function."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["Report", "progress_report"]

#: ``report(t, y)`` with the newest point; ``y`` is made only when asked for.
Report = Callable[[float, Callable[[], Any]], None]


@contextmanager
def progress_report(wish: bool | Callable[..., Any], t0: float, t1: float, title: str) -> Iterator[Report]:
    """What to tell of the newest point, for as long as the block lasts."""
    if callable(wish):
        yield lambda t, y: wish(t, y())
        return
    if not wish:
        yield _ignore
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("[bold]{task.description}"),
        BarColumn(bar_width=28),
        TaskProgressColumn(),
        TextColumn("t = {task.fields[now]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=1.0, now=f"{t0:g}")

        def report(t: float, _: Callable[[], Any]) -> None:
            bar.update(task, completed=(t - t0) / (t1 - t0), now=f"{t:g}")

        yield report


def _ignore(t: float, y: Callable[[], Any]) -> None:
    """Nobody asked."""
