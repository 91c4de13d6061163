"""Fractional derivatives of noisy samples, with a band."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from hpfracc._reading import choice, count, number, numbers
from hpfracc.errors import InvalidInputError, ShapeError, warn
from hpfracc.operators._wiener_filter import WienerFilter, mixed
from hpfracc.operators.core.grids import require_increasing
from hpfracc.profiling.recorder import watched

Array = np.ndarray[Any, Any]

#: Rows that are compressed at once, and the usual number of nodes.
_ROWS, _NODES = 4096, 200
#: Decades over which weights of the penalty are tried, how many in each, and the smallest chance of one that counts.
_DECADES, _DENSITY, _NEGLIGIBLE = 26, 4, 1e-3
#: Number of processes by which a filter represents the uncertainty of the weight.
_PROCESSES = 5
#: The longest time that a stream remembers, in steps.
_HORIZON = 1e9


@dataclass(frozen=True, slots=True, eq=False)
class SmoothDerivative:
    r"""A derivative of noisy samples.

    Attributes
    ----------
    t : numpy.ndarray, shape (N,)
        The times.
    value, standard_error : numpy.ndarray, shape (N,)
        The derivative, and its standard error.
    smooth : numpy.ndarray, shape (N,)
        The samples without their noise.
    noise : float
        Standard deviation of the noise, given or estimated.
    degrees_of_freedom : float
        Of the smooth curve; N for a curve through all samples.
    roughness : float
        Standard deviation of the change of :math:`f^{(p)}` over a unit of time, estimated.
    """

    t: Array
    value: Array
    standard_error: Array
    smooth: Array
    noise: float
    degrees_of_freedom: float
    roughness: float

    def band(self, width: float = 2.0) -> tuple[Array, Array]:
        """The value minus and plus ``width`` standard errors."""
        margin = number("width", width, above=0.0) * self.standard_error
        return self.value - margin, self.value + margin

    def __repr__(self) -> str:
        return (
            f"SmoothDerivative({self.t.size} points, noise {self.noise:.2g}, "
            f"{self.degrees_of_freedom:.1f} degrees of freedom)"
        )


@watched
def smooth_derivative(
    f: Any,
    t: Any,
    alpha: float,
    *,
    noise: str | float = "estimate",
    method: str = "tikhonov",
    nodes: int = _NODES,
) -> SmoothDerivative:
    r"""Caputo derivative of noisy samples :math:`y_i = f(t_i) + \varepsilon_i`, with a standard error.

    The curve that minimises

    .. math:: J(f) = \sum_i (y_i - f(t_i))^2 + \lambda \int f^{(p+1)}(t)^2\,dt, \quad p = \max(1, \lceil\alpha\rceil),

    is differentiated. It is the mean of a Wiener process that is integrated p times, given the samples, and the
    standard error is the deviation from that mean. Value and standard error are averages over the weights
    :math:`\lambda`, by their restricted likelihood and with a constant density of the roughness
    :math:`\sigma/\sqrt\lambda`. (Generalised cross-validation takes too small a weight now and then, and the
    derivative is then noise; the likeliest weight alone gives too narrow a band if the samples leave it open.)

    Parameters
    ----------
    f : array_like, shape (N,)
        The samples, real.
    t : array_like, shape (N,)
        Their times, increasing; at least p + 3 of them.
    alpha : float
        The order, above 0 and at most 3. An integer gives the ordinary derivative.
    noise : "estimate" or float
        Standard deviation of the noise, if it is known. The noise is independent from sample to sample.
    method : {"tikhonov", "spline", "kalman"}
        ``"tikhonov"``: :math:`f^{(p)}` is linear between nodes. ``"spline"``: :math:`f^{(p-1)}` is a cubic spline, with
        a node at each sample the smoothing spline itself if p = 1. ``"kalman"``: the process at all samples, by a
        filter and a smoother, in O(N) steps, with the roughness of ``"tikhonov"``; see
        :class:`SmoothDerivativeStream` for samples that come one by one.
    nodes : int
        Largest number of nodes. More are needed for curves with more than about a quarter as many swings, and for
        samples with so little noise that each one counts.

    Returns
    -------
    SmoothDerivative
        The value, its standard error and ``band()``.

    See Also
    --------
    caputo, SmoothDerivative, SmoothDerivativeStream

    Warns
    -----
    AccuracyWarning
        If the curve needs more than half of the nodes.

    Notes
    -----
    The band of two standard errors covers the true derivative at about 95 % of the points, on average over them, if
    :math:`f^{(p)}` is continuous up to the start. It does not for :math:`f = t^\beta` with a small
    :math:`\beta - \alpha`. The cost is proportional to N times the number of nodes squared, and for ``"kalman"`` 0.5 ms
    for each sample are added.

    References
    ----------
    G. Wahba, J. R. Statist. Soc. B 45 (1983) 133-150; G. Wahba, Ann. Statist. 13 (1985) 1378-1402; C. H. Reinsch,
    Numer. Math. 10 (1967) 177-183 (splines); C. C. Paige, M. A. Saunders, SIAM J. Numer. Anal. 14 (1977) 180-193.

    Examples
    --------
    >>> import numpy as np
    >>> import hpfracc as hf
    >>> t = np.linspace(0.0, 6.0, 200)
    >>> noisy = np.sin(t) + 0.01 * np.random.default_rng(0).standard_normal(200)
    >>> found = hf.smooth_derivative(noisy, t, 0.5)
    >>> exact = hf.caputo(np.sin, t, 0.5)
    >>> bool(np.abs(found.value - exact).max() < 0.05 < np.abs(hf.caputo(noisy, t, 0.5) - exact).max())
    True
    """
    order, degree = _read_order(alpha)
    samples, times = numbers("f", f, ndim=1), numbers("t", t, ndim=1)
    if samples.size != times.size:
        raise ShapeError(f"f has {samples.size} samples and t {times.size} times; give one time for each sample")
    if times.size < degree + 3:
        raise ShapeError(f"{times.size} samples are too few; give at least {degree + 3}")
    require_increasing(times)
    kind = choice("method", method, ("tikhonov", "spline", "kalman"))
    length = times[-1] - times[0]
    x, known = (times - times[0]) / length, _read_noise(noise)
    # A power of two near the samples, whose squares may not be numbers.
    size = math.ldexp(1.0, math.frexp(float(np.abs(samples).max()))[1] - 1)
    samples, known = samples / size, None if known is None else known / size
    fit = _Fit(x, samples, degree, known, count("nodes", nodes, least=4), kind == "spline")
    found = _smoothed(x, samples, order, degree, fit) if kind == "kalman" else fit.derivative(x, order)
    value, error, smooth = found
    unit = size / length**order
    roughness = size * fit.roughness / length ** (degree + 0.5)
    return SmoothDerivative(times, value * unit, error * unit, size * smooth, size * fit.noise, fit.freedom, roughness)


class SmoothDerivativeStream:
    r"""Caputo derivative of noisy samples that come one by one, each time given the samples so far.

    The model is that of :func:`smooth_derivative` with ``method="kalman"``, and so is the value at the newest sample.
    The past is kept as a sum of exponentials, so that every sample takes the same time, some 0.3 ms.

    Parameters
    ----------
    alpha : float
        The order, above 0 and at most 3.
    step : float
        Time from sample to sample.
    noise : "estimate" or float
        Standard deviation of the noise.
    roughness : "estimate" or float
        Standard deviation of the change of :math:`f^{(p)}` over a unit of time, where p is the order rounded up;
        ``roughness`` of a :class:`SmoothDerivative` of earlier samples, for instance. If it is given, so is the noise.
    warmup : int
        Number of samples from which they are estimated. They should move as much as the later ones do.

    Attributes
    ----------
    noise, roughness : float
        As given or estimated; nan before.
    count : int
        Number of samples so far.

    See Also
    --------
    smooth_derivative, OperatorStream

    Notes
    -----
    The newest sample has no successor to confirm it: its standard error is larger than that of
    :func:`smooth_derivative` at points with samples on both sides. A stream can be pickled at any time.

    Examples
    --------
    >>> import numpy as np
    >>> import hpfracc as hf
    >>> stream = hf.SmoothDerivativeStream(0.5, 0.05, noise=0.01, roughness=0.5)
    >>> noisy = np.sin(0.05 * np.arange(200)) + 0.01 * np.random.default_rng(0).standard_normal(200)
    >>> for sample in noisy:
    ...     value, error = stream.push(sample)
    >>> bool(abs(value - hf.caputo(np.sin, 0.05 * 199, 0.5)) < 2 * error < 0.1)
    True
    """

    def __init__(
        self,
        alpha: float,
        step: float,
        *,
        noise: str | float = "estimate",
        roughness: str | float = "estimate",
        warmup: int = 200,
    ) -> None:
        self.alpha, self._degree = _read_order(alpha)
        self.step = number("step", step, above=0.0)
        self._known = _read_noise(noise)
        self._warmup = count("warmup", warmup, least=self._degree + 3)
        self.noise = self.roughness = math.nan
        self.count = 0
        self._first: list[float] = []
        self._filter: WienerFilter | None = None
        if not (isinstance(roughness, str) and roughness == "estimate"):
            if self._known is None:
                raise InvalidInputError("roughness is given, and noise is to be estimated; give both, or none")
            self._begin(np.array([self._known]), np.array([number("roughness", roughness, above=0.0)]))

    def _begin(self, noises: Array, roughnesses: Array) -> WienerFilter:
        self.noise, self.roughness = float(noises.mean()), float(roughnesses.mean())
        # Times are counted in steps.
        rough = roughnesses * self.step ** (self._degree + 0.5)
        self._filter = WienerFilter(self.alpha, self._degree, 1.0, _HORIZON, noises, rough)
        return self._filter

    def push(self, value: float) -> tuple[float, float]:
        """The derivative at the next sample and its standard error; nan until they are known.

        Parameters
        ----------
        value : float
            The sample.
        """
        sample = number("value", value)
        self.count += 1
        filtered = self._filter
        if filtered is None:
            self._first.append(sample)
            if self.count < self._warmup:
                return math.nan, math.nan
            x = np.linspace(0.0, 1.0, self.count)
            fit = _Fit(x, np.array(self._first), self._degree, self._known, max(_NODES, self.count), False)
            noises, roughnesses = fit.quantiles()
            length = self.step * (self.count - 1)
            filtered = self._begin(noises, roughnesses / length ** (self._degree + 0.5))
            for each in self._first[:-1]:
                filtered.push(each, 1.0)
            self._first = []
        filtered.push(sample, 1.0)
        means, variances = filtered.functionals().given(*filtered.newest())
        found, error = mixed(means[:, 0], variances[:, 0], np.full(len(means), 1.0 / len(means)))
        unit = self.step**self.alpha
        return float(found) / unit, float(error) / unit

    def __repr__(self) -> str:
        return (
            f"SmoothDerivativeStream(alpha={self.alpha:g}, step={self.step:g}, {self.count} samples, "
            f"noise {self.noise:.2g}, roughness {self.roughness:.2g})"
        )


def _read_order(alpha: Any) -> tuple[float, int]:
    order = number("alpha", alpha, above=0.0, most=3.0)
    return order, max(1, math.ceil(order))


def _read_noise(noise: Any) -> float | None:
    return None if isinstance(noise, str) and noise == "estimate" else number("noise", noise, above=0.0)


class _Fit:
    """Curves through samples at x in [0, 1], for the weights of the penalty that the samples allow.

    The chance of a weight is its restricted likelihood times a constant density of the roughness, its inverse root.
    """

    def __init__(self, x: Array, samples: Array, degree: int, known: float | None, nodes: int, spline: bool) -> None:
        free = degree + 1
        # With few samples several nodes from each to the next: the band includes what happens between them.
        count = (x.size - 1) * ((nodes - 1) // (x.size - 1)) + 1 if x.size <= nodes else nodes
        self.model = _Curves(np.unique(np.quantile(x, np.linspace(0.0, 1.0, count))), degree, spline)
        # The triangular factor of the equations of all samples, whose last column is the samples'.
        factor: Array = np.zeros((0, self.model.size + 1))
        for part in _parts(x):
            rows = np.column_stack([self.model.integrals(x[part], float(degree)), samples[part]])
            factor = np.asarray(np.linalg.qr(np.vstack([factor, rows]), mode="r"))
        self._upper, right = factor[:free], factor[free:, -1]
        left, known_part, self._axes = np.linalg.svd(factor[free:, free:-1])
        singular, shares = np.zeros(len(self._axes)), np.zeros(len(self._axes))
        # The samples say nothing about the other axes.
        singular[: known_part.size], shares[: known_part.size] = known_part, (left.T @ right)[: known_part.size]
        squares, rest = singular**2, max(float(right @ right - shares @ shares), 0.0)
        top = math.log(squares.max() or 1.0) + 5.0
        weights = np.exp(top - math.log(10.0) * np.linspace(0.0, _DECADES, _DENSITY * _DECADES + 1))
        losses = weights / (squares[:, None] + weights)
        misfit = shares**2 @ losses + rest + 1e-300
        size = (x.size - free) * np.log(misfit) if known is None else misfit / known**2
        deviance = size + np.log1p(squares[:, None] / weights).sum(axis=0) + np.log(weights)
        chances = np.exp(0.5 * (deviance.min() - deviance))
        likely = chances > _NEGLIGIBLE
        self._chances, self._weights = chances[likely] / chances[likely].sum(), weights[likely]
        noises = np.sqrt(misfit[likely] / (x.size - free))
        self._noises = noises if known is None else np.full_like(noises, known)
        self._inverse = losses[:, likely] / self._weights
        self._coefficients = (singular * shares)[:, None] * self._inverse
        self.noise = float(self._noises @ self._chances) if known is None else known
        self.roughness = float(self._roughness() @ self._chances)
        self.freedom = free + float((1.0 - losses[:, likely]).sum(axis=0) @ self._chances)
        if self.freedom > 0.5 * count:
            warn(
                f"the curve uses {self.freedom:.0f} of {count} nodes, so that it may not be resolved between them and "
                f"the band may be too narrow; give more than nodes={nodes}"
            )

    def _roughness(self) -> Array:
        """Standard deviation of the change of the derivative of order ``degree`` over a unit of x."""
        return np.asarray(self._noises / np.sqrt(self._weights))

    def quantiles(self) -> tuple[Array, Array]:
        """Noises and roughnesses of equal chances."""
        below = np.cumsum(self._chances) - 0.5 * self._chances
        places = (np.arange(_PROCESSES) + 0.5) / _PROCESSES
        both = (np.exp(np.interp(places, below, np.log(each))) for each in (self._noises, self._roughness()))
        return next(both), next(both)

    def derivative(self, x: Array, order: float) -> tuple[Array, Array, Array]:
        """The derivative, its standard error, and the curve."""
        from scipy import linalg

        free = self.model.degree + 1
        square, right, constant = self._upper[:, :free], self._upper[:, free:-1], self._upper[:, -1]
        value, error, smooth = (np.empty(x.size) for _ in range(3))
        for part in _parts(x):
            for of, into in ((0.0, smooth), (order, value)):
                rows = self.model.integrals(x[part], self.model.degree - of)
                fixed = linalg.solve_triangular(square, rows[:, :free].T, trans="T").T
                other = (rows[:, free:] - fixed @ right) @ self._axes.T
                means = (fixed @ constant)[:, None] + other @ self._coefficients
                variances = self._noises**2 * ((fixed**2).sum(axis=1)[:, None] + other**2 @ self._inverse)
                into[part], error[part] = mixed(means, variances, self._chances)
        return value, error, smooth


def _parts(x: Array) -> list[slice]:
    return [slice(begin, begin + _ROWS) for begin in range(0, x.size, _ROWS)]


def _smoothed(x: Array, samples: Array, order: float, degree: int, fit: _Fit) -> tuple[Array, Array, Array]:
    """The derivative, its standard error and the curve, of an integrated Wiener process given all samples."""
    steps = np.diff(x, prepend=0.0)
    filtered = WienerFilter(order, degree, float(steps[1:].min()), 1.0, *fit.quantiles())
    passed = []
    for sample, step in zip(samples.tolist(), steps.tolist(), strict=True):
        filtered.push(sample, step)
        passed.append((filtered.functionals(), filtered.eliminated))
    values, errors = np.empty((x.size, 2)), np.empty((x.size, 2))
    state, covariance = filtered.newest()
    for k in range(x.size - 1, -1, -1):
        functionals, eliminated = passed[k]
        means, variances = functionals.given(state, covariance)
        values[k], errors[k] = mixed(means.T, variances.T, np.full(len(means), 1.0 / len(means)))
        if eliminated is not None:
            state, covariance = eliminated.before(state, covariance)
    return values[:, 0], errors[:, 0], values[:, 1]


class _Curves:
    """Curves on [0, 1] whose derivative of order ``degree + 1`` is constant or linear between knots; 0 is the first.

    The coefficients are those of 1, x, ..., x^degree / degree!, which the penalty ignores, and others for that
    derivative: the penalty is the sum of their squares.
    """

    def __init__(self, knots: Array, degree: int, linear: bool) -> None:
        self.knots, self.degree, self._linear = knots, degree, linear
        self._gaps = np.diff(knots)
        self.size = degree + knots.size + linear

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
