"""Times of one arm: a curve through knots by work, and the last times in one size bucket.

The curve is linear between knots in log-log coordinates. A fitted ``a + b * n**c`` leads to twice as many wrong
choices, because of caches and threads.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum

from hpfracc.errors import InvalidInputError

#: Limits of the slope beyond the outermost knots: time does not decrease with work, and hardly grows faster than work.
#: Below the first knot a steep slope would predict times that no call can reach.
_MAX_RIGHT_SLOPE, _MAX_LEFT_SLOPE = 1.5, 1.0
#: An outer slope is computed over at least this range of work (natural log), and averaged with a slope of 1 over the
#: same range: with noise, two close knots could give any slope.
_SPAN = math.log(4.0)
#: Resolution of the clock.
_TICK = 1e-9


def log_work(x: float) -> float:
    """Natural logarithm of the work; an empty call counts as one step."""
    return math.log(x) if x > 1.0 else 0.0


def log_seconds(seconds: float) -> float:
    """Natural logarithm of a time; 0 counts as a nanosecond."""
    return math.log(seconds) if seconds > _TICK else math.log(_TICK)


def check_seconds(seconds: float) -> None:
    """Raise :class:`InvalidInputError` unless ``seconds`` is a time."""
    if not 0.0 <= seconds < math.inf:  # also false for nan
        raise InvalidInputError(f"seconds={seconds!r} is not a time; use a finite number of at least 0")


class Curve:
    """The logarithm of the time as a function of the logarithm of the work.

    Parameters
    ----------
    points : iterable of (log work, log seconds)
        Knots, at least one; of several at one work, the last counts.
    """

    __slots__ = ("_left", "_right", "_xs", "_ys")

    def __init__(self, points: Iterable[tuple[float, float]]) -> None:
        knots = sorted(dict(points).items())
        self._xs = [x for x, _ in knots]
        self._ys = [y for _, y in knots]
        outwards = range(len(knots) - 1, -1, -1)
        self._left = min(max(self._outer_slope(outwards[::-1]), 0.0), _MAX_LEFT_SLOPE)
        self._right = min(max(self._outer_slope(outwards), 0.0), _MAX_RIGHT_SLOPE)

    def _outer_slope(self, inwards: range) -> float:
        xs, ys, end = self._xs, self._ys, inwards[0]
        inner = end
        for inner in inwards[1:]:
            if abs(xs[inner] - xs[end]) >= _SPAN:
                break
        run, rise = xs[inner] - xs[end], ys[inner] - ys[end]
        return (math.copysign(1.0, run) * rise + _SPAN) / (abs(run) + _SPAN)

    def at(self, x: float) -> float:
        """Log seconds at log work ``x``."""
        xs, ys = self._xs, self._ys
        right = bisect_right(xs, x)
        if right == 0:
            return ys[0] + self._left * (x - xs[0])
        if right == len(xs):
            return ys[-1] + self._right * (x - xs[-1])
        x0, y0 = xs[right - 1], ys[right - 1]
        return y0 + (ys[right] - y0) * (x - x0) / (xs[right] - x0)

    def distance(self, x: float) -> float:
        """Distance of ``x`` from the nearest knot, in log work."""
        return min(abs(x - knot) for knot in self._xs)

    def beyond(self, x: float) -> float:
        """Distance of ``x`` beyond the outermost knots, in log work; 0 between them."""
        return max(self._xs[0] - x, x - self._xs[-1], 0.0)


def extended(calibrated: Mapping[float, float], prior: Mapping[float, float]) -> Curve | None:
    """The calibrated curve, extended beyond its ends by the prior's, shifted to join it.

    Both map work to seconds. None if there is no knot at all.
    """
    known = {log_work(x): log_seconds(seconds) for x, seconds in calibrated.items()}
    guess = {log_work(x): log_seconds(seconds) for x, seconds in prior.items()}
    if known and guess:
        first, last = min(known), max(known)
        shape = Curve(guess.items())
        below, above = known[first] - shape.at(first), known[last] - shape.at(last)
        known.update({x: y + below for x, y in guess.items() if x < first})
        known.update({x: y + above for x, y in guess.items() if x > last})
    points = known or guess
    return Curve(points.items()) if points else None


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

    __slots__ = ("_age", "_band", "_known", "_run", "ratios", "seconds", "works")

    def __init__(self) -> None:
        self.works: deque[float] = deque(maxlen=KEPT)
        self.seconds: deque[float] = deque(maxlen=KEPT)
        self.ratios: deque[float] = deque(maxlen=KEPT)
        self._band: tuple[float, float] | None = None
        #: Samples since the band was made, and how many of the last ones lie above it (or, negative, below it).
        self._age = self._run = 0
        self._known: tuple[float, float, bool] | None = None

    def __len__(self) -> int:
        return len(self.ratios)

    def add(self, work: float, seconds: float, ratio: float) -> Drift:
        """Add a time and its log ratio to the curve; returns whether it agrees with those before it."""
        self.works.append(work)
        self.seconds.append(seconds)
        self.ratios.append(ratio)
        self._known = None
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
        self._run, self._band, self._age, self._known = 0, None, len(ratios), None

    @property
    def level(self) -> float:
        """Log of the typical ratio, or of the mean if it exceeds twice that even without the worst time."""
        return self._summary()[0]

    @property
    def sigma(self) -> float:
        """Standard deviation of :attr:`level`."""
        return self._summary()[1]

    @property
    def erratic(self) -> bool:
        """Whether the mean is above twice the typical time: more samples are needed."""
        return self._summary()[2]

    @property
    def recent_low(self) -> float | None:
        """The last log ratio if it is below the earlier ones, as the arm may have become faster; otherwise None."""
        last = self.ratios[-1]
        if self._band is not None:
            return last if self._run < 0 else None
        return last if len(self.ratios) > 1 and last + _MARGIN < min(list(self.ratios)[:-1]) else None

    def _summary(self) -> tuple[float, float, bool]:
        """Level, sigma, and whether the times are erratic."""
        if self._known is not None:
            return self._known
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
        sigma = (median - quartile + _SIGMA + _SIGMA_OF_ONE / count) / math.sqrt(count)
        self._known = level, sigma, erratic
        return self._known

    def _renew_band(self) -> None:
        ordered = sorted(list(self.ratios)[:-1])
        self._band = _quantile(ordered, 0.25) - _MARGIN, _quantile(ordered, 0.75) + _MARGIN
        self._age = 0


def lower_quartile(samples: Sequence[float]) -> float:
    """The 25th percentile: the time of an undisturbed call, robust against a single lucky one."""
    return sorted(samples)[(len(samples) - 1) // 4]


def _quantile(ordered: Sequence[float], share: float) -> float:
    place = (len(ordered) - 1) * share
    below = int(place)
    if below + 1 >= len(ordered):
        return ordered[-1]
    return ordered[below] + (ordered[below + 1] - ordered[below]) * (place - below)
