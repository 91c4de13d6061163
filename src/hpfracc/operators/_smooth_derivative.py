"""Fractional derivatives of noisy samples, with a band."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np

from hpfracc._reading import number, numbers, whole
from hpfracc.errors import AccuracyWarning, ShapeError
from hpfracc.operators.core.grids import require_increasing
from hpfracc.profiling.recorder import watched

__all__ = ["SmoothDerivative", "smooth_derivative"]

Array = np.ndarray[Any, Any]

#: Rows that are compressed at once, and decades over which the weight of the penalty is searched.
_ROWS, _DECADES = 4096, 26


@dataclass(frozen=True, slots=True, eq=False)
class SmoothDerivative:
    """A derivative of noisy samples.

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
    """

    t: Array
    value: Array
    standard_error: Array
    smooth: Array
    noise: float
    degrees_of_freedom: float

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
    f: Any, t: Any, alpha: float, *, noise: str | float = "estimate", nodes: int = 200
) -> SmoothDerivative:
    r"""Caputo derivative of noisy samples :math:`y_i = f(t_i) + \varepsilon_i`, with a standard error.

    Of all curves, the one that minimises

    .. math:: J(f) = \sum_i (y_i - f(t_i))^2 + \lambda \int f^{(p+1)}(t)^2\,dt, \quad p = \max(1, \lceil\alpha\rceil),

    is differentiated, where :math:`f^{(p)}` is linear between nodes. The weight :math:`\lambda` maximises the
    restricted likelihood, in which f is a Wiener process that is integrated p times; the standard error is that of f
    given the samples. (Generalised cross-validation takes too small a weight now and then, and the derivative is then
    noise.)

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
    nodes : int
        Largest number of nodes. More are needed only for curves with more than about a quarter as many swings.

    Returns
    -------
    SmoothDerivative
        The value, its standard error and ``band()``.

    See Also
    --------
    caputo, SmoothDerivative

    Warns
    -----
    AccuracyWarning
        If the curve needs more than half of the nodes, and there are fewer nodes than samples.

    Notes
    -----
    The band of two standard errors covers the true derivative at about 95 % of the points, on average over them, if
    :math:`f^{(p)}` is continuous up to the start. It does not for :math:`f = t^\beta` with a small
    :math:`\beta - \alpha`. The cost is proportional to N times the number of nodes squared.

    References
    ----------
    G. Wahba, J. R. Statist. Soc. B 45 (1983) 133-150; G. Wahba, Ann. Statist. 13 (1985) 1378-1402.

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
    from scipy import linalg

    order = number("alpha", alpha, above=0.0, most=3.0)
    degree = max(1, math.ceil(order))
    samples, times = numbers("f", f, ndim=1), numbers("t", t, ndim=1)
    if samples.size != times.size:
        raise ShapeError(f"f has {samples.size} samples and t {times.size} times; give one time for each sample")
    if times.size < degree + 3:
        raise ShapeError(f"{times.size} samples are too few; give at least {degree + 3}")
    require_increasing(times)
    known = None if isinstance(noise, str) and noise == "estimate" else number("noise", noise, above=0.0)
    length = times[-1] - times[0]
    x = (times - times[0]) / length
    count = min(whole("nodes", nodes, least=4), x.size)
    model = _Curves(np.unique(np.quantile(x, np.linspace(0.0, 1.0, count))), degree)
    # The triangular factor of the equations of all samples, whose last column is the samples'.
    factor: Array = np.zeros((0, degree + model.knots.size + 1))
    parts = [slice(begin, begin + _ROWS) for begin in range(0, x.size, _ROWS)]
    for part in parts:
        rows = np.column_stack([model.integrals(x[part], float(degree)), samples[part]])
        factor = np.asarray(np.linalg.qr(np.vstack([factor, rows]), mode="r"))
    weight, deviation, freedom = _weight(factor, degree + 1, x.size, known)
    if count < x.size and freedom > 0.5 * count:
        warnings.warn(
            f"the curve uses {freedom:.0f} of {count} nodes, so that it may not be resolved between them and the band "
            f"may be too narrow; give more nodes, up to {x.size}",
            AccuracyWarning,
            stacklevel=3,
        )
    penalty = math.sqrt(weight) * np.eye(factor.shape[1])[degree + 1 : -1]
    both = np.asarray(np.linalg.qr(np.vstack([factor, penalty]), mode="r"))
    square = both[: factor.shape[1] - 1, :-1]
    coefficients = linalg.solve_triangular(square, both[: square.shape[0], -1])
    value, error, smooth = (np.empty(x.size) for _ in range(3))
    for part in parts:
        rows = model.integrals(x[part], degree - order)
        value[part] = rows @ coefficients
        error[part] = deviation * np.sqrt((linalg.solve_triangular(square, rows.T, trans="T") ** 2).sum(axis=0))
        smooth[part] = model.integrals(x[part], float(degree)) @ coefficients
    unit = length**order
    return SmoothDerivative(times, value / unit, error / unit, smooth, deviation, freedom)


class _Curves:
    """Curves whose derivative of order ``degree`` is linear between knots on [0, 1], and 0 is the first.

    The coefficients are those of 1, x, ..., x^degree / degree!, which the penalty ignores, and the steps of that
    derivative from knot to knot, over the root of their distance: the penalty is the sum of their squares.
    """

    def __init__(self, knots: Array, degree: int) -> None:
        self.knots, self.degree = knots, degree
        self.gaps = np.diff(knots)

    def integrals(self, x: Array, order: float) -> Array:
        """The curves' derivative of order ``degree - order`` at x, for each coefficient."""
        total = np.zeros((x.size, self.degree + self.knots.size))
        for k in range(self.degree + 1):
            power = k - self.degree + order
            if power > -1e-12:
                total[:, k] = x ** max(power, 0.0) / math.gamma(power + 1.0)
            # Lower powers have no derivative of that order.
        ramps = np.maximum(x[:, None] - self.knots, 0.0)
        ramps = np.where(ramps > 0.0, ramps ** (order + 1.0), 0.0) / math.gamma(order + 2.0)
        # A unit step from knot to knot is a ramp that begins at one and ends at the next.
        total[:, self.degree + 1 :] = (ramps[:, :-1] - ramps[:, 1:]) / np.sqrt(self.gaps)
        return total


def _weight(factor: Array, free: int, samples: int, known: float | None) -> tuple[float, float, float]:
    """The weight of the penalty, the standard deviation of the noise, and the degrees of freedom."""
    from scipy import optimize

    left, singular, _ = np.linalg.svd(factor[free:, free:-1], full_matrices=False)
    right = factor[free:, -1]
    shares = (left.T @ right) ** 2
    rest = max(float(right @ right - shares.sum()), 0.0)
    squares = singular**2

    def misfit(weight: float) -> float:
        return float((shares * weight / (squares + weight)).sum()) + rest + 1e-300

    def deviance(logarithm: float) -> float:
        weight = math.exp(logarithm)
        volume = float(np.log1p(squares / weight).sum())
        if known is None:
            return (samples - free) * math.log(misfit(weight)) + volume
        return misfit(weight) / known**2 + volume

    top = math.log(squares.max() or 1.0) + 5.0
    grid = top - math.log(10.0) * np.linspace(0.0, _DECADES, 4 * _DECADES + 1)
    best = int(np.argmin([deviance(each) for each in grid]))
    bounds = (grid[min(best + 1, grid.size - 1)], grid[max(best - 1, 0)])
    weight = math.exp(float(optimize.minimize_scalar(deviance, bounds=bounds, method="bounded").x))
    deviation = known if known is not None else math.sqrt(misfit(weight) / (samples - free))
    return weight, deviation, free + float((squares / (squares + weight)).sum())
