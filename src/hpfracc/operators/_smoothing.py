"""Curves through noisy samples: Wiener processes whose roughness changes with time, and noise that may be correlated.

References
----------
G. Wahba, J. R. Statist. Soc. B 45 (1983) 133-150; D. A. Harville, J. Amer. Statist. Assoc. 72 (1977) 320-338
(restricted likelihood); J. Durbin, Rev. Inst. Int. Statist. 28 (1960) 233-244 (the recursion for autoregressive noise).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from hpfracc._reading import number, numbers, shown
from hpfracc.errors import InvalidInputError, ShapeError, warn
from hpfracc.operators._wiener_filter import mixed

Array = np.ndarray[Any, Any]

#: Rows that are compressed at once, and the usual number of nodes.
ROWS, NODES = 4096, 200
#: Decades over which weights of the penalty are tried, how many in each, and the smallest chance of one that counts.
_DECADES, _DENSITY, _NEGLIGIBLE = 26, 4, 1e-3
#: Decades by which the roughness falls or rises from the first to the last time, like a power of the time from there in
#: units of a share of all. With these the band of 1/(1 + 2t) and exp(-2t) on [0, 10] covers up to order 2.5; if the
#: roughness falls exponentially, 5 to 45 % of the points of the former are covered above order 1.
CHANGES = (0.0, 2.0, 4.0, 6.0)
_LIVELY = 0.1
#: By how much the deviance of a change must be less than that of none: without this the derivative of order 2.6 of a
#: sine is 1.5 times as uncertain.
_DOUBT = 4.0
#: Correlations of neighbours with which noise is tested, and by how much the deviance falls if it is called correlated:
#: of independent noise less than 1 in 1,000 (the distribution of the square of a normal number).
_CORRELATIONS, _SIGNIFICANT = (0.4, 0.7, 0.9, 0.97), 12.0
#: Noise that is a smaller share of the samples is rounding, and is not tested.
_ROUNDING = 1e-11
#: Correlations that are averaged over: by how much Fisher's transform z of the likeliest one is shifted. Their density
#: is that of e^z, about the root of the time for which the correlation lasts, because with that of z the band covers
#: 83 % for a correlation of 0.95 (1 + sin 3t, 250 samples on [0, 2], order 0.5).
_SHIFTS = np.linspace(-0.8, 1.6, 7)
#: Steps count as equal if they differ by less than this share.
_EQUAL = 1e-6


@dataclass(frozen=True, slots=True, eq=False)
class SampleNoise:
    """What is known of the noise.

    Attributes
    ----------
    size : float or None
        Its standard deviation; None if it is estimated.
    order : int
        Order of the autoregression that is estimated.
    factor : numpy.ndarray or None
        Cholesky factor of its covariance; ``size`` is then 1.
    """

    size: float | None = None
    order: int = 0
    factor: Array | None = field(default=None)

    @classmethod
    def read(cls, given: Any, times: Array) -> SampleNoise:
        """From the argument of :func:`smooth_derivative`."""
        if isinstance(given, str):
            found = re.fullmatch(r"ar\(([1-5])\)", given)
            if given != "estimate" and found is None:
                raise InvalidInputError(
                    f"noise={given!r}: give 'estimate', 'ar(1)' to 'ar(5)', a standard deviation, or a covariance"
                )
            order = int(found[1]) if found else 0
            steps = np.diff(times)
            if order > 1 and np.ptp(steps) > _EQUAL * steps.max():
                raise InvalidInputError(f"noise={given!r} takes equal steps; give 'ar(1)', or a covariance")
            if order and times.size < 10 * order:
                raise InvalidInputError(f"noise={given!r}: {times.size} samples are too few; give {10 * order} or more")
            return cls(None, order)
        if not isinstance(given, list | tuple) and np.ndim(given) == 0:
            return cls(number("noise", given, above=0.0))
        covariance = numbers("noise", given)
        if covariance.shape != (times.size, times.size):
            raise ShapeError(f"noise has shape {covariance.shape}; give one number, or {(times.size, times.size)}")
        try:
            if np.abs(covariance - covariance.T).max() > 1e-10 * np.abs(covariance).max():
                raise np.linalg.LinAlgError
            return cls(1.0, 0, np.linalg.cholesky(covariance))
        except np.linalg.LinAlgError:
            raise InvalidInputError(
                f"noise={shown(given)} is no covariance: not symmetric and positive definite"
            ) from None

    def scaled(self, size: float) -> SampleNoise:
        """In units of ``size``."""
        if self.factor is not None:
            return SampleNoise(1.0, 0, self.factor / size)
        return SampleNoise(None if self.size is None else self.size / size, self.order)


class _Whitening(NamedTuple):
    """Makes noise independent: each sample minus its prediction from those before, over the deviation from that."""

    partial: Array  # partial autocorrelations, shape (p, N): that of sample i with the one p before
    logarithm: float  # of the determinant of the correlation

    @classmethod
    def of(cls, partial: Array, x: Array) -> _Whitening:
        """With partial autocorrelations of samples a mean step apart; a single one decays with the time between."""
        rows = np.repeat(partial[:, None], x.size, axis=1)
        if partial.size == 1 and partial[0] > 0.0:
            rows[0, 1:] = partial[0] ** (np.diff(x) * (x.size - 1))
        for k in range(partial.size):
            rows[k, : k + 1] = 0.0
        return cls(rows, float(np.log1p(-(rows**2)).sum()))

    def coefficients(self) -> Array:
        """Those of the autoregression, shape (p, N), by Durbin's recursion; fewer of the first samples."""
        found = np.zeros((0, self.partial.shape[1]))
        for row in self.partial:
            found = np.vstack([found - row * found[::-1], row])
        return found

    def __call__(self, rows: Array, part: slice) -> Array:
        """The rows of the samples ``part``, given those from as many before as the order."""
        order, coefficients = len(self.partial), self.coefficients()[:, part]
        before = min(order, part.start)
        padded = np.vstack([np.zeros((order - before, rows.shape[1])), rows])
        count = len(padded) - order
        found = padded[order:] - sum(
            coefficients[k][:, None] * padded[order - 1 - k : order - 1 - k + count] for k in range(order)
        )
        return np.asarray(found / np.sqrt(np.prod(1.0 - self.partial[:, part] ** 2, axis=0))[:, None])


class _Branch:
    """Curves of one change of the roughness and one noise, for all weights of the penalty.

    The chance of a weight is its restricted likelihood times a constant density of the largest roughness, its inverse
    root.
    """

    def __init__(
        self, change: float, factor: Array, scales: Array, free: int, count: int, known: float | None, extra: float
    ) -> None:
        self.change = change
        # Of triangular rows with other scales of the columns.
        factor = np.asarray(np.linalg.qr(factor * np.append(scales, 1.0), mode="r"))
        self.scales, self.upper, right = scales, factor[:free], factor[free:, -1]
        left, known_part, self.axes = np.linalg.svd(factor[free:, free:-1])
        singular, shares = np.zeros(len(self.axes)), np.zeros(len(self.axes))
        # The samples say nothing about the other axes.
        singular[: known_part.size], shares[: known_part.size] = known_part, (left.T @ right)[: known_part.size]
        squares, rest = singular**2, max(float(right @ right - shares @ shares), 0.0)
        top = math.log(squares.max() or 1.0) + 5.0
        self.weights = np.exp(top - math.log(10.0) * np.linspace(0.0, _DECADES, _DENSITY * _DECADES + 1))
        self.losses = self.weights / (squares[:, None] + self.weights)
        misfit = shares**2 @ self.losses + rest + 1e-300
        size = (count - free) * np.log(misfit) if known is None else misfit / known**2
        fixed = 2.0 * float(np.log(np.abs(np.diagonal(self.upper)) + 1e-300).sum())
        #: Minus twice the logarithm of the restricted likelihood, and of the chance.
        self.deviance = size + np.log1p(squares[:, None] / self.weights).sum(axis=0) + fixed + extra
        self.unlikely = self.deviance + np.log(self.weights)
        self.least = float(self.unlikely.min())
        self.noises = np.sqrt(misfit / (count - free)) if known is None else np.full_like(misfit, known)
        self.chances, self._coefficients = np.zeros(0), singular * shares
        self.favour(-_DOUBT if change else 0.0)

    def favour(self, deviance: float) -> None:
        """Count as likelier."""
        self.unlikely, self.least = self.unlikely - deviance, self.least - deviance

    def keep(self, least: float) -> float:
        """Keep the likely weights, with their chances, and return the sum of these."""
        chances = np.exp(0.5 * (least - self.unlikely))
        likely = chances > _NEGLIGIBLE
        self.weights, self.losses, self.noises = self.weights[likely], self.losses[:, likely], self.noises[likely]
        self.chances, self._inverse = chances[likely], self.losses / self.weights
        self._coefficients = self._coefficients[:, None] * self._inverse
        return float(self.chances.sum())

    def functionals(self, rows: Array, free: int) -> tuple[Array, Array]:
        """Means and variances of functionals, whose coefficients are ``rows``, for each weight."""
        from scipy import linalg

        square, right, constant = self.upper[:, :free], self.upper[:, free:-1], self.upper[:, -1]
        rows = rows * self.scales
        fixed = linalg.solve_triangular(square, rows[:, :free].T, trans="T").T
        other = (rows[:, free:] - fixed @ right) @ self.axes.T
        means = (fixed @ constant)[:, None] + other @ self._coefficients
        return means, self.noises**2 * ((fixed**2).sum(axis=1)[:, None] + other**2 @ self._inverse)


class SmoothingFit:
    """Curves through samples at x in [0, 1], averaged over what the samples allow.

    Parameters
    ----------
    x, samples : numpy.ndarray, shape (N,)
        Places and samples.
    degree : int
        How often the process is integrated.
    noise : SampleNoise
        What is known of the noise.
    nodes : int
        Largest number of nodes.
    spline : bool
        Whether the penalised derivative is linear between nodes, not constant.
    changes : tuple of float
        Changes of the roughness that are averaged over.
    """

    def __init__(
        self, x: Array, samples: Array, degree: int, noise: SampleNoise, nodes: int, spline: bool,
        changes: tuple[float, ...] = CHANGES,
    ) -> None:  # fmt: skip
        self._free, self._x, self._samples, self._given = degree + 1, x, samples, noise
        # With few samples several nodes from each to the next: the band includes what happens between them.
        count = (x.size - 1) * ((nodes - 1) // (x.size - 1)) + 1 if x.size <= nodes else nodes
        self.model = Curves(np.unique(np.quantile(x, np.linspace(0.0, 1.0, count))), degree, spline)
        white = _Whitening.of(np.zeros(0), x)
        branches = self._likely(white, changes)
        best = branches[0].change
        #: Coefficients of the autoregression of the noise.
        self.autoregression: Array = np.zeros(0)
        if noise.order:
            partial = self._estimated(noise.order, best)
            self.autoregression = _Whitening(partial[:, None], 0.0).coefficients()[:, 0]
            # The likeliest correlation alone gives too narrow a band if it lasts as long as the curve's swings.
            first = np.tanh(np.arctanh(partial[0]) + _SHIFTS)
            first = first[(first > 0.0) | (partial[0] < 0.0) | (noise.order > 1)]
            branches = []
            for each in first:
                found = self._likely(_Whitening.of(np.append(each, partial[1:]), x), changes)
                for branch in found:
                    branch.favour(2.0 * math.atanh(each))
                branches += found
            branches.sort(key=lambda each: each.least)
            branches = [each for each in branches if each.least < branches[0].least - 2.0 * math.log(_NEGLIGIBLE)]
        elif noise.factor is None and branches[0].noises.min() > _ROUNDING:
            self._test(best)
        least = branches[0].least
        total = sum(each.keep(least) for each in branches)
        for each in branches:
            each.chances /= total
        self._branches = branches
        noises, roughnesses, chances, made = self._processes()
        inner = np.linspace(0.0, 1.0, 1001)
        sizes = [math.sqrt(np.mean(relative_roughness(inner, each) ** 2)) for each in made]
        self.roughness = float(roughnesses * sizes @ chances)
        self.noise = float(noises @ chances) if noise.size is None else noise.size
        if noise.factor is not None:
            self.noise = math.sqrt(float((noise.factor**2).sum()) / x.size)
        used = ((1.0 - each.losses).sum(axis=0) @ each.chances for each in branches)
        self.freedom = self._free + float(sum(used))
        if self.freedom > 0.5 * count:
            warn(
                f"the curve uses {self.freedom:.0f} of {count} nodes, so that it may not be resolved between them and "
                f"the band may be too narrow; give more than nodes={nodes}"
            )

    def _factor(self, white: _Whitening) -> Array:
        """The triangular factor of the equations of all samples, whose last column is the samples'."""
        factor: Array = np.zeros((0, self.model.size + 1))
        order = len(white.partial)
        every = self._x.size if self._given.factor is not None else ROWS
        for begin in range(0, self._x.size, every):
            part, wide = slice(begin, begin + every), slice(max(begin - order, 0), begin + every)
            integrals = self.model.integrals(self._x[wide], float(self.model.degree))
            rows = np.column_stack([integrals, self._samples[wide]])
            if self._given.factor is not None:
                from scipy import linalg

                rows = linalg.solve_triangular(self._given.factor, rows, lower=True)
            elif order:
                rows = white(rows, part)
            factor = np.asarray(np.linalg.qr(np.vstack([factor, rows]), mode="r"))
        return factor

    def _likely(self, white: _Whitening, changes: tuple[float, ...]) -> list[_Branch]:
        """The curves of those changes that are not much less likely than others, the likeliest first."""
        factor = self._factor(white)

        def branch(change: float) -> _Branch:
            scales = np.concatenate([np.ones(self._free), relative_roughness(self.model.places, change)])
            return _Branch(change, factor, scales, self._free, self._x.size, self._given.size, white.logarithm)

        found = [branch(changes[0])]
        far = -2.0 * math.log(_NEGLIGIBLE)
        for side in (1.0, -1.0):
            for change in changes[1:]:
                found.append(branch(side * change))
                # Larger changes are less likely still.
                if found[-1].least > min(each.least for each in found) + far:
                    break
        found.sort(key=lambda each: each.least)
        return [each for each in found if each.least < found[0].least + far]

    def _deviance(self, partial: Array, change: float) -> float:
        """That of the likeliest curve with autoregressive noise whose size is estimated."""
        white = _Whitening.of(partial, self._x)
        scales = np.concatenate([np.ones(self._free), relative_roughness(self.model.places, change)])
        count = self._x.size
        found = _Branch(change, self._factor(white), scales, self._free, count, None, white.logarithm)
        return float(found.deviance.min())

    def _test(self, change: float) -> None:
        """Warn if correlated noise is much likelier."""
        found = {each: self._deviance(np.array([each]), change) for each in (0.0, *_CORRELATIONS)}
        likeliest = min(found, key=lambda each: found[each])
        if found[0.0] - found[likeliest] > _SIGNIFICANT:
            warn(
                f"the noise looks correlated (about {likeliest:g} from one sample to the next), or the curve is not "
                "smooth: the band is too narrow; give noise='ar(1)', or the noise's covariance"
            )

    def _estimated(self, order: int, change: float) -> Array:
        """Partial autocorrelations of the likeliest noise of this order."""
        from scipy import optimize

        equal = np.ptp(np.diff(self._x)) <= _EQUAL / (self._x.size - 1)
        grid = [np.array([each, *[0.0] * (order - 1)]) for each in (0.05, *_CORRELATIONS)]
        start = min(grid, key=lambda each: self._deviance(each, change))
        low = -0.995 if equal else 0.005
        found = optimize.minimize(
            lambda each: self._deviance(np.clip(each, low, 0.995), change), start, method="Nelder-Mead",
            bounds=[(low, 0.995)] * order, options={"xatol": 3e-3, "fatol": 0.05, "maxfev": 60 * order},
        )  # fmt: skip
        return np.asarray(np.clip(found.x, low, 0.995))

    def _processes(self) -> tuple[Array, Array, Array, Array]:
        """Noise, largest roughness, chance and change of each kept curve."""
        kept = self._branches
        noises, weights, chances, changes = (
            np.concatenate(each)
            for each in zip(
                *((e.noises, e.weights, e.chances, np.full_like(e.weights, e.change)) for e in kept), strict=True
            )
        )
        return noises, noises / np.sqrt(weights), chances, changes

    def quantiles(self, count: int) -> tuple[Array, Array, Array]:
        """Noises, largest roughnesses and changes of processes of equal chances."""
        noises, roughnesses, chances, changes = self._processes()
        below, places = np.cumsum(chances) - 0.5 * chances, (np.arange(count) + 0.5) / count
        if len(self._branches) == 1:
            both = (np.exp(np.interp(places, below, np.log(each))) for each in (noises, roughnesses))
            return next(both), next(both), changes[:1].repeat(count)
        chosen = np.abs(below[:, None] - places).argmin(axis=0)
        return noises[chosen], roughnesses[chosen], changes[chosen]

    def derivative(self, x: Array, order: float) -> tuple[Array, Array, Array]:
        """The derivative, its standard error, and the curve."""
        value, error, smooth = (np.empty(x.size) for _ in range(3))
        chances = self._processes()[2]
        for part in _parts(x):
            for of, into in ((0.0, smooth), (order, value)):
                rows = self.model.integrals(x[part], self.model.degree - of)
                found = [each.functionals(rows, self._free) for each in self._branches]
                means, variances = (np.hstack(each) for each in zip(*found, strict=True))
                into[part], error[part] = mixed(means, variances, chances)
        return value, error, smooth


def relative_roughness(x: Array, change: float) -> Array:
    """The roughness at x in [0, 1], which changes by as many decades, over the largest one."""
    passed = np.log1p((x if change >= 0.0 else 1.0 - x) / _LIVELY) / math.log1p(1.0 / _LIVELY)
    return np.asarray(10.0 ** (-abs(change) * passed))


def _parts(x: Array) -> Iterator[slice]:
    return (slice(begin, begin + ROWS) for begin in range(0, x.size, ROWS))


class Curves:
    """Curves on [0, 1] whose derivative of order ``degree + 1`` is constant or linear between knots; 0 is the first.

    The coefficients are those of 1, x, ..., x^degree / degree!, which the penalty ignores, and others for that
    derivative: the penalty is the sum of their squares.
    """

    def __init__(self, knots: Array, degree: int, linear: bool) -> None:
        self.knots, self.degree, self._linear = knots, degree, linear
        self._gaps = np.diff(knots)
        self.size = degree + knots.size + linear
        #: Where each of the others is.
        self.places = knots if linear else knots[:-1] + 0.5 * self._gaps

    def integrals(self, x: Array, order: float) -> Array:
        """The curves' derivative of order ``degree - order`` at x, for each coefficient."""
        from scipy import linalg

        total = np.zeros((x.size, self.size))
        for k in range(self.degree + 1):
            power = k - self.degree + order
            if power > -1e-12:
                total[:, k] = x ** max(power, 0.0) / math.gamma(power + 1.0)
            # Lower powers have no derivative of that order.
        power = order + 1.0 + self._linear
        ramps = np.maximum(x[:, None] - self.knots, 0.0)
        ramps = np.where(ramps > 0.0, ramps**power, 0.0) / math.gamma(power + 1.0)
        # A unit step from knot to knot is a ramp that begins at one and ends at the next.
        pieces = (ramps[:, :-1] - ramps[:, 1:]) / self._gaps
        if not self._linear:
            total[:, self.degree + 1 :] = pieces * np.sqrt(self._gaps)
            return total
        # Hats: each rises over a gap and falls over the next one; the first one is 1 at 0.
        hats = np.diff(-pieces, prepend=0.0, append=0.0, axis=1)
        hats[:, 0] += x ** (order + 1.0) / math.gamma(order + 2.0)
        # The integral of the square of their sum.
        wide = np.append(self._gaps, 0.0) + np.insert(self._gaps, 0, 0.0)
        factor = linalg.cholesky_banded(np.array([np.insert(self._gaps, 0, 0.0) / 6.0, wide / 3.0]))
        lower = np.array([factor[1], np.append(factor[0, 1:], 0.0)])
        total[:, self.degree + 1 :] = linalg.solve_banded((1, 0), lower, hats.T).T
        return total
