"""What a call of each arm will take: calibrated knots, corrected by what was measured in its size bucket."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Iterator
from typing import Literal, NamedTuple

from hpfracc.engine.selection.compile_times import CompileTimes
from hpfracc.engine.selection.curve import Curve, extended, log_seconds, log_work
from hpfracc.engine.locks import Guarded
from hpfracc.engine.selection.samples import Samples, Verdict
from hpfracc.errors import InvalidInputError

__all__ = ["CostModel", "Estimate", "Fact", "Verdict"]

Source = Literal["samples", "knots", "prior", "none"]

#: Samples that weigh as much as the curve itself: a calibrated knot was measured here, a packaged prior was not.
_KNOT_WEIGHT = 0.5
_PRIOR_WEIGHT = 0.1
#: Standard deviation of the log between knots, and how it grows per doubling of the distance to the nearest:
#: leaving every other size of ``timings-h200.json`` out gives an error of 0.2 in the middle of a factor of 16.
_KNOT_SIGMA, _KNOT_SIGMA_PER_DOUBLING = 0.15, 0.05
_BEYOND_SIGMA_PER_DOUBLING = 0.15
_PRIOR_SIGMA = 0.7
_NEIGHBOUR_SIGMA, _NEIGHBOUR_SIGMA_PER_DOUBLING = 0.3, 0.2
#: How far (log work) a surprise in one bucket speaks for its neighbours.
_REACH = math.log(16.0)
#: Standard deviations between an estimate and its bounds.
_WIDTH = 1.0
#: Estimates remembered per key.
_CACHED = 256


class Estimate(NamedTuple):
    """A predicted run time in seconds, between ``low`` and ``high``, and where it comes from.

    ``curve`` is what the knots alone say; both it and ``seconds`` are ``nan`` where nothing is known.
    """

    seconds: float
    low: float
    high: float
    samples: int
    source: Source
    curve: float = math.nan
    erratic: bool = False


_NOTHING = Estimate(math.nan, 0.0, math.inf, 0, "none")


class Fact(NamedTuple):
    """One thing the model knows, to be kept and loaded again.

    ``kind`` is ``"knot"``, ``"prior"``, ``"sample"`` (``place`` is its bucket) or ``"compile"`` (``place`` is its compile
    key; ``x`` may be None).
    """

    kind: Literal["knot", "prior", "sample", "compile"]
    key: Hashable
    place: Hashable
    x: float | None
    seconds: float


class _Entry:
    """All that is known of one key."""

    __slots__ = ("buckets", "cache", "calibrated", "curve", "neighbours", "prior")

    def __init__(self) -> None:
        self.calibrated: dict[float, float] = {}
        self.prior: dict[float, float] = {}
        self.curve: Curve | None = None
        self.buckets: dict[Hashable, Samples] = {}
        self.neighbours: Curve | None = None
        self.cache: dict[tuple[Hashable, float, float], Estimate] = {}

    def base(self, x: float) -> float:
        """What samples are compared with: the curve, or time in step with work where there is none."""
        return self.curve.at(x) if self.curve is not None else x

    def forget_derived(self) -> None:
        self.neighbours = None
        self.cache.clear()


class CostModel(Guarded):
    """Run and compile times of every arm, learned and calibrated. Thread-safe.

    A *key* is anything hashable that names what is timed, in practice (operation, arm, where the operands start, dtype).
    Its knots and samples cover the whole call as it starts there, transfers included, unless an option says otherwise
    (see :class:`~hpfracc.engine.selection.choose.Option`). A *bucket* is anything hashable that groups calls of about
    one size, and ``x`` the amount of work, along which time is interpolated.
    """

    def __init__(self) -> None:
        super().__init__()
        self._entries: dict[Hashable, _Entry] = {}
        self._compile = CompileTimes()
        #: Rises with everything that is learned.
        self.version = 0

    def add_knot(self, key: Hashable, x: float, seconds: float, *, prior: bool = False) -> None:
        """Add a calibrated point of the curve of ``key``, or one of a packaged prior.

        Calibrated knots supersede prior ones within their range; beyond it the prior's shape carries on.
        """
        _check_seconds(seconds)
        with self._lock:
            entry = self._entry(key)
            (entry.prior if prior else entry.calibrated)[log_work(x)] = log_seconds(seconds)
            entry.curve = extended(entry.calibrated, entry.prior)
            for samples in entry.buckets.values():
                samples.rebase(
                    [
                        log_seconds(seconds) - entry.base(log_work(work))
                        for work, seconds in zip(samples.works, samples.seconds, strict=True)
                    ]
                )
            entry.forget_derived()
            self.version += 1

    def observe(self, key: Hashable, bucket: Hashable, x: float, seconds: float) -> Verdict:
        """Take a measured run time; :data:`Verdict.DRIFTED` tells that older ones disagreed and were dropped."""
        _check_seconds(seconds)
        with self._lock:
            entry = self._entry(key)
            samples = entry.buckets.get(bucket)
            if samples is None:
                samples = entry.buckets[bucket] = Samples()
            verdict = samples.add(x, seconds, log_seconds(seconds) - entry.base(log_work(x)))
            entry.forget_derived()
            self.version += 1
            return verdict

    def estimate(self, key: Hashable, bucket: Hashable, x: float, extra: float = 0.0) -> Estimate:
        """Predict the run time of ``key`` at work ``x`` in ``bucket``.

        ``extra`` seconds are added to what the knots say, never to what was measured: transfers that the knots leave
        out.
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

    def observe_compile(self, key: Hashable, compile_key: Hashable, seconds: float, x: float | None = None) -> None:
        """Take a compile time measured in this process: from now on ``compile_key`` costs nothing."""
        _check_seconds(seconds)
        with self._lock:
            self._compile.learn(key, compile_key, seconds, x, done=True)
            self.version += 1

    def add_compile(self, key: Hashable, compile_key: Hashable, seconds: float, x: float | None = None) -> None:
        """Take a compile time measured elsewhere or earlier: known, but still to be paid here."""
        _check_seconds(seconds)
        with self._lock:
            self._compile.learn(key, compile_key, seconds, x, done=False)
            self.version += 1

    def compile_cost(self, key: Hashable, compile_key: Hashable, x: float | None = None) -> float:
        """Seconds that the first call would take beyond its run; 0 once ``compile_key`` was compiled in this process.

        Known from this very compilation, else estimated from those seen for ``key`` (along their work where it is
        given), else the prior, else 0.
        """
        if compile_key is None:
            return 0.0
        with self._lock:
            return self._compile.cost(key, compile_key, x)

    def is_compiled(self, compile_key: Hashable) -> bool:
        """Whether ``compile_key`` was compiled in this process; None needs no compiling."""
        return self._compile.is_done(compile_key)

    def set_compile_prior(self, key_or_pattern: Hashable, seconds: float) -> None:
        """Expect this compile time of a key, or of all arms whose name fits a pattern such as ``"numba:*"``."""
        _check_seconds(seconds)
        with self._lock:
            self._compile.set_prior(key_or_pattern, seconds)
            self.version += 1

    def facts(self) -> Iterator[Fact]:
        """Everything known, as of now; :meth:`load` takes it back. Samples come oldest first."""
        with self._lock:
            found: list[Fact] = []
            for key, entry in self._entries.items():
                found += (Fact("knot", key, None, math.exp(x), math.exp(y)) for x, y in entry.calibrated.items())
                found += (Fact("prior", key, None, math.exp(x), math.exp(y)) for x, y in entry.prior.items())
                for bucket, ring in entry.buckets.items():
                    pairs = zip(ring.works, ring.seconds, strict=True)
                    found += (Fact("sample", key, bucket, x, seconds) for x, seconds in pairs)
            found += (Fact("compile", *compiled) for compiled in self._compile)
        return iter(found)

    def load(self, facts: Iterable[Fact]) -> None:
        """Learn ``facts`` from elsewhere; compile times are known then, but not paid."""
        with self._lock:
            for kind, key, place, x, seconds in facts:
                if kind == "compile":
                    self.add_compile(key, place, seconds, x)
                elif x is None:
                    raise InvalidInputError(f"a {kind} of {key!r} without its work x; give the work it was measured at")
                elif kind == "sample":
                    self.observe(key, place, x, seconds)
                else:
                    self.add_knot(key, x, seconds, prior=kind == "prior")

    def clear(self) -> None:
        """Forget everything, priors included."""
        with self._lock:
            self._entries.clear()
            self._compile = CompileTimes()
            self.version += 1

    def _entry(self, key: Hashable) -> _Entry:
        entry = self._entries.get(key)
        if entry is None:
            entry = self._entries[key] = _Entry()
        return entry

    def _predict(self, entry: _Entry, bucket: Hashable, x: float, extra: float) -> Estimate:
        samples = entry.buckets.get(bucket)
        count = len(samples) if samples is not None else 0
        if entry.curve is None:
            return self._predict_without_knots(entry, samples, count, x)
        trusted = bool(entry.calibrated)
        on_curve = entry.curve.at(x)
        knots = on_curve if extra <= 0.0 else math.log(math.exp(on_curve) + extra)
        if trusted:
            sigma = _KNOT_SIGMA + _KNOT_SIGMA_PER_DOUBLING * entry.curve.distance(x) / math.log(2.0)
            sigma += _BEYOND_SIGMA_PER_DOUBLING * entry.curve.beyond(x) / math.log(2.0)
        else:
            sigma = _PRIOR_SIGMA
        if samples is None:
            middle = knots + (self._nearby(entry, x) if extra <= 0.0 else 0.0)
            source: Source = "knots" if trusted else "prior"
            return _estimate(middle, sigma, 0, source, knots)
        weight = count / (count + (_KNOT_WEIGHT if trusted else _PRIOR_WEIGHT))
        middle = weight * (samples.level + on_curve) + (1.0 - weight) * knots
        sigma = math.hypot((1.0 - weight) * sigma, weight * samples.sigma)
        found = _estimate(middle, sigma, count, "samples", knots)
        return _with_breakout(found, samples, on_curve)._replace(erratic=samples.erratic)

    def _predict_without_knots(self, entry: _Entry, samples: Samples | None, count: int, x: float) -> Estimate:
        if samples is not None:
            found = _estimate(samples.level + x, samples.sigma, count, "samples", math.nan)
            return _with_breakout(found, samples, x)._replace(erratic=samples.erratic)
        if not entry.buckets:
            return _NOTHING
        if entry.neighbours is None:
            rings = entry.buckets.values()
            entry.neighbours = Curve((place := _middle(ring), ring.level + place) for ring in rings)
        distance = entry.neighbours.distance(x) / math.log(2.0)
        sigma = _NEIGHBOUR_SIGMA + _NEIGHBOUR_SIGMA_PER_DOUBLING * distance
        return _estimate(entry.neighbours.at(x), sigma, 0, "samples", math.nan)

    def _nearby(self, entry: _Entry, x: float) -> float:
        """The surprise of the nearest bucket with samples, fading with the distance."""
        nearest, surprise = math.inf, 0.0
        for ring in entry.buckets.values():
            distance = abs(_middle(ring) - x)
            if distance < nearest:
                nearest, surprise = distance, ring.level * len(ring) / (len(ring) + _KNOT_WEIGHT)
        return surprise * math.exp(-nearest / _REACH)


def _estimate(middle: float, sigma: float, count: int, source: Source, curve: float) -> Estimate:
    seconds, factor = math.exp(middle), math.exp(_WIDTH * sigma)
    return Estimate(seconds, seconds / factor, seconds * factor, count, source, math.exp(curve))


def _with_breakout(found: Estimate, samples: Samples, base: float) -> Estimate:
    low = samples.recent_low
    return found if low is None else found._replace(low=min(found.low, math.exp(low + base)))


def _middle(samples: Samples) -> float:
    return sum(map(log_work, samples.works)) / len(samples)


def _check_seconds(seconds: float) -> None:
    if not 0.0 <= seconds < math.inf:  # also refuses nan
        raise InvalidInputError(f"seconds={seconds!r} is not a time; use a finite number of at least 0")
