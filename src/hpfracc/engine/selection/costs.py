"""Predicted costs: run times from calibrated knots and measured samples, transfers from observed copies."""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal, NamedTuple

from hpfracc.engine.locks import Guarded
from hpfracc.engine.selection import times
from hpfracc.engine.selection.rent_or_buy import RentOrBuy
from hpfracc.engine.selection.times import Curve, Drift, TimeSamples, check_seconds, log_seconds, log_work

Source = Literal["samples", "knots", "prior", "none"]

#: The weight of the curve, in samples: a calibrated knot was measured on this machine, a packaged prior was not.
_KNOT_WEIGHT = 0.5
_PRIOR_WEIGHT = 0.1
#: Standard deviation of the log at a knot, and its growth per doubling of the work towards the next and beyond the
#: #: last. With every other size of ``timings-h200.json`` left out, half of the errors two doublings away are below 0.2
#: and #: two thirds below 0.3. A prior was measured on another machine.
_KNOT_SIGMA, _KNOT_SIGMA_PER_DOUBLING = 0.15, 0.05
_BEYOND_SIGMA_PER_DOUBLING = 0.15
_PRIOR_SIGMA = 0.7
#: The same if only samples of other sizes exist.
_NEIGHBOUR_SIGMA, _NEIGHBOUR_SIGMA_PER_DOUBLING = 0.3, 0.2
#: Range (log work) over which the deviation of one bucket from its curve applies to its neighbours.
_REACH = math.log(16.0)
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
    curve : float
        The prediction of the knots alone; ``nan`` without knots.
    """

    seconds: float
    low: float
    high: float
    samples: int
    source: Source
    erratic: bool = False
    curve: float = math.nan


_NOTHING = CostEstimate(math.nan, 0.0, math.inf, 0, "none")


class _Entry:
    """Everything known about one key."""

    __slots__ = ("buckets", "cache", "calibrated", "curve", "neighbours", "prior")

    def __init__(self) -> None:
        #: Seconds by work.
        self.calibrated: dict[float, float] = {}
        self.prior: dict[float, float] = {}
        self.curve: Curve | None = None
        self.buckets: dict[Hashable, TimeSamples] = {}
        self.neighbours: Curve | None = None
        self.cache: dict[tuple[Hashable, float, float], CostEstimate] = {}

    def base(self, x: float) -> float:
        """The baseline of samples: the curve, or time proportional to work if there is none."""
        return self.curve.at(x) if self.curve is not None else x

    def forget_derived(self) -> None:
        self.neighbours = None
        self.cache.clear()


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
            entry.curve = times.extended(entry.calibrated, entry.prior)
            for samples in entry.buckets.values():
                pairs = zip(samples.works, samples.seconds, strict=True)
                samples.rebase([log_seconds(seconds) - entry.base(log_work(work)) for work, seconds in pairs])
            entry.forget_derived()

    def observe(self, key: Hashable, bucket: Hashable, x: float, seconds: float) -> Drift:
        """Learn a measured run time; :data:`Drift.CONFIRMED`: older times disagreed and were dropped."""
        check_seconds(seconds)
        with self._lock:
            entry = self._entry(key)
            samples = entry.buckets.setdefault(bucket, TimeSamples())
            verdict = samples.add(x, seconds, log_seconds(seconds) - entry.base(log_work(x)))
            entry.forget_derived()
            return verdict

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
        samples, curve = entry.buckets.get(bucket), entry.curve
        if curve is None:
            if samples is not None:
                return _estimate(samples.level + x, samples.sigma, "samples", samples, x)
            return self._predict_from_others(entry, x)
        trusted = bool(entry.calibrated)
        on_curve = curve.at(x)
        knots = on_curve if extra <= 0.0 else math.log(math.exp(on_curve) + extra)
        sigma = _PRIOR_SIGMA
        if trusted:
            between = _KNOT_SIGMA_PER_DOUBLING * curve.distance(x)
            sigma = _KNOT_SIGMA + (between + _BEYOND_SIGMA_PER_DOUBLING * curve.beyond(x)) / _DOUBLING
        if samples is None:
            nearby = self._nearby(entry, curve, x) if extra <= 0.0 else 0.0
            return _estimate(knots + nearby, sigma, "knots" if trusted else "prior", knots=knots)
        weight = len(samples) / (len(samples) + (_KNOT_WEIGHT if trusted else _PRIOR_WEIGHT))
        middle = weight * (samples.level + on_curve) + (1.0 - weight) * knots
        sigma = math.hypot((1.0 - weight) * sigma, weight * samples.sigma)
        return _estimate(middle, sigma, "samples", samples, on_curve, knots)

    def _predict_from_others(self, entry: _Entry, x: float) -> CostEstimate:
        """Without knots, from the samples of other sizes."""
        if not entry.buckets:
            return _NOTHING
        if entry.neighbours is None:
            rings = entry.buckets.values()
            entry.neighbours = Curve((place := _middle(ring), ring.level + place) for ring in rings)
        distance = entry.neighbours.distance(x) / _DOUBLING
        sigma = _NEIGHBOUR_SIGMA + _NEIGHBOUR_SIGMA_PER_DOUBLING * distance
        return _estimate(entry.neighbours.at(x), sigma, "samples")

    def _nearby(self, entry: _Entry, curve: Curve, x: float) -> float:
        """The deviation of the nearest bucket with samples, which decays with distance; 0 at a knot."""
        nearest, surprise = math.inf, 0.0
        for ring in entry.buckets.values():
            distance = abs(_middle(ring) - x)
            if distance < nearest:
                nearest, surprise = distance, ring.level * len(ring) / (len(ring) + _KNOT_WEIGHT)
        return surprise * math.exp(-nearest / _REACH) * min(1.0, curve.distance(x) / _DOUBLING)


def _estimate(
    middle: float,
    sigma: float,
    source: Source,
    samples: TimeSamples | None = None,
    base: float = 0.0,
    knots: float = math.nan,
) -> CostEstimate:
    """The estimate ``exp(middle)``; after a last sample below the usual ones the lower bound extends to it."""
    seconds, factor = math.exp(middle), math.exp(sigma)
    low, count, erratic = seconds / factor, 0, False
    if samples is not None:
        count, erratic, recent = len(samples), samples.erratic, samples.recent_low
        low = low if recent is None else min(low, math.exp(recent + base))
    return CostEstimate(seconds, low, seconds * factor, count, source, erratic, math.exp(knots))


def _middle(samples: TimeSamples) -> float:
    return sum(map(log_work, samples.works)) / len(samples)


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
            latency = times.lower_quartile([seconds for _, seconds in small])
        copies = large or medium
        if copies:
            shares = [max(seconds - latency, _MIN_SHARE * seconds) / nbytes for nbytes, seconds in copies]
            rate = 1.0 / (times.lower_quartile(shares) or 1.0 / rate)  # times of 0 give no bandwidth
        return latency, rate
