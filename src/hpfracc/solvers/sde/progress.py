"""Progress of Monte Carlo methods: finished paths, the mean so far with its standard error, and the remaining time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from hpfracc._interrupts import interrupt_scope, raise_if_nested
from hpfracc.errors import InvalidInputError

#: Minimum number of chunks if progress is shown.
MIN_REPORTS = 20


def read_progress(progress: Any) -> None:
    """Raise an error unless ``progress`` is True, False or a function."""
    if not (isinstance(progress, bool) or callable(progress)):
        raise InvalidInputError(f"progress={progress!r}: use True, False, or a function")


def run_path_chunks(
    count: int,
    rows: int,
    chunk: Callable[[int, int], tuple[float, float] | None],
    progress: bool | Callable[..., Any],
    title: str,
) -> int:
    """Follow all paths in chunks, and show the progress; after Ctrl-C stop at the finished ones.

    Parameters
    ----------
    count, rows : int
        Number of paths, and of those in a chunk.
    chunk : callable
        ``chunk(low, high)`` follows these paths, and returns the mean so far with its standard error, or None.
    progress : bool or callable
        What the user asked for.
    title : str
        Title of the progress bar.

    Returns
    -------
    int
        Number of finished paths.
    """
    done = 0
    with interrupt_scope(), _progress(progress, count, title) as report:
        try:
            while done < count:
                high = min(count, done + rows)
                found = chunk(done, high)
                if found is not None:
                    report(high, *found)
                done = high
        except KeyboardInterrupt:
            raise_if_nested()
    return done


@contextmanager
def _progress(wish: bool | Callable[..., Any], count: int, title: str) -> Iterator[Callable[[int, float, float], None]]:
    """Reports finished paths, and the mean so far with its standard error, while the block runs."""
    if callable(wish):
        yield lambda done, mean, error: wish(done, count, mean, error)
        return
    if not wish:
        yield lambda done, mean, error: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn

    from hpfracc._interrupts import live_bar

    columns = (
        TextColumn("[bold]{task.description}"),
        BarColumn(bar_width=28),
        MofNCompleteColumn(),
        TextColumn("{task.fields[found]}"),
        TimeRemainingColumn(),
    )
    with live_bar(*columns) as bar:
        task = bar.add_task(title, total=count, found="")

        def report(done: int, mean: float, error: float) -> None:
            bar.update(task, completed=done, found=f"mean {mean:.5g} +- {error:.2g}")

        yield report
