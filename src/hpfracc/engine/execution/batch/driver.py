"""The driver of all chunked work, and the choice of the next chunk's size.

Work is cut along one axis: of an array in memory, of an array in a file, or of a list of items. A source runs the chunk
from ``begin`` to ``end``, a sink receives its result, and a sizer chooses the size of the next chunk: smaller after one
that ran out of memory.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar

from hpfracc.errors import InvalidInputError

T = TypeVar("T")

#: The search ends within this factor of a size that fails; then this fraction of the size that fits is used.
CLOSE_ENOUGH, SPARE = 1.1, 0.95
#: Number of kinds of work whose size is remembered.
_MAX_REMEMBERED = 1024

#: False for none, True for a progress bar, or ``callback(done, total)``.
Progress = bool | Callable[[int, int], None]


class ChunkTooLargeError(Exception):
    """A chunk did not fit into memory; only used inside the engine."""


def run_chunks(
    length: int,
    sizer: ChunkSizer,
    source: Callable[[int, int], Any],
    sink: Callable[[int, int, Any], None],
    *,
    stuck: Callable[[int, int, ChunkTooLargeError], Any],
    backwards: bool = False,
) -> bool:
    """Run ``length`` points chunk by chunk.

    Parameters
    ----------
    length : int
        Total number of points.
    sizer : ChunkSizer
        Chooses the size of each chunk.
    source : callable
        ``source(begin, end)`` returns the result of a chunk, or raises :class:`ChunkTooLargeError`.
    sink : callable
        ``sink(begin, end, result)`` receives it.
    stuck : callable
        ``stuck(begin, end, error)`` returns the result of a chunk that cannot be smaller, raises, or returns None.
    backwards : bool
        Whether the last chunk comes first.

    Returns
    -------
    bool
        False if ``stuck`` returned None.
    """
    done = 0
    while done < length:
        size = sizer.next(length - done)
        begin = length - done - size if backwards else done
        end = begin + size
        try:
            result = source(begin, end)
        except ChunkTooLargeError as short:
            if sizer.failed(size):
                continue
            result = stuck(begin, end, short)
        if result is None:
            return False
        sink(begin, end, result)
        sizer.succeeded(size)
        done += size
    return True


def round_size(count: int) -> int:
    """The largest of 1, 2, 3, 4, 6, 8, 12, 16, ... up to ``count``: few sizes mean few compilations."""
    if count <= 2:
        return max(1, count)
    power = 1 << (count.bit_length() - 1)
    return power + power // 2 if count >= power + power // 2 else power


def sizes_below(length: int) -> Iterator[int]:
    """The sizes of :func:`round_size` below ``length``, the largest first: two per power of two."""
    while length > 1:
        length = round_size(length - 1)
        yield length


def keep_bounded(known: dict[Hashable, T], key: Hashable, value: T) -> None:
    """Remember a value by the kind of work; a full table starts over."""
    if len(known) >= _MAX_REMEMBERED:
        known.clear()
    known[key] = value


#: A size that fits and one that does not, as far as known in this process.
remembered_sizes: dict[Hashable, tuple[int, int | None]] = {}


class ChunkSizer:
    """Halves the size when memory runs out, then searches for the largest size that fits, to within 10 %.

    Parameters
    ----------
    first : int
        The initial size, as predicted.
    most : int
        The largest size.
    key : Hashable, optional
        Cache key of this kind of work, under which the size found is remembered.
    rounds : bool
        Whether the last chunks are rounded to sizes used before, so that compiled code is reused.

    Notes
    -----
    After an out-of-memory error the size is halved. The first success afterwards starts a search between the largest
    size that fitted and the smallest that did not, until they are within 10 %; then 5 % less than the former is used.
    """

    def __init__(self, first: int, most: int, key: Hashable = None, *, rounds: bool = False) -> None:
        self.most = max(1, most)
        self.good = 0
        self.bad: int | None = None
        self._key = key
        self._rounds = rounds
        known = None if key is None else remembered_sizes.get(key)
        if known is not None and known[1] is not None:
            self.good, self.bad = known
        self.aim_at(max(1, first))

    @property
    def settled(self) -> bool:
        """Whether the search is over."""
        return self.bad is None or self.bad <= max(self.good + 1, CLOSE_ENOUGH * self.good)

    def next(self, left: int) -> int:
        """Size of the next chunk."""
        return min(self.size, round_size(left) if self._rounds and left != self.most else left)

    def aim_at(self, size: int) -> None:
        """Set the size of the next chunk, as predicted."""
        self.size = self._limited(size)

    def succeeded(self, size: int) -> None:
        """Report that a chunk of ``size`` succeeded."""
        if self.bad is not None and size >= self.bad:
            self.bad = None  # a size that failed fits now: memory was freed
        self.good = max(self.good, size)
        self.size = self._limited(self.size)
        self._remember()

    def failed(self, size: int) -> bool:
        """Report that a chunk of ``size`` ran out of memory; returns False if there is nothing smaller to try."""
        self.bad = size if self.bad is None else min(self.bad, size)
        if self.good >= self.bad:
            self.good = 0  # a size that fitted does not now: memory was taken
        if size <= 1:
            return False
        self.size = max(1, min(self.size, size) // 2)
        self._remember()
        return True

    def _limited(self, size: int) -> int:
        if self.bad is None:
            return min(size, self.most)
        if not self.good:
            return max(1, min(size, self.bad - 1, self.most))
        if self.settled:
            return max(1, min(int(SPARE * self.good), self.most))
        return min((self.good + self.bad) // 2, self.most)

    def _remember(self) -> None:
        if self._key is not None and self.good:
            keep_bounded(remembered_sizes, self._key, (self.good, self.bad))


@contextmanager
def progress_of(progress: Progress, total: int, what: str) -> Iterator[Callable[[int], None]]:
    """A function that reports the number of items done since its last call."""
    if progress is True:
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn

        from hpfracc._interrupts import live_bar

        columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
        with live_bar(*columns) as bar:
            yield partial(bar.advance, bar.add_task(what, total=total))
        return
    if progress is not False and (not callable(progress) or isinstance(progress, type)):
        raise InvalidInputError(f"progress={progress!r} is neither True, False nor a function of (done, total)")
    done = 0

    def count(more: int) -> None:
        nonlocal done
        done += more
        if callable(progress) and more:
            progress(done, total)

    yield count
