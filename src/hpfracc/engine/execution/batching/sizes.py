"""How many at a time: few different sizes, halved when memory runs out, then found to within a tenth and remembered."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, NamedTuple, TypeVar

from hpfracc.engine.locks import Guarded

__all__ = [
    "PIECE_SECONDS",
    "ChunkSizer",
    "Prediction",
    "Remembered",
    "largest_that_fits",
    "remembered_sizes",
    "round_size",
]

T = TypeVar("T")

#: How close the search comes to what just fails, and how much of what just fits is left free.
CLOSE_ENOUGH, SPARE = 1.1, 0.95
#: What a piece takes beside its kernel: it is described, decided and bound as a call of its own.
PIECE_SECONDS = 1e-3
#: Kinds of work whose size is remembered.
_MOST_REMEMBERED = 1024


class Prediction(NamedTuple):
    """What a piece is predicted to take: inf where no arm has room for it, 0 where nothing is known.

    ``slow`` says that an arm without room for it would be much quicker.
    """

    seconds: float
    slow: bool = False


def round_size(count: int) -> int:
    """The largest of 1, 2, 3, 4, 6, 8, 12, 16, ... that is at most ``count``: few sizes, few compilations."""
    if count <= 2:
        return max(1, count)
    power = 1 << (count.bit_length() - 1)
    return power + power // 2 if count >= power + power // 2 else power


def largest_that_fits(fits: Callable[[int], bool], most: int) -> int:
    """The largest count up to ``most`` for which ``fits`` holds, to within 1 %; 0 if not even one does."""
    if most < 1 or fits(most):
        return max(0, most)
    low, high = 0, most
    while high - low > max(1, low // 100):
        middle = (low + high) // 2
        if fits(middle):
            low = middle
        else:
            high = middle
    return low


class Remembered(Guarded, Generic[T]):
    """What was found for kinds of work, by a key; the longest unchanged is forgotten. Thread-safe."""

    def __init__(self) -> None:
        super().__init__()
        self._found: OrderedDict[Hashable, T] = OrderedDict()

    def get(self, key: Hashable) -> T | None:
        """What was found, or None."""
        return self._found.get(key)

    def put(self, key: Hashable, value: T) -> None:
        """Remember it."""
        with self._lock:
            self._found[key] = value
            self._found.move_to_end(key)
            while len(self._found) > _MOST_REMEMBERED:
                self._found.popitem(last=False)

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            self._found.clear()


#: (a size that fits, one that does not) as far as known, in this process.
remembered_sizes: Remembered[tuple[int, int | None]] = Remembered()


class ChunkSizer:
    """The size of the next chunk, from what happened to those before.

    Parameters
    ----------
    first : int
        The size to begin with, as predicted.
    most : int
        Never more than this.
    key : Hashable, optional
        A name of this kind of work, under which what is found is remembered.

    Notes
    -----
    After an out-of-memory the size is halved. The first success afterwards starts a search between the largest size
    that fitted and the smallest that did not, until they are within 10 %; then 5 % less than the former is used.
    """

    def __init__(self, first: int, most: int, key: Hashable = None) -> None:
        self.most = max(1, most)
        self.good = 0
        self.bad: int | None = None
        self._key = key
        known = None if key is None else remembered_sizes.get(key)
        if known is not None and known[1] is not None:
            self.good, self.bad = known
        self.size = self._next(max(1, min(first, self.most)))

    @property
    def settled(self) -> bool:
        """Whether nothing is searched for any more."""
        return self.bad is None or self.bad <= max(self.good + 1, CLOSE_ENOUGH * self.good)

    def succeeded(self, size: int) -> None:
        """A chunk of ``size`` went well."""
        if self.bad is not None and size >= self.bad:
            self.bad = None  # what failed then fits now: memory came free
        self.good = max(self.good, size)
        self.size = self._next(self.size)
        self._remember()

    def failed(self, size: int) -> bool:
        """A chunk of ``size`` ran out of memory; False where there is nothing smaller to try."""
        self.bad = size if self.bad is None else min(self.bad, size)
        if self.good >= self.bad:
            self.good = 0  # what fitted then does not now: memory was taken
        if size <= 1:
            return False
        self.size = max(1, min(self.size, size) // 2)
        self._remember()
        return True

    def _next(self, size: int) -> int:
        if self.bad is None:
            return min(size, self.most)
        if not self.good:
            return max(1, min(size, self.bad - 1, self.most))
        if self.settled:
            return max(1, min(int(SPARE * self.good), self.most))
        return min((self.good + self.bad) // 2, self.most)

    def _remember(self) -> None:
        if self._key is not None and self.good:
            remembered_sizes.put(self._key, (self.good, self.bad))
