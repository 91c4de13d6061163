"""Leak detection: a robust slope over a window of readings, which ignores a warm-up that levels off.

Readings go up and down with every temporary, so only the lowest reading of each interval counts: memory that is never
released. Their slope is the median of the slopes between all pairs (Theil and Sen), which is robust to outliers. It is
a leak if that slope is as steep at the end of the window as at its start; while a cache fills or a program warms up,
it flattens.

References
----------
.. [1] P. K. Sen, "Estimates of the regression coefficient based on Kendall's tau", J. Amer. Statist. Assoc. 63 (1968)
   1379-1389.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

__all__ = ["Growth", "find_growth", "robust_slope"]

#: Maximum and minimum seconds of readings.
WINDOW, SHORTEST = 300.0, 60.0
#: Number of intervals, of which the lowest reading counts, and minimum number of readings.
_BINS, _FEWEST = 12, 24
#: Bytes per second below which growth is ignored: 230 MB per hour.
SLOWEST = 64 * 1024
#: Minimum final slope relative to the initial one, and minimum growth relative to the scatter.
_STEADY, _CLEAR = 0.6, 4.0

Verdict = Literal["steady", "growing", "levelling off", "unknown"]


@dataclass(frozen=True, slots=True)
class Growth:
    """Growth of memory over a window of readings.

    Attributes
    ----------
    verdict : {"steady", "growing", "levelling off", "unknown"}
        ``growing`` is what a leak looks like; ``unknown`` while there are too few readings.
    bytes_per_second : float
        The robust slope; nan while unknown.
    seconds : float
        Length of the window.
    growers : Mapping[str, float]
        Spans and operations during which memory grew in that time, in bytes per second, the fastest first.
    """

    verdict: Verdict
    bytes_per_second: float
    seconds: float
    growers: Mapping[str, float] = field(default_factory=dict)

    @property
    def is_leak(self) -> bool:
        """Whether memory grows without a sign of stopping."""
        return self.verdict == "growing"

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)


def robust_slope(points: Sequence[tuple[float, float]]) -> float:
    """The median slope between all pairs of points; nan for fewer than two."""
    slopes = [(b[1] - a[1]) / (b[0] - a[0]) for i, a in enumerate(points) for b in points[i + 1 :] if b[0] > a[0]]
    return statistics.median(slopes) if slopes else float("nan")


def find_growth(readings: Sequence[tuple[float, float]], slowest: float = SLOWEST) -> Growth:
    """Judge ``(seconds, bytes)`` readings, oldest first.

    The whole window is used, then its last half and quarter, so that growth after a warm-up is found before the warm-up
    has left the window.
    """
    if len(readings) < _FEWEST or readings[-1][0] - readings[0][0] < SHORTEST:
        return Growth("unknown", float("nan"), 0.0)
    end = readings[-1][0]
    whole = end - readings[0][0]
    first: Growth | None = None
    for share in (1.0, 0.5, 0.25):
        recent = [reading for reading in readings if reading[0] >= end - share * whole]
        if len(recent) < _FEWEST or recent[-1][0] - recent[0][0] < SHORTEST:
            break
        found = _judge(recent, slowest)
        if found.verdict == "growing":
            return found
        if share < 1.0 and found.verdict == "steady":
            return found  # earlier growth has stopped
        first = first or found
    assert first is not None  # the whole window is long enough
    return first


def _judge(readings: Sequence[tuple[float, float]], slowest: float) -> Growth:
    floor = _floors(readings)
    seconds = readings[-1][0] - readings[0][0]
    slope = robust_slope(floor)
    middle = statistics.median(point[0] for point in floor)
    level = statistics.median(point[1] for point in floor)
    scatter = statistics.median(abs(y - level - slope * (x - middle)) for x, y in floor)
    if slope < slowest or slope * seconds < _CLEAR * scatter:
        return Growth("steady", slope, seconds)
    third = len(floor) // 3
    early, late = robust_slope(floor[: third + 1]), robust_slope(floor[-third - 1 :])
    if late < slowest or late < _STEADY * early:
        return Growth("levelling off", slope, seconds)
    return Growth("growing", slope, seconds)


def _floors(readings: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """The lowest reading of each of equal intervals of time."""
    begin, length = readings[0][0], (readings[-1][0] - readings[0][0]) / _BINS
    lowest: dict[int, tuple[float, float]] = {}
    for moment, size in readings:
        place = min(_BINS - 1, int((moment - begin) / length))
        if place not in lowest or size < lowest[place][1]:
            lowest[place] = (moment, size)
    return [lowest[place] for place in sorted(lowest)]
