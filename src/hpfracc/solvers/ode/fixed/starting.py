"""Starting weights of fractional multistep methods: exact on the powers with which a solution starts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import fft
from scipy.special import gamma, rgamma, zetac

from hpfracc.solvers.ode.problem import Problem, starts_infinite
from hpfracc.solvers.ode.singular import read_growth, singular_powers

__all__ = ["MAX_POWERS", "Powers", "starting_powers", "starting_weights"]

Array = np.ndarray[Any, Any]

#: Maximum number of powers; with more the condition number of the system for the weights exceeds about 1e6.
MAX_POWERS = 7
#: From this point on the error of the sums comes from its expansion in 1/n.
_FAR = 128
_TERMS = 14
#: Number of points whose powers fit into the cache.
_CHUNK = 4096
#: Powers closer than this count as one; the error is then of order 2 minus this.
_CLOSE = 0.02


@dataclass(frozen=True, slots=True)
class Powers:
    """The powers of t - t0 that are integrated exactly, and the first step whose value is used."""

    exponents: tuple[float, ...]
    first: int

    @property
    def last(self) -> int:
        """The last step whose value is used; all steps up to it are solved together."""
        return self.first + len(self.exponents) - 1


def starting_powers(problem: Problem, bound: float = 1.0) -> Powers:
    """Powers up to ``bound`` of ``f(t, y(t))`` near t0: products of 1, t, and t^alpha for every order.

    If the solution is infinite at t0, they are determined from the right-hand side, which may raise
    :class:`~hpfracc.solvers.ode.singular.GrowthError`.
    """
    assert problem.orders.known is not None
    infinite = starts_infinite(problem)
    if infinite:
        found = singular_powers(problem, read_growth(problem), bound)
    else:
        orders = sorted({float(order) for order in problem.orders.known.reshape(-1)})
        found, grown = {0.0}, True
        while grown:
            more = {round(power + order, 12) for power in found for order in (*orders, 1.0) if power + order < bound}
            grown = not more <= found
            found |= more
    kept: list[float] = []
    for power in sorted(found):
        if power < bound - _CLOSE and (not kept or power - kept[-1] > _CLOSE):
            kept.append(power)
    return Powers((*kept, bound), 1 if infinite else 0)


def starting_weights(method: Any, alpha: float, omega: Array, powers: Powers) -> Array:
    r"""Weights ``w[j, k]`` of the values at steps ``first + j`` at the points k = 0 .. n-1, for step 1.

    They make :math:`\sum_j w_{k,j} f_j + \sum_{j=0}^{k} \omega_{k-j} f_j` the integral of order alpha if f is a sum
    of the powers; ``omega`` has all n weights of the method. Near the origin the error of the sum is the difference of
    the two sides. Far away these are of size :math:`k^{\nu+\alpha}` and their difference of size :math:`k^{\alpha-1}`,
    which would cancel. There it comes from the expansion of the generating functions at their singularities: each
    :math:`z^s`, with :math:`z = -\log\zeta`, contributes :math:`k^{-s-1}/\Gamma(-s)`.

    References
    ----------
    C. Lubich, SIAM J. Math. Anal. 17 (1986) 704-719; R. Garrappa, Math. Comput. Simul. 110 (2015) 96-112.
    """
    n = len(omega)
    smooth = method.at_one(alpha, _TERMS) if n > _FAR else None
    near = n if smooth is None else _FAR
    steps = np.arange(near, dtype=np.float64)
    missed = np.empty((len(powers.exponents), n))
    for row, power in enumerate(powers.exponents):
        with np.errstate(divide="ignore"):
            samples = steps**power
            exact = gamma(power + 1.0) * rgamma(power + alpha + 1.0) * steps ** (power + alpha)
        if power < 0.0:
            samples[0] = exact[0] = 0.0  # not needed at the origin
        if powers.first == 1 and power == 0.0:
            samples[0] = 0.0
        missed[row, :near] = exact - _convolve(omega[:near], samples)
    if smooth is not None:
        _miss_far(missed, smooth, method.at_minus_one(alpha, _TERMS), alpha, powers)
    nodes = np.arange(powers.first, powers.last + 1, dtype=np.float64)
    table = nodes[None, :] ** np.array(powers.exponents)[:, None]
    return np.linalg.solve(table, missed)


def _convolve(one: Array, other: Array) -> Array:
    """The product of two series, truncated to their length."""
    n = len(one)
    if n <= 4 * _FAR:
        return np.convolve(one, other)[:n]
    size = fft.next_fast_len(2 * n - 1, real=True)
    return np.asarray(fft.irfft(fft.rfft(one, size) * fft.rfft(other, size), size)[:n])


def _miss_far(missed: Array, smooth: Array, bent: Array | None, alpha: float, powers: Powers) -> None:
    """Fill in the exact integral of each power minus its sum, from the point ``_FAR`` on.

    Each is a sum of three series in 1/k: a regular one and one with the power itself from the singularity at 1, and an
    alternating one from that at -1. All use the same powers of 1/k, computed in pieces that fit into the cache.
    """
    m = np.arange(_TERMS)
    nu = np.array(powers.exponents)[:, None]
    at = (1.0 - 2.0 * (m % 2)) * (1.0 + zetac(-nu - m)) / gamma(m + 1.0)
    origin = np.where((nu == 0.0) & (m == 0) & (powers.first == 0), 1.0, 0.0)  # the value at the origin
    regular = _times_series(at + origin, smooth) * rgamma(alpha - m)
    whole = gamma(nu + 1.0) * smooth * rgamma(alpha + nu + 1.0 - m)
    whole[:, 0] = 0.0  # the exact integral
    if bent is not None:
        alternating = _times_series(at * (2.0 ** (1.0 + nu + m) - 1.0) + origin, bent) * rgamma(-alpha - m)
    for begin in range(_FAR, missed.shape[1], _CHUNK):
        k = np.arange(begin, min(begin + _CHUNK, missed.shape[1]), dtype=np.float64)
        table, once = np.ones((_TERMS, len(k))), 1.0 / k
        for term in range(1, _TERMS):
            np.multiply(table[term - 1], once, out=table[term])
        total = (regular @ table) * k ** (alpha - 1.0) + (whole @ table) * k ** (alpha + nu)
        if bent is not None:
            total += (alternating @ table) * (np.where(k % 2 == 0, 1.0, -1.0) * k ** (-alpha - 1.0))
        missed[:, begin : begin + _CHUNK] = -total


def _times_series(rows: Array, series: Array) -> Array:
    """The product of each row with a series, truncated to their length."""
    lags = np.arange(len(series)) - np.arange(len(series))[:, None]
    return np.asarray(rows @ np.where(lags >= 0, series[lags], 0.0))
