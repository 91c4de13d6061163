"""Time as a function of work: linear interpolation between knots in log-log coordinates.

A fitted ``a + b * n**c`` leads to twice as many wrong choices, because of caches and threads.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Mapping

from hpfracc.errors import InvalidInputError

__all__ = ["Curve", "check_seconds", "extended", "log_seconds", "log_work"]

#: Limits of the slope beyond the outermost knots: time does not decrease with work, and hardly grows faster than work.
#: Below the first knot a steep slope would predict times that no call can reach.
_RIGHT_SLOPES = (0.0, 1.5)
_LEFT_SLOPES = (0.0, 1.0)
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
        self._left = _clamp(self._outer_slope(range(len(knots))), _LEFT_SLOPES)
        self._right = _clamp(self._outer_slope(range(len(knots) - 1, -1, -1)), _RIGHT_SLOPES)

    def _outer_slope(self, inwards: range) -> float:
        xs, ys, end = self._xs, self._ys, inwards[0]
        inner = end
        for inner in inwards[1:]:
            if abs(xs[inner] - xs[end]) >= _SPAN:
                break
        run, rise = xs[inner] - xs[end], ys[inner] - ys[end]
        if run < 0.0:
            run, rise = -run, -rise
        return (rise + _SPAN) / (run + _SPAN)

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
        xs = self._xs
        right = bisect_right(xs, x)
        if right == 0:
            return xs[0] - x
        if right == len(xs):
            return x - xs[-1]
        return min(x - xs[right - 1], xs[right] - x)

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


def _clamp(value: float, limits: tuple[float, float]) -> float:
    return min(max(value, limits[0]), limits[1])
