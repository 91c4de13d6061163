"""How the time of one arm grows from size to size: whether the next one is worth trying, and can be afforded."""

from __future__ import annotations

import math

__all__ = ["Growth"]

#: Time grows at most a little faster than work: caches overflow.
_STEEPEST = 1.2


class Growth:
    """Times of one arm along its work, in the order of the work."""

    def __init__(self) -> None:
        self._points: list[tuple[float, float]] = []

    def add(self, work: float, seconds: float) -> None:
        """Take a measured time."""
        self._points.append((math.log(max(work, 1.0)), math.log(max(seconds, 1e-9))))
        self._points.sort()

    def least(self, work: float) -> float:
        """Seconds it takes at the very least, as far as can be told; 0 where nothing can."""
        return self._at(work, alone=0.0, steepest=1.0)

    def most(self, work: float) -> float:
        """Seconds it takes at worst; 0 where nothing is known."""
        return self._at(work, alone=1.0, steepest=_STEEPEST, flattest=1.0)

    def expected(self, work: float) -> float:
        """Seconds to expect; 0 where nothing is known, so that it is tried first."""
        return self._at(work, alone=0.5, steepest=1.0)

    def _at(self, work: float, *, alone: float, steepest: float, flattest: float = 0.0) -> float:
        points, x = self._points, math.log(max(work, 1.0))
        if not points:
            return 0.0
        below = [point for point in points if point[0] <= x]
        above = [point for point in points if point[0] > x]
        if below and above:
            (x0, y0), (x1, y1) = below[-1], above[0]
            return math.exp(y0 + (y1 - y0) * (x - x0) / (x1 - x0))
        if above:  # smaller than anything seen
            return math.exp(above[0][1])
        slope = alone
        if len(below) > 1 and below[-1][0] > below[-2][0]:
            (x0, y0), (x1, y1) = below[-2:]
            slope = (y1 - y0) / (x1 - x0)
        slope = min(max(slope, flattest), steepest)
        return math.exp(below[-1][1] + slope * (x - below[-1][0]))
