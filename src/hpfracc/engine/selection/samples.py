"""The last times of one arm in one size bucket: their typical value, and whether it has changed."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from enum import IntEnum

__all__ = ["KEPT", "Drift", "TimeSamples"]

#: Times kept per arm and bucket (selection.md).
KEPT = 32
#: Number of consecutive times on one side of the band that count as a change, not noise. On ``timings-cpu.json`` noise
#: alone gives such a run once in 1,800 times; with 3, once in 490; with 5 a change is detected one call later.
_RUN = 4
#: The band extends beyond the quartiles by this factor (natural log).
_MARGIN = math.log(1.5)
#: Number of samples of a band, and after which it is updated.
_ENOUGH = 8
#: Minimum uncertainty of a typical time, and the additional one after a single sample (standard deviation of the
#: logarithm, before division by the root of their number). Half or twice the second makes no difference on the stored
#: tables.
_SIGMA, _SIGMA_OF_ONE = 0.05, 0.2


class Drift(IntEnum):
    """Whether a new time agrees with those before it."""

    NONE = 0
    #: Outside the band of the earlier times; the next calls are timed.
    SUSPECTED = 1
    #: Several in a row outside the band: the earlier times were dropped.
    CONFIRMED = 2


class TimeSamples:
    """The last times, as log ratios to the curve, and their typical value. Not thread-safe: the owner locks.

    Ratios make calls of different size in one bucket comparable.

    Notes
    -----
    The *typical* value is midway between the lower quartile and the median. The quartile alone resists more noise, but
    is misled by an arm that is fast one time in three (Numba's parallel loop at 16M elements in ``timings-cpu.json``:
    quartile 1.24 s, mean 1.36 s, against PyTorch's 1.04 s and 1.17 s). With it benchmarks/selection.py misses the bar
    for the settled regret on that table in four of nine runs, midway in one (24 single replays: 2.8 %, at worst 6.3 %,
    against 2.2 % and 4.3 %). The median alone does no better, and fails once half of the times are disturbed.
    """

    __slots__ = ("_age", "_band", "_erratic", "_fresh", "_level", "_run", "_sigma", "ratios", "seconds", "works")

    def __init__(self) -> None:
        self.works: deque[float] = deque(maxlen=KEPT)
        self.seconds: deque[float] = deque(maxlen=KEPT)
        self.ratios: deque[float] = deque(maxlen=KEPT)
        self._band: tuple[float, float] | None = None
        #: Samples since the band was made, and how many of the last ones lie above it (or, negative, below it).
        self._age = self._run = 0
        self._fresh = False
        self._level = self._sigma = 0.0
        self._erratic = False

    def __len__(self) -> int:
        return len(self.ratios)

    def add(self, work: float, seconds: float, ratio: float) -> Drift:
        """Add a time and its log ratio to the curve; returns whether it agrees with those before it."""
        self.works.append(work)
        self.seconds.append(seconds)
        self.ratios.append(ratio)
        self._fresh = False
        self._age += 1
        # Not renewed during a run, which is compared with the times before it.
        if self._age > _ENOUGH and self._run == 0:
            self._renew_band()
        band = self._band
        if band is None or band[0] <= ratio <= band[1]:
            self._run = 0
            return Drift.NONE
        side = 1 if ratio > band[1] else -1
        self._run = self._run + side if self._run * side > 0 else side
        if abs(self._run) < _RUN:
            return Drift.SUSPECTED
        for ring in (self.works, self.seconds, self.ratios):
            kept = list(ring)[-_RUN:]
            ring.clear()
            ring.extend(kept)
        self._run, self._band, self._age = 0, None, _RUN
        return Drift.CONFIRMED

    def rebase(self, ratios: Sequence[float]) -> None:
        """Replace the ratios, because the curve they refer to has changed."""
        self.ratios = deque(ratios, maxlen=KEPT)
        self._run, self._band, self._age, self._fresh = 0, None, len(ratios), False

    @property
    def level(self) -> float:
        """Log of the typical ratio, or of the mean if it exceeds twice that even without the worst time."""
        if not self._fresh:
            self._refresh()
        return self._level

    @property
    def sigma(self) -> float:
        """Standard deviation of :attr:`level`."""
        if not self._fresh:
            self._refresh()
        return self._sigma

    @property
    def erratic(self) -> bool:
        """Whether the mean is above twice the typical time: more samples are needed."""
        if not self._fresh:
            self._refresh()
        return self._erratic

    @property
    def recent_low(self) -> float | None:
        """The last log ratio if it is below the earlier ones, as the arm may have become faster; otherwise None."""
        last = self.ratios[-1]
        if self._band is not None:
            return last if self._run < 0 else None
        return last if len(self.ratios) > 1 and last + _MARGIN < min(list(self.ratios)[:-1]) else None

    def _refresh(self) -> None:
        ordered = sorted(self.ratios)
        count = len(ordered)
        quartile, median = _quantile(ordered, 0.25), _quantile(ordered, 0.5)
        level = 0.5 * (quartile + median)
        erratic = False
        if count >= _ENOUGH:
            # Intermittent costs count. But a single outlier of any size is ignored, and so are costs that have not
            # occurred recently.
            times = [math.exp(ratio) for ratio in self.ratios]
            twice, lately = 2.0 * math.exp(level), times[count // 2 :]
            erratic = sum(times) > twice * count
            if sum(times) - max(times) > twice * (count - 1) and sum(lately) > twice * len(lately):
                level = math.log(sum(times) / count)
        self._level, self._erratic = level, erratic
        self._sigma = (median - quartile + _SIGMA + _SIGMA_OF_ONE / count) / math.sqrt(count)
        self._fresh = True

    def _renew_band(self) -> None:
        ordered = sorted(list(self.ratios)[:-1])
        self._band = _quantile(ordered, 0.25) - _MARGIN, _quantile(ordered, 0.75) + _MARGIN
        self._age = 0


def _quantile(ordered: Sequence[float], share: float) -> float:
    place = (len(ordered) - 1) * share
    below = int(place)
    if below + 1 >= len(ordered):
        return ordered[-1]
    return ordered[below] + (ordered[below + 1] - ordered[below]) * (place - below)
