"""The driver of all chunked work, and the choice of the next chunk's size.

Work is cut along one axis: of an array in memory, of an array in a file, or of a list of items. A source runs the chunk
from ``begin`` to ``end``, a sink receives its result, and a sizer chooses the size of the next chunk: smaller after one
that ran out of memory.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from hpfracc._interrupts import live_bar
from hpfracc.errors import InvalidInputError

T = TypeVar("T")

#: Number of kinds of work about which something is remembered.
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


class ChunkSizer:
    """The size of the next chunk: as predicted, and half of it after each one that ran out of memory.

    Parameters
    ----------
    first : int
        The initial size, as predicted.
    most : int
        The largest size.
    rounds : bool
        Whether the last chunks are rounded to sizes used before, so that compiled code is reused.
    """

    def __init__(self, first: int, most: int, *, rounds: bool = False) -> None:
        self.most = max(1, most)
        self._rounds = rounds
        self.aim_at(first)

    def next(self, left: int) -> int:
        """Size of the next chunk."""
        return min(self.size, round_size(left) if self._rounds and left != self.most else left)

    def aim_at(self, size: int) -> None:
        """Set the size of the next chunk, as predicted."""
        self.size = max(1, min(size, self.most))

    def failed(self, size: int) -> bool:
        """Report that a chunk of ``size`` ran out of memory; returns False if there is nothing smaller to try."""
        self.size = max(1, min(self.size, size) // 2)
        return size > 1


@contextmanager
def progress_of(progress: Progress, total: int, what: str) -> Iterator[Callable[[int], None]]:
    """A function that reports the number of items done since its last call."""
    if progress is True:
        with live_bar(what, total) as update:
            yield lambda more: update(advance=more)
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
