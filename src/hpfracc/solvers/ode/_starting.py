"""Starting weights of fractional multistep methods: exact on the powers that a solution begins with."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np
from scipy.special import gamma, rgamma, zeta

from hpfracc.solvers.ode._problem import Problem
from hpfracc.solvers.ode._refusals import starts_infinite

__all__ = ["MOST_POWERS", "Multistep", "starting_powers", "starting_weights"]

Array = np.ndarray[Any, Any]

#: More powers than this, and the system for the weights has a condition beyond 1e6 or so.
MOST_POWERS = 7
#: From here on what the sums miss comes from its expansion in 1/n.
_FAR = 128
_TERMS = 14
#: Powers closer than this to one another count as one: what is missed is of order 2 less this.
_CLOSE = 0.02


class Multistep(Protocol):
    """A linear multistep method of order 2, raised to a fractional power."""

    name: ClassVar[str]

    def weights(self, alpha: float, n: int) -> Array:
        """``omega_0 .. omega_{n-1}``, for step 1."""

    def at_one(self, alpha: float, count: int) -> Array:
        """Coefficients of ``omega(e^-z) z^alpha`` in powers of z."""

    def at_minus_one(self, alpha: float, count: int) -> Array | None:
        """Those of ``omega(-e^-z) z^-alpha``, where omega is not smooth there; None where it is."""


@dataclass(frozen=True, slots=True)
class Powers:
    """The powers of t - t0 that are integrated exactly, and the first step whose value takes part."""

    exponents: tuple[float, ...]
    first: int

    @property
    def last(self) -> int:
        """The last step that takes part; all up to it are found together."""
        return self.first + len(self.exponents) - 1


def starting_powers(problem: Problem) -> Powers:
    """Powers up to 1 that ``f(t, y(t))`` is made of near t0: of 1, t, and t^alpha for every order there is."""
    assert problem.orders.known is not None
    orders = sorted({float(order) for order in problem.orders.known.reshape(-1)})
    infinite = starts_infinite(problem)
    found = {0.0}
    if problem.derivative == "riemann_liouville" and infinite:
        found |= {order - math.ceil(order) + k for order in orders for k in range(math.ceil(order))}
    grown = True
    while grown:
        more = {round(power + order, 12) for power in found for order in (*orders, 1.0) if power + order < 1.0}
        grown = not more <= found
        found |= more
    kept: list[float] = []
    for power in sorted(found):
        if power < 1.0 - _CLOSE and (not kept or power - kept[-1] > _CLOSE):
            kept.append(power)
    return Powers((*kept, 1.0), 1 if infinite else 0)


def starting_weights(method: Multistep, alpha: float, n: int, powers: Powers) -> Array:
    r"""Weights ``w[j, k]`` of the values at steps ``first + j`` at the points k = 0 .. n-1, for step 1.

    They make :math:`\sum_j w_{k,j} f_j + \sum_{j=0}^{k} \omega_{k-j} f_j` the integral of order alpha wherever f is a
    sum of the powers. Near the origin what the sum misses is the difference of the two sides. Far away these are of
    size :math:`k^{\nu+\alpha}` and their difference of size :math:`k^{\alpha-1}`, so it is not taken: it is read off
    the expansion of the generating functions at their singularities, each :math:`z^s` of which, with
    :math:`z = -\log\zeta`, stands for :math:`k^{-s-1}/\Gamma(-s)`.

    References
    ----------
    C. Lubich, SIAM J. Math. Anal. 17 (1986) 704-719; R. Garrappa, Math. Comput. Simul. 110 (2015) 96-112.
    """
    near = min(n, _FAR)
    omega = method.weights(alpha, near)
    steps = np.arange(near, dtype=np.float64)
    missed = np.empty((len(powers.exponents), n))
    for row, power in enumerate(powers.exponents):
        with np.errstate(divide="ignore"):
            samples = steps**power
        if power < 0.0:
            samples[0] = 0.0
        exact = gamma(power + 1.0) * rgamma(power + alpha + 1.0) * steps ** (power + alpha)
        if powers.first == 1 and power == 0.0:
            samples[0] = 0.0
        missed[row, :near] = exact - np.convolve(omega, samples)[:near]
        if n > near:
            missed[row, near:] = _missed_far(method, alpha, power, np.arange(near, n, dtype=np.float64), powers.first)
    nodes = np.arange(powers.first, powers.last + 1, dtype=np.float64)
    table = nodes[None, :] ** np.array(powers.exponents)[:, None]
    return np.linalg.solve(table, missed)


def _missed_far(method: Multistep, alpha: float, power: float, k: Array, first: int) -> Array:
    """The exact integral of t^power less its sum, at large k."""
    smooth = method.at_one(alpha, _TERMS)
    regular = np.array([(-1.0) ** m * _zeta(-power - m) / math.factorial(m) for m in range(_TERMS)])
    if power == 0.0 and first == 0:
        regular[0] += 1.0  # the value at the origin itself
    mixed = np.convolve(smooth, regular)[:_TERMS]
    total = np.zeros_like(k)
    for m in range(_TERMS - 1, -1, -1):
        total = total / k + mixed[m] * rgamma(alpha - m)
    total = total * k ** (alpha - 1.0)
    pole = np.zeros_like(k)
    for m in range(_TERMS - 1, 0, -1):
        pole = (pole + smooth[m] * rgamma(alpha + power + 1.0 - m)) / k
    total += gamma(power + 1.0) * pole * k ** (alpha + power)
    bent = method.at_minus_one(alpha, _TERMS)
    if bent is not None:
        other = np.array(
            [
                (-1.0) ** m * (2.0 ** (1.0 + power + m) - 1.0) * _zeta(-power - m) / math.factorial(m)
                for m in range(_TERMS)
            ]
        )
        if power == 0.0 and first == 0:
            other[0] += 1.0
        mixed = np.convolve(bent, other)[:_TERMS]
        part = np.zeros_like(k)
        for m in range(_TERMS - 1, -1, -1):
            part = part / k + mixed[m] * rgamma(-alpha - m)
        total += np.where(k % 2 == 0, 1.0, -1.0) * part * k ** (-alpha - 1.0)
    return -total


def _zeta(x: float) -> float:
    """Riemann's zeta function for real x < 1: by reflection below 0, by Borwein's alternating sum between 0 and 1."""
    if x < 0.0:
        return float(2.0**x * math.pi ** (x - 1.0) * math.sin(0.5 * math.pi * x) * gamma(1.0 - x) * zeta(1.0 - x))
    terms = 24
    parts = [
        terms * math.factorial(terms + i - 1) * 4.0**i / (math.factorial(terms - i) * math.factorial(2 * i))
        for i in range(terms + 1)
    ]
    sums = np.cumsum(parts)
    k = np.arange(terms)
    alternating = np.sum((-1.0) ** k * (sums[:-1] - sums[-1]) / (k + 1.0) ** x)
    return float(-alternating / (sums[-1] * (1.0 - 2.0 ** (1.0 - x))))
