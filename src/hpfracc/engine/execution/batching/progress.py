"""How far along: a bar, or a function that is told."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from hpfracc.errors import InvalidInputError

__all__ = ["Progress", "progress_of"]

#: False for none, True for a bar, or ``told(done, total)``.
Progress = bool | Callable[[int, int], None]


@contextmanager
def progress_of(progress: Progress, total: int, what: str) -> Iterator[Callable[[int], None]]:
    """A function to call with how many more are done."""
    done = 0
    if callable(progress):
        tell = progress

        def count(more: int) -> None:
            nonlocal done
            done += more
            tell(done, total)

        yield count
    elif progress is True:
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as Bar

        with Bar(TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()) as bar:
            task = bar.add_task(what, total=total)
            yield lambda more: bar.advance(task, more)
    elif progress is False:
        yield lambda more: None
    else:
        raise InvalidInputError(f"progress={progress!r} is neither True, False nor a function of (done, total)")
