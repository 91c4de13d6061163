"""The last times seen of one arm in one size bucket: what is typical of them, and whether it changed."""

from __future__ import annotations

import math
from collections import deque
from enum import IntEnum

__all__ = ["KEPT", "Samples", "Verdict"]

#: Times kept per arm and bucket (selection.md).
KEPT = 32
#: This many times in a row, all on one side of the band, are a change and not noise. With 5, one in some 10,000
#: observations of ``timings-cpu.json`` (p99 is 18 times p10) is a false alarm; with 3, one in 300.
_RUN = 5
#: The band is this factor beyond the quartiles (natural log of 1.5).
_MARGIN = math.log(1.5)
_SIGMA0, _SIGMA1 = 0.05, 0.2
#: Fewer than this do not make a band, and the band is renewed after as many.
_ENOUGH = 8


class Verdict(IntEnum):
    """What a new time says about those before it."""

    ORDINARY = 0
    #: Outside the band of the earlier ones; look again soon.
    SUSPICIOUS = 1
    #: So many outside in a row that the earlier ones were dropped.
    DRIFTED = 2


class Samples:
    """A ring of (work, log seconds over what the curve said) with the log of the typical ratio.

    Ratios are kept rather than times, so that calls of different length in one bucket can be compared.
    """

    __slots__ = ("_age", "_band", "_dirty", "_level", "_run", "_sigma", "erratic", "ratios", "seconds", "works")

    def __init__(self) -> None:
        self.works: deque[float] = deque(maxlen=KEPT)
        self.seconds: deque[float] = deque(maxlen=KEPT)
        self.ratios: deque[float] = deque(maxlen=KEPT)
        self._run = self._age = 0
        self._dirty = True
        self._level = self._sigma = 0.0
        self._band: tuple[float, float] | None = None

    def __len__(self) -> int:
        return len(self.ratios)

    def add(self, work: float, seconds: float, ratio: float) -> Verdict:
        """Take one time, its log ratio to the curve given; tell whether it fits those before it."""
        self.works.append(work)
        self.seconds.append(seconds)
        self.ratios.append(ratio)
        self._dirty = True
        self._age += 1
        # Frozen while a run lasts: the run must be judged by what was there before it.
        if self._age > _ENOUGH and self._run == 0:
            self._renew_band()
        band = self._band
        if band is None or band[0] <= ratio <= band[1]:
            self._run = 0
            return Verdict.ORDINARY
        side = 1 if ratio > band[1] else -1
        self._run = self._run + side if self._run * side > 0 else side
        if abs(self._run) < _RUN:
            return Verdict.SUSPICIOUS
        for ring in (self.works, self.seconds, self.ratios):
            kept = list(ring)[-_RUN:]
            ring.clear()
            ring.extend(kept)
        self._run, self._band, self._age = 0, None, _RUN
        return Verdict.DRIFTED

    def rebase(self, ratios: list[float]) -> None:
        """Replace the ratios, because the curve they refer to has changed."""
        self.ratios = deque(ratios, maxlen=KEPT)
        self._run, self._band, self._age, self._dirty = 0, None, len(ratios), True

    @property
    def level(self) -> float:
        """Log of the typical ratio: the lower quartile, or the mean where it stays above twice that."""
        if self._dirty:
            self._refresh()
        return self._level

    @property
    def sigma(self) -> float:
        """How uncertain :attr:`level` is, as a standard deviation of the log."""
        if self._dirty:
            self._refresh()
        return self._sigma

    @property
    def recent_low(self) -> float | None:
        """The last log ratio where it broke out below the band: the arm may have become faster."""
        return self.ratios[-1] if self._run < 0 else None

    def _refresh(self) -> None:
        ordered = sorted(self.ratios)
        count = len(ordered)
        quartile = _STAT(ordered)
        middle = _quantile(ordered, 0.5)
        # Half of the central spread says how well the lower quartile is known; a single time says little.
        self._sigma = (middle - quartile + _SIGMA0 + _SIGMA1 / count) / math.sqrt(count)
        self._level = quartile
        self.erratic = False
        if count >= _ENOUGH:
            times = [math.exp(ratio) for ratio in self.ratios]
            half = count // 2
            older, newer = sum(times[:half]) / half, sum(times[half:]) / (count - half)
            # A cost that comes and goes is still a cost: but only if it came in both halves, not one hiccup.
            self.erratic = max(older, newer) > 2.0 * math.exp(quartile)
            if min(older, newer) > 2.0 * math.exp(quartile):
                self._level = math.log(sum(times) / count)
        self._dirty = False

    def _renew_band(self) -> None:
        ordered = sorted(list(self.ratios)[:-1])
        self._band = _quantile(ordered, 0.25) - _MARGIN, _quantile(ordered, 0.75) + _MARGIN
        self._age = 0


def _quantile(ordered: list[float], share: float) -> float:
    place = (len(ordered) - 1) * share
    below = int(place)
    if below + 1 >= len(ordered):
        return ordered[-1]
    return ordered[below] + (ordered[below + 1] - ordered[below]) * (place - below)


def _p25(o):
    return _quantile(o, 0.25)


def _lower(o):
    h = (len(o) + 1) // 2
    return sum(o[:h]) / h


def _mid(o):
    return 0.5 * (_quantile(o, 0.25) + _quantile(o, 0.5))


def _med(o):
    return _quantile(o, 0.5)


def _band3(o):
    return (_quantile(o, 0.15) + _quantile(o, 0.25) + _quantile(o, 0.35)) / 3


def _trim(o):
    n = len(o)
    return sum(o[i] for i in range(n - n // 4)) / (n - n // 4)


_STAT = _mid
