r"""Weights of L1 and L2-1sigma on any mesh: :math:`D^\alpha u(t_n^*) \approx \sum_{k \le n} A_{n,k} (u_k - u_{k-1})`.

With :math:`t_n^* = t_{n-1} + \sigma \tau_n` and :math:`\omega(t) = t^{-\alpha}/\Gamma(1-\alpha)`, interval k
contributes

.. math:: a_{n,k} = \frac1{\tau_k} \int_{t_{k-1}}^{\min(t_k, t_n^*)} \omega(t_n^* - s)\,ds, \qquad
    b_{n,k} = \frac{2}{\tau_k (\tau_k + \tau_{k+1})} \int_{t_{k-1}}^{t_k} (s - t_{k-1/2})\,\omega(t_n^* - s)\,ds.

L1 interpolates u linearly on each interval (:math:`\sigma = 1`, only a); L2-1sigma by a parabola through
:math:`t_{k-1}, t_k, t_{k+1}` on all but the last (:math:`\sigma = 1 - \alpha/2`).

For distant intervals the integrals are small differences of powers. They are then summed as series in half the length
over the distance of the midpoint, which keep all digits.

References
----------
M. Stynes, E. O'Riordan, J. L. Gracia, SIAM J. Numer. Anal. 55 (2017) 1057-1079 (L1 on graded meshes);
A. A. Alikhanov, J. Comput. Phys. 280 (2015) 424-438; H. Liao, W. McLean, J. Zhang, Commun. Comput. Phys. 30 (2021)
567-601 (L2-1sigma on nonuniform meshes).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from hpfracc._xp import NUMPY, Namespace

Array = np.ndarray[Any, Any]

#: Ratio of half an interval to the distance of its midpoint below which series are summed, and the number of terms.
_FAR = 0.25
_TERMS = 14
#: The ratio below which four terms have all digits.
_FEW, _FEW_TERMS = 0.01, 4


def order_value(alpha: Any) -> float:
    """An order as a number; nan if it is traced and has no value."""
    try:
        return float(alpha.detach() if hasattr(alpha, "detach") else alpha)
    except (TypeError, RuntimeError):  # a JAX tracer, and a tensor that is mapped by torch.func
        return math.nan


def interval_integrals(xp: Namespace, alpha: Any, near: Any, length: Any, *, parabola: bool) -> tuple[Any, Any]:
    r"""The mean of :math:`\omega` over intervals, and its first moment about their midpoints over the squared length.

    Parameters
    ----------
    xp : Namespace
        The library of all arrays.
    alpha : float or array
        Order, up to 1 (below 0 for an integral); an array broadcasts against the intervals.
    near : array
        Distance to the near end of each interval, 0 or more.
    length : array
        Length of each interval.
    parabola : bool
        Whether the moments are needed.

    Returns
    -------
    mean, moment : arrays, array or None
        :math:`\frac1\tau\int\omega` and :math:`\frac1{\tau^2}\int (s - s_{mid})\,\omega`, at least 0.
    """
    middle = near + 0.5 * length
    q = 0.5 * length / middle
    far = q < _FAR
    power = xp.exp(-alpha * xp.log(middle)) * xp.rgamma(xp.array(1.0 - alpha))
    # The series of (1 + q y)^-alpha, integrated over y in [-1, 1], with and without a factor y.
    coefficients = [1.0]
    for j in range(2 * _TERMS):
        coefficients.append(coefficients[-1] * (alpha + j) / (j + 1.0))
    if xp.library == "numpy" and not np.ndim(alpha):
        mean, moment = _series(coefficients, q, power, _FEW_TERMS, parabola)
        some, close = np.nonzero(far & (q >= _FEW)), np.nonzero(~far)
        for where, found in (
            (some, _series(coefficients, q[some], power[some], _TERMS, parabola)),
            (close, _closed(xp, alpha, near[close], length[close])),
        ):
            mean[where] = found[0]
            if parabola:
                moment[where] = found[1]
        return mean, moment
    # Both are computed everywhere, because the condition may be traced, or the orders differ.
    mean, moment = _series(coefficients, xp.where(far, q, 0.0), power, _TERMS, parabola)
    first, second = _closed(xp, alpha, xp.where(far, 0.25, near), xp.where(far, 1.0, length))
    return xp.where(far, mean, first), xp.where(far, moment, second) if parabola else None


def _series(coefficients: Sequence[Any], q: Any, power: Any, terms: int, parabola: bool) -> tuple[Any, Any]:
    """The integrals of distant intervals, as series in the ratio of their half lengths to their distances."""
    squares = q * q
    mean = _horner(coefficients[0::2], 1, squares, terms) * power
    return mean, _horner(coefficients[1::2], 3, squares, terms) * (0.5 * power) * q if parabola else None


def _horner(coefficients: Sequence[Any], first: int, squares: Any, terms: int) -> Any:
    """``sum_i c_i q^(2i) / (first + 2i)``."""
    total: Any = 0.0
    for place in range(terms - 1, -1, -1):
        term = coefficients[place] / (first + 2.0 * place)
        if type(total) is np.ndarray and total.ndim:  # in place: a table of weights is larger than the caches
            total *= squares
            total += term
        else:
            total = total * squares + term
    return total


def _closed(xp: Namespace, alpha: Any, near: Any, length: Any) -> tuple[Any, Any]:
    """Closed form by powers, for intervals that are not distant."""
    touches = near <= 0.0
    start = xp.where(touches, 1.0, near)
    inner, outer, growth = xp.log(start), xp.log(near + length), xp.log1p(length / start)
    one, two = 1.0 - alpha, 2.0 - alpha
    # By 1 / Gamma(2 - alpha), which stays finite at order 1, and by expm1, because near it both powers are almost 1.
    scale = xp.rgamma(xp.array(two))
    area = xp.where(touches, xp.exp(one * outer), xp.exp(one * inner) * xp.expm1(one * growth)) * scale
    lever = xp.where(touches, xp.exp(two * outer), xp.exp(two * inner) * xp.expm1(two * growth)) * (scale * one / two)
    return area / length, ((near + 0.5 * length) * area - lever) / length**2


def orders_of_steps(order: Callable[[float], Any], mesh: Array, *, parabola: bool) -> tuple[Array, Array]:
    r"""The orders of all steps, and the points within them, for an order that is a function of the current time.

    The order of a step is that at the time at which its equation holds, in :math:`(t - s)^{-\alpha(t)}`: its end, or
    for L2-1sigma the point :math:`\sigma = 1 - \alpha/2`, which depends on the order there.

    Parameters
    ----------
    order : callable
        ``order(t)``: a number, or an array of one dimension; a number for L2-1sigma.
    mesh : numpy.ndarray
        Times.
    parabola : bool
        True for L2-1sigma.

    Returns
    -------
    orders, sigma : numpy.ndarray
        Of shapes (steps, columns) and (steps,).
    """
    found, places = [], []
    for before, now in itertools.pairwise(mesh.tolist()):
        value, sigma = np.atleast_1d(order(now)), 1.0
        for _ in range(4 if parabola else 0):
            sigma = 1.0 - 0.5 * float(value[0])
            value = np.atleast_1d(order(before + sigma * (now - before)))
        found.append(value)
        places.append(sigma)
    return np.array(found), np.array(places)


class IntervalWeights:
    """The rows of weights of a difference formula on a mesh, for a sum of derivatives.

    Parameters
    ----------
    orders : sequence of (coefficient, order)
        The derivatives, orders at most 1.
    mesh : numpy.ndarray
        Times, starting from 0.
    sigma : float or scalar array
        Point within the newest interval at which the derivative is taken; 1 for L1.
    parabola : bool
        True for L2-1sigma.
    xp : Namespace
        The library of the orders.
    breaks : sequence of int
        Numbers of the mesh points at which u has a kink: no parabola goes through both sides, and the interval before
        it is linear.
    each : numpy.ndarray, optional, shape (steps or 1, columns)
        Orders that differ from step to step, or between the columns of a state, in place of ``orders``; ``sigma`` may
        then have an entry for each step. For sums of exponentials only.
    """

    def __init__(
        self,
        orders: Sequence[tuple[Any, Any]],
        mesh: Array,
        sigma: Any = 1.0,
        *,
        parabola: bool = False,
        xp: Namespace = NUMPY,
        breaks: Sequence[int] = (),
        each: Array | None = None,
    ) -> None:
        self.each = each
        self.orders, self.mesh, self.sigma, self.parabola, self.xp = orders, mesh, sigma, parabola, xp
        self.steps = np.diff(mesh)
        self.breaks = tuple(breaks)
        #: The length of the following interval, with whose value the parabola is put through each interval; infinite
        #: where it is linear.
        self.following = np.append(self.steps[1:], np.inf)
        self.following[np.asarray(breaks, int) - 1] = np.inf

    def place(self, n: int) -> Any:
        """The time at which the derivative of step n (counted from 1) is taken."""
        return float(self.mesh[n - 1]) + self.sigma_of(n) * float(self.steps[n - 1])

    def sigma_of(self, n: int) -> Any:
        """The point within step n, as a share of the step."""
        return float(self.sigma[n - 1]) if isinstance(self.sigma, np.ndarray) and self.sigma.ndim else self.sigma

    def rows(self, first: int, stop: int, begin: int = 0) -> Any:
        """``A[n, k]`` for n from ``first`` to ``stop - 1`` and k from ``begin + 1`` to ``stop - 1``.

        A parabola on an interval before those is left out.
        """
        xp, mesh, steps = self.xp, self.mesh, self.steps
        ns = np.arange(first, stop)
        columns = np.arange(begin, stop - 1)
        past = columns[None, :] < ns[:, None] - 1
        own = columns[None, :] == ns[:, None] - 1
        newest = self.sigma * xp.array(steps[ns - 1][:, None])
        gaps = mesh[ns - 1][:, None] - mesh[None, columns + 1]
        # The newest interval extends only to the evaluation point, and later ones do not contribute.
        here = xp.asarray(past)
        near = xp.where(here, xp.array(np.where(past, gaps, 0.0)) + newest, 0.0)
        length = xp.where(here, xp.array(np.broadcast_to(steps[None, columns], past.shape)), newest)
        total: Any = None
        for coefficient, alpha in self.orders:
            part = self._rows_of(alpha, near, length, past, own, ns, columns)
            part = part if _is_one(coefficient) else part * coefficient
            total = part if total is None else total + part
        return total

    def _rows_of(self, alpha: Any, near: Any, length: Any, past: Array, own: Array, ns: Array, columns: Array) -> Any:
        xp, steps = self.xp, self.steps
        if _is_one(alpha):
            return xp.array(np.where(own, 1.0 / steps[ns - 1][:, None], 0.0))
        mean, moment = interval_integrals(xp, alpha, near, length, parabola=self.parabola)
        # Only sigma tau of the newest interval is covered: the integral over tau is sigma times the mean.
        a = mean * (xp.array(past.astype(float)) + self.sigma * xp.array(own.astype(float)))
        if not self.parabola:
            return a
        current, following = steps[columns], self.following[columns]
        b = moment * xp.array(np.where(past, 2.0 * current / (current + following), 0.0))
        # Interval k contributes b_k (tau_k / tau_(k+1) du_(k+1) - du_k).
        shifted = b * xp.array(current / following)
        return a - b + xp.concatenate([xp.zeros_like(b[:, :1]), shifted[:, :-1]], 1)


def _is_one(value: Any) -> bool:
    return isinstance(value, int | float) and value == 1
