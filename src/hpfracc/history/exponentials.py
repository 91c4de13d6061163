r"""Powers as sums of exponentials: :math:`t^{-\beta} \approx \sum_j w_j e^{-\lambda_j t}` on an interval.

The trapezoidal rule with step d in x for

.. math:: t^{-\beta} = \frac{1}{\Gamma(\beta)} \int_0^\infty \lambda^{\beta-1} e^{-\lambda t}\,d\lambda, \qquad
    \lambda = e^{x - e^{-x}} / T,

has a relative error of about :math:`2 |\Gamma(\beta + 2\pi i/d)| / \Gamma(\beta)` at every t, which determines d from
the tolerance. The rates fall doubly exponentially on the left; those that cannot be distinguished from 0 up to the
longest distance T are combined into one term of rate 0, whose weight makes the sum exact at T. Terms too fast for the
shortest distance are dropped. This takes :math:`O(\log(T/h) \log(1/\epsilon))` terms. The rates do not depend on
:math:`\beta`, so that weights exist for an order that carries a gradient, up to and including :math:`\beta = 0`. A
shorter distance appends terms and leaves the others as they are, so that their states stay valid. For a plain order
(:func:`exponential_sum`) the slow terms are replaced by the few nodes of the Gauss rule for their measure.

References
----------
W. McLean, Exponential sum approximations for t^-beta, in Contemporary Computational Mathematics (2018) 911-930;
G. Beylkin, L. Monzón, Appl. Comput. Harmon. Anal. 28 (2010) 131-149; G. H. Golub, J. H. Welsch, Math. Comp. 23 (1969)
221-230, for the Gauss rule.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any, NamedTuple

import numpy as np
from scipy import linalg, special

from hpfracc._arrays import library_of
from hpfracc._xp import NUMPY, Namespace
from hpfracc.errors import InvalidInputError

Array = np.ndarray[Any, Any]

#: Gauss-Legendre quadrature of moments below this, the closed form above, where it loses no digits.
_SWITCH = 12.0
_POINTS, _WEIGHTS = special.roots_legendre(20)
_POINTS, _WEIGHTS = 0.5 * (_POINTS + 1.0), 0.5 * _WEIGHTS
#: The smallest tolerance that a user can request.
MIN_TOLERANCE = 1e-13
#: The smallest error that double precision allows.
FULL_PRECISION = 1e-15
#: Share of the tolerance for the trapezoidal rule: its largest error, over powers up to 2.5, is then below all of it.
_RULE = 0.2
#: Smaller powers have the spacing of this one, which is shorter than theirs.
_LEAST = 0.02
#: Largest rate, times the longest distance, of the terms that a Gauss rule replaces, and the share of its error.
_SLOW, _GAUSS = 4.5, 0.05


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
        Logarithms of the rates times ``longest``, increasing.
    masses : numpy.ndarray
        The weights of the rule in the logarithm of the rate.
    longest : float
        The longest distance.
    """

    logs: Array
    masses: Array
    longest: float

    @property
    def rates(self) -> Array:
        """The rates, the first of which is 0: it represents all slower ones."""
        return np.concatenate([[0.0], np.exp(self.logs) / self.longest])


def exponential_nodes(least: float, most: float, shortest: float, longest: float, rtol: float) -> Nodes:
    """Nodes for every power ``t**-beta`` with ``least <= beta <= most`` on ``[shortest, longest]``."""
    _check(least, most, shortest, longest, rtol)
    spacing = min(_spacing(max(beta, _LEAST), rtol) for beta in (least, 0.5 * (least + most), most))
    slowest = _solve_left(math.log(0.25 * rtol))
    # A power below the tolerance is constant up to the tolerance, and no rate is too fast.
    fast = float(special.gammainccinv(most, 0.25 * rtol)) if most else 0.0
    fastest = math.log(max(fast, rtol) * longest / shortest) + 0.5 * spacing
    x = slowest + spacing * np.arange(max(2, math.ceil((fastest - slowest) / spacing) + 1))
    slope = np.exp(-x)
    return Nodes(x - slope, spacing * (1.0 + slope), longest)


def node_weights(xp: Namespace, beta: Any, nodes: Nodes) -> Any:
    """The weights of ``t**-beta`` at the rates of ``nodes``, in the library of ``beta``; (terms, ...) for an array."""
    column = (slice(None), *(None,) * getattr(beta, "ndim", 0))
    masses, logs = xp.array(nodes.masses[column]), xp.array(nodes.logs[column])
    weights = xp.exp(beta * logs) * masses * xp.rgamma(beta)
    rest = 1.0 - (weights * xp.array(np.exp(-np.exp(nodes.logs))[column])).sum(0)
    return xp.concatenate([rest[None], weights]) * xp.exp(-beta * math.log(nodes.longest))


@lru_cache(maxsize=256)
def exponential_sum(beta: float, shortest: float, longest: float, rtol: float) -> Exponentials:
    """The power ``t**-beta`` on ``[shortest, longest]`` to the relative tolerance ``rtol``.

    Parameters
    ----------
    beta : float
        0 or more: ``1 + alpha``, ``alpha`` or ``1 - alpha`` for the kernels of derivatives and integrals.
    shortest, longest : float
        The interval.
    rtol : float
        At least 1e-15, where rounding is noticeable.

    Examples
    --------
    >>> import numpy as np
    >>> from hpfracc.history.exponentials import exponential_sum
    >>> power = exponential_sum(0.5, 1e-5, 1.0, 1e-6)
    >>> t = np.geomspace(1e-5, 1.0, 1001)
    >>> bool(np.max(np.abs(power(t) * np.sqrt(t) - 1.0)) < 1e-6), len(power.rates) < 40
    (True, True)
    """
    nodes = exponential_nodes(beta, beta, shortest, longest, rtol)
    weights = np.asarray(node_weights(NUMPY, beta, nodes))
    slow = nodes.rates * longest <= _SLOW
    few = _gauss(nodes.rates[slow], weights[slow], longest, _GAUSS * rtol * longest**-beta)
    found = Exponentials(*(np.concatenate([a, b[~slow]]) for a, b in zip(few, (nodes.rates, weights), strict=True)))
    for array in (found.rates, found.weights):
        array.setflags(write=False)
    return found


def _gauss(rates: Array, weights: Array, longest: float, tolerance: float) -> tuple[Array, Array]:
    """The shortest Gauss rule for these point masses that keeps their sum of exponentials up to ``longest``."""
    # The error of the rule may leave less than nothing for the constant term.
    t, weights = np.linspace(0.0, longest, 65), np.maximum(weights, 0.0)
    exact = np.exp(-np.multiply.outer(t, rates)) @ weights
    # Householder's reflections keep the first vector, so that the rest becomes the Jacobi matrix of the measure.
    bordered = np.diag(np.concatenate([[0.0], rates * longest]))
    bordered[0, 1:] = bordered[1:, 0] = np.sqrt(weights)
    reduced = linalg.hessenberg(bordered)
    diagonal, beside = np.diag(reduced)[1:], np.diag(reduced, 1)
    for count in range(1, len(rates)):
        values, vectors = linalg.eigh_tridiagonal(diagonal[:count], beside[1:count])
        found = np.maximum(values, 0.0) / longest, (beside[0] * vectors[0]) ** 2
        if np.max(np.abs(np.exp(-np.multiply.outer(t, found[0])) @ found[1] - exact)) <= tolerance:
            return found
    return rates, weights


@lru_cache(maxsize=256)
def _spacing(beta: float, rtol: float) -> float:
    """The longest spacing of the trapezoidal rule whose relative error is within its share of ``rtol``."""

    def excess(step: float) -> float:
        log_ratio = special.loggamma(complex(beta, 2.0 * math.pi / step)).real - special.gammaln(beta)
        return float(log_ratio + math.log(2.0 / (_RULE * rtol)))

    low, high = 1e-2, 20.0
    for _ in range(60):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if excess(middle) < 0.0 else (low, middle)
    return low


def _solve_left(target: float) -> float:
    """The x with ``x - exp(-x) = target``, for a target below 0."""
    x = -math.log(1.0 - target)
    for _ in range(20):
        x -= (x - math.exp(-x) - target) / (1.0 + math.exp(-x))
    return x


def _check(least: float, most: float, shortest: float, longest: float, rtol: float) -> None:
    if not (0.0 <= least <= most and math.isfinite(most)):
        raise InvalidInputError(f"beta={least:g}: growing powers are no sums of decaying exponentials; give beta >= 0")
    if not (0.0 < shortest <= longest and math.isfinite(longest)):
        raise InvalidInputError(f"the interval from {shortest:g} to {longest:g} must be positive, finite and rise")
    if not 0.25 * FULL_PRECISION <= rtol < 1.0:
        raise InvalidInputError(f"rtol={rtol:g}: a sum of exponentials reaches {FULL_PRECISION:g} to 1; give 1e-6, say")


# -- moments ----------------------------------------------------------------------------------------------------------


class MomentRule(NamedTuple):
    """For the moments of exponentials over a step: nodes, their weighted powers, exponents and log-factorials."""

    points: Any
    quadrature: Any
    powers: Any
    factorials: Any


@cache
def moment_rule(count: int) -> MomentRule:
    """The rule of the moments 0, 1, ..., ``count - 1``, at most 12 of them."""
    powers = np.arange(float(count))
    return MomentRule(_POINTS, _POINTS[:, None] ** powers * _WEIGHTS[:, None], powers, special.gammaln(powers + 1.0))


def exponential_moments(xp: Any, z: Any, rule: MomentRule) -> Any:
    r""":math:`\int_0^1 x^q e^{-z x} dx` for each ``z >= 0`` and q = 0, 1, ..., shape (len(z), count).

    Gauss-Legendre for small z; for z of 12 and more :math:`q!/z^{q+1} (1 - e^{-z} \sum_{k \le q} z^k/k!)`.
    """
    small = z <= _SWITCH
    near, far = xp.where(small, z, 0.0 * z), xp.where(small, _SWITCH + 0.0 * z, z)
    by_rule = product(xp, xp.exp(-near[:, None] * rule.points), rule.quadrature)
    return xp.where(small[:, None], by_rule, _closed_moments(xp, far, rule))


def sorted_moments(z: Array, count: int) -> Array:
    """The same for rising z."""
    rule, near = moment_rule(count), int(z.searchsorted(_SWITCH, side="right"))
    by_rule = np.exp(-z[:near, None] * rule.points) @ rule.quadrature
    return np.concatenate([by_rule, _closed_moments(np, z[near:], rule)])


def _closed_moments(xp: Any, z: Any, rule: MomentRule) -> Any:
    logarithms = xp.log(z)[:, None]
    tail = xp.exp(logarithms * rule.powers - z[:, None] - rule.factorials)
    return xp.exp(rule.factorials - logarithms * (rule.powers + 1.0)) * (1.0 - xp.cumsum(tail, 1))


def product(xp: Any, matrix: Any, values: Any) -> Any:
    """``matrix @ values`` over the first axis of ``values``, in full precision."""
    if library_of(values) == "jax":
        return xp.tensordot(matrix, values, axes=1, precision="highest")
    flat = values.reshape(values.shape[0], -1)
    if library_of(values) == "torch":
        matrix = matrix.to(values.dtype)
    return (matrix @ flat).reshape(*matrix.shape[:-1], *values.shape[1:])
