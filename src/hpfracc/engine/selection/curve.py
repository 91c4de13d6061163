"""Time against work, straight between knots on log-log paper.

A fitted ``a + b * n**c`` makes twice as many wrong choices: caches and threads bend the curve.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Mapping

__all__ = ["Curve", "extended", "log_seconds", "log_work"]

#: Beyond the outermost knots the slope is kept within these: time does not fall as work grows, and grows little faster
#: than it; below the first knot a steep slope would promise microseconds that no call can have.
_RIGHT_SLOPES = (0.0, 1.5)
_LEFT_SLOPES = (0.0, 1.0)
#: An outer slope is read over at least this span of work (natural log), and mixed with a slope of 1 over as much: two
#: knots close together and a little noise would give any slope at all.
_SPAN = math.log(4.0)
#: No clock resolves less.
_TICK = 1e-9


def log_work(x: float) -> float:
    """Natural log of the work; an empty call counts as one step."""
    return math.log(x) if x > 1.0 else 0.0


def log_seconds(seconds: float) -> float:
    """Natural log of a time; 0 counts as a nanosecond."""
    return math.log(seconds) if seconds > _TICK else math.log(_TICK)


class Curve:
    """The log of the time as a function of the log of the work.

    Parameters
    ----------
    points : iterable of (log work, log seconds)
        Knots, at least one; the last one given for a place counts.
    slope : float
        The slope to assume where there is a single knot.
    """

    __slots__ = ("_left", "_right", "_xs", "_ys")

    def __init__(self, points: Iterable[tuple[float, float]], slope: float = 1.0) -> None:
        knots = sorted(dict(points).items())
        self._xs = [x for x, _ in knots]
        self._ys = [y for _, y in knots]
        self._left = _clamp(self._outer_slope(range(len(knots)), slope), _LEFT_SLOPES)
        self._right = _clamp(self._outer_slope(range(len(knots) - 1, -1, -1), slope), _RIGHT_SLOPES)

    def _outer_slope(self, inwards: range, default: float) -> float:
        xs, ys, end = self._xs, self._ys, inwards[0]
        inner = end
        for inner in inwards[1:]:
            if abs(xs[inner] - xs[end]) >= _SPAN:
                break
        run = abs(xs[inner] - xs[end])
        rise = (ys[inner] - ys[end]) * (1.0 if xs[inner] > xs[end] else -1.0)
        return (rise + default * _SPAN) / (run + _SPAN)

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

    def within(self, x: float) -> float:
        """Like :meth:`at`, but flat beyond the outermost knots."""
        return self.at(min(max(x, self._xs[0]), self._xs[-1]))

    def distance(self, x: float) -> float:
        """How far ``x`` lies from the nearest knot, in log work."""
        xs = self._xs
        right = bisect_right(xs, x)
        if right == 0:
            return xs[0] - x
        if right == len(xs):
            return x - xs[-1]
        return min(x - xs[right - 1], xs[right] - x)

    def beyond(self, x: float) -> float:
        """How far ``x`` lies beyond the outermost knots, in log work; 0 between them."""
        return max(self._xs[0] - x, x - self._xs[-1], 0.0)


def extended(calibrated: Mapping[float, float], prior: Mapping[float, float]) -> Curve | None:
    """The calibrated curve, carried on beyond its ends by the shape of the prior, shifted to meet it.

    Both map log work to log seconds. None if there is no knot at all.
    """
    if not calibrated:
        return Curve(prior.items()) if prior else None
    if not prior:
        return Curve(calibrated.items())
    first, last = min(calibrated), max(calibrated)
    shape = Curve(prior.items())
    below, above = calibrated[first] - shape.at(first), calibrated[last] - shape.at(last)
    points = {x: y + below for x, y in prior.items() if x < first}
    points.update((x, y + above) for x, y in prior.items() if x > last)
    points.update(calibrated)
    return Curve(points.items())


def _clamp(value: float, limits: tuple[float, float]) -> float:
    return min(max(value, limits[0]), limits[1])
