"""Atangana-Baleanu: interpolated samples under a Mittag-Leffler kernel."""

from __future__ import annotations

import math
from collections.abc import Hashable
from typing import Any, final

import numpy as np
from numpy.polynomial import legendre

from hpfracc._arrays import library_of
from hpfracc.engine.execution.api import aside
from hpfracc.operators._grids import to_host
from hpfracc.operators._namespace import NUMPY, Namespace
from hpfracc.operators._order import Order
from hpfracc.operators._values import Samples, constant, scalar
from hpfracc.operators._weights import weights_key, weights_of
from hpfracc.operators.rules._line_or_parabola import LineOrParabola
from hpfracc.operators.rules._memory import on_step
from hpfracc.operators.rules._moments import FIRST, exponential_mean, exponential_tilt, spread
from hpfracc.special import mittag_leffler

__all__ = ["MittagLefflerMemory", "kernel_at_points"]

#: Gauss points of one interval: for l >= 8 their error is below rounding.
_GAUSS = 6
#: The interval of the double exponential rule, outside which nothing counts, and its points by the order: the error
#: was measured below 1e-13 from alpha = 0.05 on with 2048 points, and they must grow like 1/alpha below.
_WIDTH, _LEAST_POINTS, _POINTS = 3.6, 512, 110.0
#: The least order that a traced one may have, its value being unknown when the points are chosen.
LEAST_TRACED = 0.05


@final
class MittagLefflerMemory(LineOrParabola):
    r"""The integral of f' against :math:`E_\alpha(-c\,(t-s)^\alpha)/(1-\alpha)`, :math:`c = \alpha/(1-\alpha)`.

    .. math::
        D^\alpha f(t_k) \approx \frac{1}{1-\alpha} \Big[ \sum_{j=1}^{k} a_{k-j}\,\delta_j
        + \sum_{j=2}^{k} b_{k-j}\,(\delta_j - \delta_{j-1}) \Big], \quad \delta_j = f_j - f_{j-1},

    with the kernel's means :math:`a_l = (l+1) E_{\alpha,2}(-c\,((l+1)h)^\alpha) - l\,E_{\alpha,2}(-c\,(lh)^\alpha)` and
    tilts :math:`b_l` (by :math:`E_{\alpha,3}` likewise). Without the second sum f is interpolated by lines (order 2,
    ``"linear"``), with it by parabolas (order 3, ``"quadratic"``), at every point beyond the first, for f with as many
    continuous derivatives. Zero, exactly, on constants.

    A plain order takes the Mittag-Leffler function itself. One that carries a derivative, or a step that does, takes

    .. math:: E_\alpha(-c\,t^\alpha) = \frac{1}{\pi\alpha} \int_0^{\pi\alpha} e^{-r(\theta)\,t}\,d\theta, \quad
        r = \Big(\frac{c \sin\theta}{\sin(\pi\alpha-\theta)}\Big)^{1/\alpha},

    by a double exponential rule, through which derivatives of every order go; the two agree to some 1e-13.

    References
    ----------
    A. Atangana, D. Baleanu, Thermal Science 20 (2016) 763-769; the integral: R. Gorenflo, F. Mainardi, in *Fractals and
    Fractional Calculus in Continuum Mechanics*, 1997.
    """

    def apply(self, samples: Samples, order: Order) -> Any:
        """One causal convolution of the increments."""
        means, tilts, _, key = _moments(samples, order)
        x = samples.values
        order = on_step(order, samples.grid.step)
        with order.xp.scope():
            factor = _guard(order, 1.0 / (1.0 - order.value))
        signal = x * scalar(factor, x)
        if not self.quadratic:
            return samples.convolve(means, signal, None if key is None else (key, "linear"), differences=True)
        with order.xp.scope():
            before = order.xp.concatenate([order.xp.array([0.0]), tilts[:-1]])
            weights, starts = means + tilts - before, -before.reshape(1, -1)
        # The first interval has no parabola, so its increment has weights of its own.
        starts = constant(starts, x, None if key is None else (key, "starts"))
        key = None if key is None else (key, "quadratic")
        return samples.convolve(weights, signal, key, starts, starts_from=1, differences=True)


def kernel_at_points(samples: Samples, order: Order) -> Any:
    """``E_alpha(-c t^alpha) / (1 - alpha)`` at the points of the grid, ready to be multiplied with samples."""
    _, _, kernel, key = _moments(samples, order)
    order = on_step(order, samples.grid.step)
    with order.xp.scope():
        kernel = _guard(order, kernel / (1.0 - order.value))
    return constant(kernel, samples.values, None if key is None else (key, "kernel"))


def _guard(order: Order, value: Any) -> Any:
    """Make it nan where a traced order lies outside what was prepared for."""
    if order.known is not None:
        return value
    return order.xp.where((order.value >= LEAST_TRACED) & (order.value < 1.0), value, math.nan)


def _moments(samples: Samples, order: Order) -> tuple[Any, Any, Any, Hashable]:
    """Means, tilts and point values of the kernel, and the key of a plain order and step."""
    order = on_step(order, samples.grid.step)
    if order.plain:
        step = float(to_host(samples.grid.step))
        scheme = ("mittag-leffler", step)
        made = weights_of(scheme, lambda xp, alpha, n: _by_function(alpha, step, n), order, samples.n)
        return (*made, weights_key(scheme, order, samples.n))

    def make(xp: Namespace, alpha: Any, n: int) -> tuple[Any, ...]:
        known = LEAST_TRACED if order.known is None else order.known
        points = max(_LEAST_POINTS, math.ceil(_POINTS / known))
        return spread(xp, lambda at: _by_integral(xp, alpha, samples.grid.step, at, points), n)

    if library_of(samples.grid.step) not in ("numpy", "python"):
        with order.xp.scope():  # of the step as well
            return (*make(order.xp, order.value, samples.n), None)
    return (*weights_of("mittag-leffler", make, order, samples.n), None)


def _by_function(alpha: float, step: float, n: int) -> tuple[Any, ...]:
    c = alpha / (1.0 - alpha)
    nodes, gauss = legendre.leggauss(_GAUSS)
    v = 0.5 * (1.0 + nodes)

    def function(beta: float, at: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        return np.asarray(mittag_leffler(-c * (at * step) ** alpha, alpha, beta, backend="numpy"))

    def evaluate(at: np.ndarray[Any, Any]) -> tuple[np.ndarray[Any, Any], ...]:
        near, far = at[at < FIRST], at[at >= FIRST]
        edges = np.arange(len(near) + 1, dtype=np.float64)
        first, second = edges * function(2.0, edges), edges**2 * function(3.0, edges)
        mean = np.diff(first)
        tilt = np.diff(second) - 0.5 * (first[1:] + first[:-1])
        inside = function(1.0, (far[:, None] + v).reshape(-1)).reshape(-1, _GAUSS) * (0.5 * gauss)
        return (
            np.concatenate([mean, inside.sum(axis=1)]),
            np.concatenate([tilt, inside @ (0.5 - v)]),
            function(1.0, at),
        )

    with aside():
        return spread(NUMPY, evaluate, n)


def _by_integral(xp: Namespace, alpha: Any, step: Any, at: np.ndarray[Any, Any], points: int) -> tuple[Any, ...]:
    """The same by the integral over rates r of decay, each of which has an exponential for its kernel."""
    spacing = 2.0 * _WIDTH / (points - 1)
    place = _WIDTH * np.linspace(-1.0, 1.0, points)
    turn = np.pi * np.sinh(place)
    left, right = 1.0 / (1.0 + np.exp(-turn)), 1.0 / (1.0 + np.exp(turn))
    weight = xp.array((left * right * np.pi * np.cosh(place) * spacing).reshape(-1, 1))
    angle = math.pi * alpha
    rates = (
        xp.log(alpha / (1.0 - alpha)) + xp.log(xp.sin(angle * xp.array(left))) - xp.log(xp.sin(angle * xp.array(right)))
    ) / alpha
    # Rates so low or so high that the kernel is 1 or 0 throughout need not be told apart.
    rates = rates + xp.log(xp.array(step))
    rates = xp.where(rates > 300.0, 300.0, xp.where(rates < -300.0, -300.0, rates))
    z = xp.exp(rates).reshape(1, -1)
    decay = xp.exp(-xp.array(at.reshape(-1, 1)) * z)
    return tuple(
        xp.matmul(decay * factor, weight)[:, 0] for factor in (exponential_mean(xp, z), exponential_tilt(xp, z), 1.0)
    )
