"""Predicted costs: run times from calibrated knots and measured samples, transfers from observed copies.

The curve through knots is linear between them in log-log coordinates. A fitted ``a + b * n**c`` leads to twice as many
wrong choices, because of caches and threads.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import defaultdict, deque
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal, NamedTuple

from hpfracc._interrupts import Guarded
from hpfracc.engine.selection.rent_or_buy import RentOrBuy, check_seconds, log_work

Source = Literal["samples", "knots", "prior", "none"]

#: Limits of the slope beyond the outermost knots: time does not decrease with work, and hardly grows faster than work.
#: Below the first knot a steep slope would predict times that no call can reach.
_MAX_RIGHT_SLOPE, _MAX_LEFT_SLOPE = 1.5, 1.0
#: An outer slope is computed over at least this range of work (natural log), and averaged with a slope of 1 over the
#: same range: with noise, two close knots could give any slope.
_SPAN = math.log(4.0)
#: Resolution of the clock.
_TICK = 1e-9


def log_seconds(seconds: float) -> float:
    """Natural logarithm of a time; 0 counts as a nanosecond."""
    return math.log(seconds) if seconds > _TICK else math.log(_TICK)


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

    def bend(self, x: float) -> float:
        """How far below the line between two knots the time may be: constant up to a bend, then growing like work."""
        xs, ys, right = self._xs, self._ys, bisect_right(self._xs, x)
        if not 0 < right < len(xs):
            return 0.0
        return max(self.at(x) - max(ys[right - 1], ys[right] - xs[right] + x), 0.0)

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
#: Number of consecutive times on one side of the band of the earlier ones that count as a change, not noise, and the
#: minimum number of those. On ``timings-cpu.json`` noise alone gives such a run once in 1,800 times; with 3, once in
#: 490; with 5 a change is detected one call later.
_RUN, _ENOUGH = 4, 8
#: The band extends beyond the quartiles by this factor (natural log).
_MARGIN = math.log(1.5)
#: Minimum uncertainty of a typical time, and the additional one after a single sample (standard deviation of the
#: logarithm, before division by the root of their number). Half or twice the second makes no difference on the stored
#: tables.
_SIGMA, _SIGMA_OF_ONE = 0.05, 0.2


class Typical(NamedTuple):
    """The logarithm of the typical time, its standard deviation, and whether the mean is above twice that time."""

    level: float
    sigma: float
    erratic: bool


def typical(ratios: Sequence[float]) -> Typical:
    """The typical value of the logarithms of times: midway between the lower quartile and the median.

    The quartile alone resists more noise, but is misled by an arm that is fast one time in three (Numba's parallel loop
    at 16M elements in ``timings-cpu.json``: quartile 1.24 s, mean 1.36 s, against PyTorch's 1.04 s and 1.17 s). With it
    benchmarks/selection.py misses the bar for the settled regret on that table in four of nine runs, midway in one.
    The median alone does no better, and fails once half of the times are disturbed.
    """
    ordered, count = sorted(ratios), len(ratios)
    quartile, median = _quantile(ordered, 0.25), _quantile(ordered, 0.5)
    level = 0.5 * (quartile + median)
    sigma = (median - quartile + _SIGMA + _SIGMA_OF_ONE / count) / math.sqrt(count)
    if count < _ENOUGH:
        return Typical(level, sigma, False)
    # Intermittent costs count. But a single outlier of any size is ignored, and so are costs that have not occurred
    # recently.
    times = [math.exp(ratio) for ratio in ratios]
    twice, lately = 2.0 * math.exp(level), times[count // 2 :]
    erratic = sum(times) > twice * count
    if sum(times) - max(times) > twice * (count - 1) and sum(lately) > twice * len(lately):
        level = math.log(sum(times) / count)
    return Typical(level, sigma, erratic)


def find_change(ratios: Sequence[float]) -> tuple[bool, int]:
    """Whether the last time disagrees with those before it, and how many outdated ones to drop."""
    earlier, last = sorted(ratios[:-_RUN]), ratios[-_RUN:]
    if len(earlier) < _ENOUGH:
        return False, 0
    low, high = _quantile(earlier, 0.25) - _MARGIN, _quantile(earlier, 0.75) + _MARGIN
    changed = min(last) > high or max(last) < low
    return not low <= last[-1] <= high, len(earlier) if changed else 0


#: The weight of the curve, in samples: a calibrated knot was measured on this machine, a packaged prior was not.
_KNOT_WEIGHT = 0.5
_PRIOR_WEIGHT = 0.1
#: Standard deviation of the log at a knot, and its growth per doubling of the work towards the next and beyond the
#: last. With every other size of ``timings-h200.json`` left out, half of the errors two doublings away are below 0.2
#: and two thirds below 0.3. A prior was measured on another machine.
_KNOT_SIGMA, _KNOT_SIGMA_PER_DOUBLING = 0.15, 0.05
_BEYOND_SIGMA_PER_DOUBLING = 0.15
_PRIOR_SIGMA = 0.7
#: Between knots far apart, the uncertainty is at least this share of the distance down to a curve with one bend. With 0
#: a size of ``timings-h200.json`` whose time is predicted 7.6 times too high is never tried, with a random half of the
#: sizes calibrated; with 0.5 more is tried than pays.
_BEND_SHARE = 0.4
#: The same if only samples of other sizes exist.
_NEIGHBOUR_SIGMA, _NEIGHBOUR_SIGMA_PER_DOUBLING = 0.3, 0.2
#: Maximum number of cached estimates per key.
_CACHED = 256
_DOUBLING = math.log(2.0)


class CostEstimate(NamedTuple):
    """A predicted run time.

    Attributes
    ----------
    seconds : float
        The typical time; ``nan`` if nothing is known.
    low, high : float
        One standard deviation to either side.
    samples : int
        Times measured in this bucket.
    source : {"samples", "knots", "prior", "none"}
        Its origin; ``"samples"`` with ``samples=0`` means samples of other sizes.
    erratic : bool
        Whether the times measured here vary so much that more are needed.
    """

    seconds: float
    low: float
    high: float
    samples: int
    source: Source
    erratic: bool = False


_NOTHING = CostEstimate(math.nan, 0.0, math.inf, 0, "none")


class _Entry:
    """Everything known about one key."""

    __slots__ = ("buckets", "cache", "calibrated", "curve", "prior")

    def __init__(self) -> None:
        #: Seconds by work.
        self.calibrated: dict[float, float] = {}
        self.prior: dict[float, float] = {}
        self.curve: Curve | None = None
        #: The last times in each bucket: logarithms of work and seconds.
        self.buckets: dict[Hashable, deque[tuple[float, float]]] = {}
        self.cache: dict[tuple[Hashable, float, float], CostEstimate] = {}

    def ratios(self, bucket: Hashable) -> list[float]:
        """The times of a bucket relative to the curve, so that calls of different size in it are comparable.

        Without a curve, time is assumed to be proportional to work.
        """
        curve = self.curve
        return [y - (x if curve is None else curve.at(x)) for x, y in self.buckets[bucket]]


class CostModel(Guarded):
    """Run and compile times of every arm, learned and calibrated. Thread-safe.

    A *key* is anything hashable that names what is timed, in practice (operation, arm, where the operands start,
    dtype). Its knots and samples cover the whole call as it starts there, transfers included, unless an option says
    otherwise (see :class:`~hpfracc.engine.selection.costs.Option`). A *bucket* is anything hashable that groups calls
    of about one size, and ``x`` the amount of work, along which time is interpolated.

    Parameters
    ----------
    compiling : RentOrBuy, optional
        The account of compile times; a new one by default.
    """

    def __init__(self, compiling: RentOrBuy | None = None) -> None:
        super().__init__()
        self._entries: dict[Hashable, _Entry] = {}
        self.compiling = RentOrBuy() if compiling is None else compiling

    def add_knot(self, key: Hashable, x: float, seconds: float, *, prior: bool = False) -> None:
        """Add a calibrated point of the curve of ``key``, or one of a packaged prior.

        Calibrated knots replace those of the prior within their range; beyond it the shape of the prior is used.
        """
        check_seconds(seconds)
        with self._lock:
            entry = self._entry(key)
            (entry.prior if prior else entry.calibrated)[x] = seconds
            entry.curve = extended(entry.calibrated, entry.prior)
            entry.cache.clear()

    def observe(self, key: Hashable, bucket: Hashable, x: float, seconds: float) -> bool:
        """Learn a measured run time; returns whether it disagrees with those before it.

        After several in a row that do, the older ones are dropped.
        """
        check_seconds(seconds)
        with self._lock:
            entry = self._entry(key)
            points = entry.buckets.setdefault(bucket, deque(maxlen=KEPT))
            points.append((log_work(x), log_seconds(seconds)))
            unusual, outdated = find_change(entry.ratios(bucket))
            for _ in range(outdated):
                points.popleft()
            entry.cache.clear()
            return unusual

    def estimate(self, key: Hashable, bucket: Hashable, x: float, extra: float = 0.0) -> CostEstimate:
        """Predict the run time of ``key`` at work ``x`` in ``bucket``.

        ``extra`` seconds (of transfers that the knots do not include) are added to the prediction of the knots, never
        to measured times.
        """
        entry = self._entries.get(key)
        if entry is None:
            return _NOTHING
        place = (bucket, x, extra)
        known = entry.cache.get(place)
        if known is None:
            with self._lock:
                known = self._predict(entry, bucket, log_work(x), extra)
                if len(entry.cache) >= _CACHED:
                    entry.cache.clear()
                entry.cache[place] = known
        return known

    def _entry(self, key: Hashable) -> _Entry:
        return self._entries.setdefault(key, _Entry())

    def _predict(self, entry: _Entry, bucket: Hashable, x: float, extra: float) -> CostEstimate:
        curve, trusted = entry.curve, bool(entry.calibrated)
        found = typical(entry.ratios(bucket)) if bucket in entry.buckets else None
        count = len(entry.buckets.get(bucket, ()))
        if curve is None:
            if found is None:
                return self._predict_from_others(entry, x)
            return _estimate(found.level + x, found.sigma, count, "samples", found.erratic)
        on_curve = curve.at(x)
        knots = on_curve if extra <= 0.0 else math.log(math.exp(on_curve) + extra)
        sigma = _PRIOR_SIGMA
        if trusted:
            between = _KNOT_SIGMA_PER_DOUBLING * curve.distance(x)
            sigma = _KNOT_SIGMA + (between + _BEYOND_SIGMA_PER_DOUBLING * curve.beyond(x)) / _DOUBLING
            sigma = max(sigma, _BEND_SHARE * curve.bend(x))
        if found is None:
            return _estimate(knots, sigma, 0, "knots" if trusted else "prior")
        weight = count / (count + (_KNOT_WEIGHT if trusted else _PRIOR_WEIGHT))
        middle = weight * (found.level + on_curve) + (1.0 - weight) * knots
        sigma = math.hypot((1.0 - weight) * sigma, weight * found.sigma)
        return _estimate(middle, sigma, count, "samples", found.erratic)

    def _predict_from_others(self, entry: _Entry, x: float) -> CostEstimate:
        """Without knots, from the samples of other sizes."""
        if not entry.buckets:
            return _NOTHING
        middles = ((sum(at for at, _ in points) / len(points), bucket) for bucket, points in entry.buckets.items())
        curve = Curve((middle, typical(entry.ratios(bucket)).level + middle) for middle, bucket in middles)
        sigma = _NEIGHBOUR_SIGMA + _NEIGHBOUR_SIGMA_PER_DOUBLING * curve.distance(x) / _DOUBLING
        return _estimate(curve.at(x), sigma, 0, "samples")


def _estimate(middle: float, sigma: float, samples: int, source: Source, erratic: bool = False) -> CostEstimate:
    seconds, factor = math.exp(middle), math.exp(sigma)
    return CostEstimate(seconds, seconds / factor, seconds * factor, samples, source, erratic)


@dataclass(frozen=True, slots=True)
class Option:
    """One arm that could run a call.

    Attributes
    ----------
    arm : str
        Its name.
    key : Hashable
        The key of its times in the cost model.
    x : float
        The work of this call.
    transfer : float
        Predicted seconds of transfers.
    extra : float
        Seconds to add to the prediction of the knots: ``transfer``, unless the knots of ``key`` were measured with the
        transfers that its start implies. Samples always cover the whole call, so nothing is added to them.
    compile_key : Hashable or None
        Names the compilation this call needs; options with equal compile keys share it. None: nothing to compile.
    startup : float
        Seconds to import the library; 0 if it is loaded.
    watts : float or None
        Power of its device if energy is minimised; None if time is.
    """

    arm: str
    key: Hashable
    x: float
    transfer: float = 0.0
    extra: float = 0.0
    compile_key: Hashable | None = None
    startup: float = 0.0
    watts: float | None = None

    @property
    def owner(self) -> str:
        """The library that ``startup`` imports."""
        return self.arm.partition(":")[0]

    @property
    def on_host(self) -> bool:
        """Whether the arm runs on the host."""
        _, _, device = self.arm.partition("@")
        return device.startswith("cpu") or not device


class Scored(NamedTuple):
    """An option with its estimate and its predicted seconds per call (``nan`` if unknown).

    ``compile`` is the time still needed for compiling and importing before the first call.
    """

    option: Option
    estimate: CostEstimate
    total: float
    compile: float

    @property
    def known(self) -> bool:
        """Whether anything is known about its run time."""
        return self.total == self.total  # not nan


#: Number of copies stored per route and size class.
_KEPT = 32
#: Copies up to the first size give the latency, larger ones the bandwidth. Once there are copies above the second size,
#: only those are used for the bandwidth.
_SMALL, _LARGE = 2**16, 2**20
#: Defaults for an unknown route: a PCIe 3 link.
_DEFAULT = (20e-6, 6e9)
#: Minimum fraction of a copy's time that is attributed to its bytes, for any latency.
_MIN_SHARE = 1e-3


class TransferModel(Guarded):
    """Seconds of a copy, ``latency + bytes / rate``, by route (``"host->cuda:0"``). Thread-safe.

    Parameters
    ----------
    priors : Mapping
        Expected latency and rate of each kind of route (``"host->cuda"``), before any copy was seen.
    """

    def __init__(self, priors: Mapping[str, Sequence[float]] = MappingProxyType({})) -> None:
        super().__init__()
        self._priors = priors
        #: The last small, medium and large copies of each route.
        self._copies: dict[tuple[str, int], deque[tuple[int, float]]] = defaultdict(lambda: deque(maxlen=_KEPT))
        #: Latency and rate of each route, derived from the above.
        self._rates: dict[str, tuple[float, float]] = {}

    def observe(self, route: str, nbytes: int, seconds: float) -> None:
        """Learn from a copy."""
        check_seconds(seconds)
        with self._lock:
            self._copies[route, (nbytes > _SMALL) + (nbytes >= _LARGE)].append((nbytes, seconds))
            self._rates.pop(route, None)

    def estimate(self, route: str, nbytes: int) -> float:
        """Predicted seconds of a copy."""
        found = self._rates.get(route)
        if found is None:
            with self._lock:
                found = self._rates[route] = self.rates(route)
        return found[0] + nbytes / found[1]

    def rates(self, route: str) -> tuple[float, float]:
        """Latency in seconds and bytes per second of a route, by the 25th percentile: undisturbed copies."""
        latency, rate = self._priors.get("->".join(end.partition(":")[0] for end in route.split("->")), _DEFAULT)
        small, medium, large = (self._copies[route, size] for size in range(3))
        if small:
            latency = lower_quartile([seconds for _, seconds in small])
        copies = large or medium
        if copies:
            shares = [max(seconds - latency, _MIN_SHARE * seconds) / nbytes for nbytes, seconds in copies]
            rate = 1.0 / (lower_quartile(shares) or 1.0 / rate)  # times of 0 give no bandwidth
        return latency, rate


def lower_quartile(samples: Sequence[float]) -> float:
    """The 25th percentile: the time of an undisturbed call, robust against a single lucky one."""
    return sorted(samples)[(len(samples) - 1) // 4]


def _quantile(ordered: Sequence[float], share: float) -> float:
    place = (len(ordered) - 1) * share
    below = int(place)
    if below + 1 >= len(ordered):
        return ordered[-1]
    return ordered[below] + (ordered[below + 1] - ordered[below]) * (place - below)
