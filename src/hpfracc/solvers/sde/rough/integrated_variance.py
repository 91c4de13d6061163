r"""Sampling of the rough Heston model by its integrated variance, drawn from inverse Gaussian laws.

With the resolvent :math:`f(t) = t^{a-1} E_{a,a}(-\kappa t^a)` and the mean :math:`g` of the variance,

.. math:: V_t = g(t) + \sigma \int_0^t f(t-s) \sqrt{V_s}\,dW_s .

On step i let :math:`U_i = \int V\,dt` and :math:`Z_i = \int \sqrt V\,dW`, a Brownian motion at time :math:`U_i`.
If each :math:`Z_j` is spread evenly over its step,

.. math::
    U_i = \alpha_i + \sigma k_{ii} Z_i, \qquad \alpha_i = \int_{t_i}^{t_{i+1}} g\,dt + \sigma \sum_{j<i} k_{ij} Z_j,

where :math:`k_{ij}` is the mean over step j of the integral of :math:`f(\cdot - s)` over step i. So :math:`U_i` is the
first time at which a Brownian motion with drift reaches :math:`\alpha_i`: it has an inverse Gaussian law [1]. No
variance is negative, the discounted price is a martingale, and the weak error has an order from 1.5 at small H to 2 at
H = 1/2 (1 in [1], where :math:`Z_j` acts from the beginning of its step). A negative :math:`\alpha_i` is carried to
the next step. Not to be confused with schemes that step the variance itself, which need steps as short as the variance
is rough.

References
----------
1. E. Abi Jaber and E. Attal, "Simulating integrated Volterra square-root processes and Volterra Heston models via
   inverse Gaussian", 2025.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from scipy import special

from hpfracc.errors import InvalidInputError
from hpfracc.solvers.sde.noise.source import RandomSource, make_source
from hpfracc.special import mittag_leffler

#: Numbers of steps to every requested time, tried in turn until the bias is below the tolerance.
_STEPS = (4, 8, 16, 32, 64, 128, 256)
#: Maximum number of steps of a path: the work grows with its square.
_MAX_STEPS = 20_000
#: Nodes of the Fourier integral of a bias, of which few digits are needed.
_NODES = 80
#: Streams of random numbers: two for the inverse Gaussian law, those of the price and of the variance.
_UNIFORM, _NORMAL, _PRICE, _VARIANCE = 0, 1, 2, 3
#: Paths from which the shortfall is estimated.
_PILOT = 4096
#: Floor of conditional means; cell means of the kernel make some negative if the variance is often near 0.
_LEAST = 1e-20
#: Normal numbers beyond this have a probability below rounding.
_FARTHEST = 8.2


class IntegratedVariance:
    """The scheme for ``model``, a :class:`~hpfracc.solvers.sde.rough.heston.Heston`.

    Parameters
    ----------
    model : Heston
        The model.
    times : ndarray
        Requested times, increasing from 0 on.
    counts : ndarray of int
        Number of equal steps from each requested time to the next.
    """

    def __init__(self, model: Any, times: np.ndarray, counts: np.ndarray) -> None:
        a, kappa = model.H + 0.5, model.kappa
        self.model, self.times = model, times
        self.ends = np.cumsum(counts)  # steps up to each requested time
        sizes = np.diff(times) / counts
        starts = np.repeat(times[:-1], counts) + np.repeat(sizes, counts) * (
            np.arange(self.ends[-1]) - np.repeat(self.ends - counts, counts)
        )
        grid = np.append(starts, times[-1])
        self.sizes = np.diff(grid)
        # Mittag-Leffler functions of the distances of the points, most of which are equal.
        apart, which = np.unique(np.round(np.tril(grid[:, None] - grid) / times[-1], 13), return_inverse=True)
        apart = apart * times[-1]
        first, second = (apart ** (a + k) * mittag_leffler(-kappa * apart**a, a, a + 1.0 + k) for k in (0, 1))
        twice = second[which].reshape(grid.size, grid.size)  # the second integral of f
        rise = np.tril(twice[:, :-1] - twice[:, 1:]) / self.sizes
        self.kernel = model.sigma * (rise[1:] - np.tril(rise[:-1], -1))
        #: Means of f over the steps before each requested time.
        once = first[which].reshape(grid.size, grid.size)[self.ends]
        before = np.arange(self.sizes.size) < self.ends[:, None] - 1
        self.weights = model.sigma * np.where(before, once[:, :-1] - once[:, 1:], 0.0) / self.sizes
        self.means = np.diff(model.integrated_variance(grid))
        self.forward = np.asarray(model.forward_variance(grid))[self.ends]
        #: Variance of V over the last step before each requested time, per unit of V.
        last = self.sizes[self.ends - 1, None]
        x, quadrature = special.roots_jacobi(24, 0.0, 2.0 * a - 2.0)
        s = 0.5 * last * (1.0 + x)
        squares = mittag_leffler(-kappa * s**a, a, a) ** 2 @ quadrature
        self.spread = model.sigma**2 * squares * (0.5 * last[:, 0]) ** (2.0 * a - 1.0)

    def exponent(self, u: np.ndarray, steps: int) -> np.ndarray:
        r"""The logarithm of the transform :math:`E\,e^{iuX}` of the log-price after some steps, that of the scheme.

        It is affine: each step adds :math:`\alpha_i \psi_i` to the exponent, backwards from the last.
        """
        z, rho = 1j * u, self.model.rho
        p, q = 0.5 * z * (z * (1.0 - rho**2) - 1.0), z * rho
        psi = np.zeros((steps, u.size), complex)
        for i in range(steps - 1, -1, -1):
            k = self.kernel[i, i]
            b = q + self.kernel[i + 1 : steps, i] @ psi[i + 1 :]
            # E exp(p U + b Z) of the inverse Gaussian law, with 1 - sqrt(1 - x) = x / (1 + sqrt(1 - x)).
            s = k * (k * p + b)
            psi[i] = 2.0 * (p + b / k) / (1.0 + np.sqrt(1.0 - 2.0 * s)) - b / k
        found: np.ndarray = self.means[:steps] @ psi
        return found

    def bias(self) -> float:
        """Largest error of implied volatilities of the scheme: at the money and one standard deviation away.

        That of European options at the first and at the last requested time, from the transforms of scheme and model,
        and from the shortfall of some paths, which the transform does not know.
        """
        return max(self._bias(0), self._bias(-1))

    def _bias(self, place: int) -> float:
        steps, T = int(self.ends[place]), float(self.times[1:][place])
        total = float(self.means[:steps].sum())
        deviations, width = np.array([-1.0, 0.0, 1.0]), math.sqrt(total)
        vega = math.sqrt(T / (2.0 * math.pi)) * np.exp(-0.5 * (0.5 * width - deviations) ** 2)
        off = [self._off(steps, T, moneyness) for moneyness in width * deviations]
        extra = float(self._shortfalls[place]) / (2.0 * width * math.sqrt(T))
        return float(np.abs(np.array(off) / vega).max()) + extra

    def _off(self, steps: int, T: float, moneyness: float) -> float:
        """Error of the price at one log-moneyness, relative to the forward price."""
        tilt, cut = self.model._contours(np.array([self.model.forward(T) * math.exp(moneyness)]), T)
        u, weight, exact = _fourier_nodes(self.model, T, float(tilt[0]), float(cut[0]))
        terms = [np.exp(exponent - 1j * u * moneyness) for exponent in (self.exponent(u - 0.5j, steps), exact)]
        return float((weight * (terms[0] - terms[1])).real.sum()) * math.exp(0.5 * moneyness)

    @cached_property
    def _shortfalls(self) -> np.ndarray:
        """Means of the shortfall at the requested times, which is by how much the integrated variance is too large."""
        found: list[float] = []
        for i, step in enumerate(self._steps(make_source(0, None, count=_PILOT), _PILOT)):
            if i + 1 == self.ends[len(found)]:
                found.append(-float(np.minimum(step[0], 0.0).mean()))
        return np.array(found)

    def _steps(self, source: RandomSource, count: int) -> Iterator[tuple[np.ndarray, ...]]:
        """For each step: the mean of its integrated variance given the past, that above 0, the integral, and all Z."""
        n = self.sizes.size
        uniforms = source.numbers(0, count, n, kind="uniform", stream=_UNIFORM).T
        normals = source.numbers(0, count, n, stream=_NORMAL).T
        driven = np.zeros((n, count))
        shortfall = np.zeros(count)
        for i in range(n):
            k = self.kernel[i, i]
            expected = self.means[i] + self.kernel[i, :i] @ driven[:i] + shortfall
            # What the mean lacks to 0 is carried to the next step, so that the variance has the right mean.
            shortfall = np.minimum(expected, 0.0)
            mean = np.maximum(expected, _LEAST)
            integral = _inverse_gaussian(mean, k * k, normals[i], uniforms[i])
            driven[i] = (integral - mean) / k
            yield expected, mean, integral, driven[: i + 1]

    def paths(self, source: RandomSource, count: int) -> np.ndarray:
        """Price, variance and its integral at the requested times, shape ``(3, count, times)``."""
        model, n = self.model, self.sizes.size
        others = source.numbers(0, count, n, stream=_PRICE).T
        of_variance = source.numbers(0, count, self.ends.size, stream=_VARIANCE).T
        log_price = np.full(count, math.log(model.S0))
        total = np.zeros(count)
        found = np.zeros((3, count, self.times.size))
        price, variance, integral = found
        price[:, 0], variance[:, 0] = model.S0, model.forward_variance(0.0)
        place = 0
        for i, (_, mean, spent, driven) in enumerate(self._steps(source, count)):
            log_price += (model.r - model.q) * self.sizes[i] - 0.5 * spent + model.rho * driven[i]
            total += spent
            log_price += np.sqrt((1.0 - model.rho**2) * spent) * others[i]
            if i + 1 == self.ends[place]:
                price[:, place + 1], integral[:, place + 1] = np.exp(log_price), total
                expected = np.maximum(self.forward[place] + self.weights[place, : i + 1] @ driven, _LEAST)
                score = _normal_score(spent, mean, self.kernel[i, i] ** 2)
                variance[:, place + 1] = self._variance(place, expected, score, of_variance[place])
                place += 1
        return found

    def _variance(self, place: int, mean: np.ndarray, score: np.ndarray, normal: np.ndarray) -> np.ndarray:
        r"""V at the end of a step, from its mean given the earlier steps and the normal score of this one.

        By Andersen's quadratic-exponential law with the right mean and variance, and the correlation of
        :math:`\int f(t-s)\,dW_s` and W over one step.
        """
        a = self.model.H + 0.5
        along = math.sqrt(2.0 * a - 1.0) / a
        z = along * score + math.sqrt(max(1.0 - along**2, 0.0)) * normal
        ratio = self.spread[place] / mean  # variance over squared mean
        c = 2.0 / np.minimum(ratio, 1.5)
        b = np.sqrt(np.maximum(c - 1.0 + np.sqrt(c * (c - 1.0)), 0.0))
        quadratic = mean / (1.0 + b * b) * (b + z) ** 2
        filled = 2.0 / (1.0 + np.maximum(ratio, 1.0))  # probability of V > 0
        exponential = np.maximum(mean / filled * (np.log(filled) - special.log_ndtr(-z)), 0.0)
        return np.asarray(np.where(ratio <= 1.5, quadratic, exponential))


def _inverse_gaussian(mean: np.ndarray, scale: float, normal: np.ndarray, uniform: np.ndarray) -> np.ndarray:
    """Inverse Gaussian numbers with variance ``scale * mean``, by the roots of Michael, Schucany and Haas."""
    r = 0.5 * scale * normal * normal / mean
    small = mean / (1.0 + r + np.sqrt(r * (2.0 + r)))
    return np.asarray(np.where(uniform * (mean + small) <= mean, small, mean * (mean / small)))


def _normal_score(x: np.ndarray, mean: np.ndarray, scale: float) -> np.ndarray:
    """The normal number with the probability of an inverse Gaussian one, of variance ``scale * mean``."""
    root = np.sqrt(scale * x)
    below = special.ndtr((x - mean) / root) + np.exp(2.0 * mean / scale + special.log_ndtr(-(x + mean) / root))
    score: np.ndarray = np.clip(special.ndtri(np.minimum(below, 1.0)), -_FARTHEST, _FARTHEST)
    return score


def contour(y: np.ndarray, tilt: float) -> tuple[np.ndarray, np.ndarray]:
    """Frequencies ``u = sinh(y + i tilt) - i sin(tilt)`` of Lewis' formula, and its weights in y: half at y = 0."""
    u = np.sinh(y + 1j * tilt) - 1j * math.sin(tilt)
    return u, np.where(y == 0.0, 0.5, 1.0) * np.cosh(y + 1j * tilt) / (u * u + 0.25)


@lru_cache(maxsize=8)
def _fourier_nodes(model: Any, T: float, tilt: float, cutoff: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Frequencies and weights of Lewis' formula, and the logarithm of the model's transform half a unit below them."""
    y = np.linspace(0.0, math.asinh(cutoff), _NODES)
    u, weight = contour(y, tilt)
    return u, weight * (y[1] - y[0]) / math.pi, model._log_transform(u - 0.5j, T, 1e-7)[0]


@lru_cache(maxsize=8)
def plan_sampling(
    model: Any, times: tuple[float, ...], step: float | None, atol: float
) -> tuple[IntegratedVariance, float]:
    """The scheme with steps of at most ``step``, or with a bias of at most ``atol``, and its bias.

    With ``atol`` there are equally many steps to the first requested time as to the last; in between, steps grow.
    """
    grid = np.array(times)
    if step is not None:
        scheme = _with_steps(model, grid, np.diff(grid) / step)
        return scheme, scheme.bias()
    for steps in _STEPS:
        scheme = _with_steps(model, grid, steps * np.diff(grid) / grid[1:])
        if (bias := scheme.bias()) <= atol:
            break
    return scheme, bias


def _with_steps(model: Any, times: np.ndarray, counts: np.ndarray) -> IntegratedVariance:
    whole = np.maximum(np.ceil(counts * (1.0 - 1e-9)), 1.0)
    if whole.sum() > _MAX_STEPS:
        raise InvalidInputError(
            f"Heston.sample would take {whole.sum():,.0f} steps, and takes at most {_MAX_STEPS:,}; use a longer step"
        )
    return IntegratedVariance(model, times, whole.astype(int))
