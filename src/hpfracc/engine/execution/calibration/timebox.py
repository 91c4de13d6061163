"""A box of time, beside which some things may happen without counting: imports and compilations."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["TimeBox"]


class TimeBox:
    """So many seconds, counted from now.

    Parameters
    ----------
    seconds : float
        How long it is; ``math.inf`` for a box that only counts.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.beside = 0.0
        self._begin = time.perf_counter()

    @property
    def spent(self) -> float:
        """Seconds used up, without those spent beside."""
        return time.perf_counter() - self._begin - self.beside

    @property
    def left(self) -> float:
        """Seconds that remain, never below 0."""
        return max(0.0, self.seconds - self.spent)

    @contextmanager
    def pause(self) -> Iterator[None]:
        """What happens inside does not count."""
        begin = time.perf_counter()
        try:
            yield
        finally:
            self.beside += time.perf_counter() - begin
