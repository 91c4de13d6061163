r"""Powers as sums of exponentials: :math:`t^{-\beta} \approx \sum_j w_j e^{-\lambda_j t}` on an interval.

The trapezoidal rule with step d for :math:`t^{-\beta} = \Gamma(\beta)^{-1} \int e^{\beta x} \exp(-t e^x) dx` has an
error whose relative size is the same at every t, :math:`2 |\Gamma(\beta + 2\pi i/d)| / \Gamma(\beta)`, which determines
d from the tolerance. Terms too fast for the shortest t are dropped, and those indistinguishable from a constant up to
the longest t are combined into one. This takes :math:`O(\log(T/h) \log(1/\epsilon))` terms, all positive, with nodes
that do not depend on :math:`\beta`, so that weights exist for an order that carries a gradient. For a plain order the
slow half is then replaced by the few nodes of the Gauss rule for its measure (found by the Lanczos process).

References
----------
G. Beylkin, L. Monzón, Appl. Comput. Harmon. Anal. 28 (2010) 131-149; S. Jiang, J. Zhang, Q. Zhang, Z. Zhang, Commun.
Comput. Phys. 21 (2017) 650-678, for another construction of such sums and their use.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from scipy import special

from hpfracc._xp import NUMPY, Namespace
from hpfracc.errors import InvalidInputError

__all__ = [
    "FULL_PRECISION",
    "MIN_TOLERANCE",
    "Exponentials",
    "Nodes",
    "compress",
    "exponential_nodes",
    "exponential_sum",
    "node_weights",
]

Array = np.ndarray[Any, Any]

#: The smallest tolerance that a user can request.
MIN_TOLERANCE = 1e-13
#: The smallest error that double precision allows, with three times as many terms.
FULL_PRECISION = 1e-15
#: Largest rate of the slow terms, in units of 1/T, and the largest number of Gauss nodes that replace them.
_SLOW = math.exp(1.5)
_MAX_GAUSS = 24


@dataclass(frozen=True, slots=True)
class Exponentials:
    """A sum of decaying exponentials.

    Attributes
    ----------
    rates, weights : numpy.ndarray
        Decay rate and weight of each term; read-only.
    """

    rates: Array
    weights: Array

    def __call__(self, t: Any) -> Array:
        """The sum at ``t``."""
        return np.asarray(np.exp(-np.multiply.outer(t, self.rates)) @ self.weights)


@dataclass(frozen=True, slots=True)
class Nodes:
    """The nodes of the trapezoidal rule, independent of the power.

    Attributes
    ----------
    logs : numpy.ndarray
        Logarithms of the rates, equally spaced and increasing.
    step : float
        Their spacing.
    """

    logs: Array
    step: float

    @property
    def rates(self) -> Array:
        """The rates, the first of which is 0: it represents all slower ones."""
        return np.concatenate([[0.0], np.exp(self.logs)])


def exponential_nodes(least: float, most: float, shortest: float, longest: float, rtol: float) -> Nodes:
    """Nodes for every power ``t**-beta`` with ``least <= beta <= most`` on ``[shortest, longest]``."""
    _check(least, most, shortest, longest, rtol)
    step = min(_trapezoid_step(beta, rtol / 3.0) for beta in (least, 0.5 * (least + most), most))
    # A power below the tolerance is constant up to the tolerance, and no rate is too fast.
    fastest = math.log(max(float(special.gammainccinv(most, rtol / 4.0)), rtol) / shortest) + step
    # Below this, exp(-rate t) cannot be distinguished from 1.
    slowest = math.log(rtol / 4.0) - math.log(longest)
    count = max(2, math.ceil((fastest - slowest) / step) + 1)
    return Nodes(fastest - step * np.arange(count)[::-1], step)


def node_weights(xp: Namespace, beta: Any, nodes: Nodes) -> Any:
    """The weights of ``t**-beta`` at the rates of ``nodes``, in the library of ``beta``."""
    scale = nodes.step * xp.rgamma(beta)
    weights = xp.exp(beta * xp.array(nodes.logs)) * scale
    # The terms below the first, a geometric series.
    rest = weights[:1] / xp.expm1(beta * nodes.step)
    return xp.concatenate([rest, weights])


@lru_cache(maxsize=256)
def exponential_sum(beta: float, shortest: float, longest: float, rtol: float) -> Exponentials:
    """The power ``t**-beta`` on ``[shortest, longest]`` to the relative tolerance ``rtol``, with few terms.

    Parameters
    ----------
    beta : float
        Positive: ``1 + alpha``, ``alpha`` or ``1 - alpha`` for the kernels of derivatives and integrals.
    shortest, longest : float
        The interval.
    rtol : float
        At least 1e-15. Below 1e-13 rounding is noticeable, and the slow terms are not reduced.

    Examples
    --------
    >>> import numpy as np
    >>> from hpfracc.operators.core.exponentials import exponential_sum
    >>> power = exponential_sum(0.5, 1e-5, 1.0, 1e-6)
    >>> t = np.geomspace(1e-5, 1.0, 1001)
    >>> bool(np.max(np.abs(power(t) * np.sqrt(t) - 1.0)) < 1e-6), len(power.rates) < 40
    (True, True)
    """
    half = 0.5 * rtol
    nodes = exponential_nodes(beta, beta, shortest, longest, half)
    rates, weights = nodes.rates, np.asarray(node_weights(NUMPY, beta, nodes))
    return compress(rates, weights, longest, half * longest**-beta)


def compress(rates: Array, weights: Array, longest: float, tolerance: float) -> Exponentials:
    """The same sum, to an absolute ``tolerance`` up to ``longest``, with the slow terms replaced by a few."""
    slow = rates * longest <= _SLOW
    few = _gauss(rates[slow], weights[slow], longest, tolerance)
    rates = np.concatenate([few[0], rates[~slow]])
    weights = np.concatenate([few[1], weights[~slow]])
    for array in (rates, weights):
        array.setflags(write=False)
    return Exponentials(rates, weights)


def _trapezoid_step(beta: float, rtol: float) -> float:
    """The longest step whose relative error is below ``rtol``."""

    def excess(step: float) -> float:
        line = 2.0 * math.pi / step
        log_ratio = special.loggamma(complex(beta, line)).real - special.gammaln(beta)
        return float(log_ratio + math.log(2.0) - math.log(rtol))

    low, high = 1e-2, 20.0
    for _ in range(60):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if excess(middle) < 0.0 else (low, middle)
    return low


def _gauss(rates: Array, weights: Array, longest: float, tolerance: float) -> tuple[Array, Array]:
    """The shortest Gauss rule for a sum of point masses that preserves its Laplace transform on ``[0, longest]``."""
    t = np.linspace(0.0, longest, 65)
    exact = np.exp(-np.multiply.outer(t, rates)) @ weights
    diagonal, off, total = _lanczos(rates * longest, weights, min(_MAX_GAUSS, len(rates)))
    for count in range(1, len(diagonal) + 1):
        matrix = np.diag(diagonal[:count]) + np.diag(off[: count - 1], 1) + np.diag(off[: count - 1], -1)
        values, vectors = np.linalg.eigh(matrix)
        found = np.maximum(values, 0.0) / longest, total * vectors[0] ** 2
        if np.max(np.abs(np.exp(-np.multiply.outer(t, found[0])) @ found[1] - exact)) <= 0.5 * tolerance:
            return found
    return rates, weights


def _lanczos(points: Array, masses: Array, count: int) -> tuple[Array, Array, float]:
    """The recurrence of the polynomials orthogonal with respect to the masses, orthogonalised twice."""
    total = float(masses.sum())
    basis = [np.sqrt(masses / total)]
    diagonal, off = [], []
    for _ in range(count):
        new = points * basis[-1]
        diagonal.append(float(new @ basis[-1]))
        for _ in range(2):
            for old in basis:
                new = new - (new @ old) * old
        size = float(np.linalg.norm(new))
        if size < 1e-15 * max(1.0, float(points.max())):
            break
        off.append(size)
        basis.append(new / size)
    return np.array(diagonal), np.array(off), total


def _check(least: float, most: float, shortest: float, longest: float, rtol: float) -> None:
    if not (0.0 < least <= most and math.isfinite(most)):
        raise InvalidInputError(
            f"beta={least:g}: only decaying powers t**-beta are sums of exponentials; give beta > 0"
        )
    if not (0.0 < shortest <= longest and math.isfinite(longest)):
        raise InvalidInputError(f"the interval from {shortest:g} to {longest:g} must be positive, finite and rise")
    if not 0.25 * FULL_PRECISION <= rtol < 1.0:
        raise InvalidInputError(f"rtol={rtol:g}: a sum of exponentials reaches {FULL_PRECISION:g} to 1; give 1e-6, say")
