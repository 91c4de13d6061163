"""The kernel of a fractional integral as a sum of exponentials.

The sums of :mod:`hpfracc.operators.core.exponentials` are minimal for an interval known in advance. This one can be
extended to shorter distances later: existing terms and their states stay valid.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import special

from hpfracc.errors import InvalidInputError

__all__ = ["ExponentialKernel", "exponential_kernel"]

Array = np.ndarray[Any, Any]

#: The spacing of the trapezoid rule is this over ``log(1/eps) + 2``. Its error is then well below eps (with pi^2, the
#: limit given by the strip of analyticity, it is a few eps).
_SPACING = 8.0


@dataclass(frozen=True, slots=True)
class ExponentialKernel:
    r""":math:`u^{\alpha-1}/\Gamma(\alpha) \approx u^m \sum_j w_j e^{-s_j u}`, between two distances.

    Attributes
    ----------
    alpha : float
        The order.
    power : int
        The largest integer m below ``alpha``.
    rates : numpy.ndarray
        :math:`s_j \ge 0`, increasing.
    weights : numpy.ndarray
        :math:`w_j > 0`.
    reach : float
        Exponentials with :math:`s_j u` above this are below the tolerance and can be omitted at distances of at least
        u.
    """

    alpha: float
    power: int
    rates: Array
    weights: Array
    reach: float

    def needed(self, distance: float) -> int:
        """Number of exponentials that matter at this distance and beyond."""
        return min(int(np.searchsorted(self.rates, self.reach / distance)) + 1, self.rates.size)

    def covers(self, distance: float) -> bool:
        """Whether the sum is accurate at this distance."""
        return self.power + 1 == self.alpha or bool(self.rates[-1] * distance >= self.reach)

    def __call__(self, u: Array) -> Array:
        """The value of the sum."""
        u = np.asarray(u, dtype=float)
        return np.asarray(u**self.power * (np.exp(-u[..., np.newaxis] * self.rates) @ self.weights))


def exponential_kernel(alpha: float, shortest: float, longest: float, eps: float) -> ExponentialKernel:
    r"""The kernel to a relative tolerance ``eps``.

    Parameters
    ----------
    alpha : float
        Any order above 0. For an integer order the kernel is a power, and the sum has one term with rate 0.
    shortest, longest : float
        Range of distances.
    eps : float
        Relative tolerance, from 1e-15 to 0.1.

    Returns
    -------
    ExponentialKernel
        With O(log(longest/shortest) log(1/eps)) terms. A smaller ``shortest`` appends terms and does not change the
        others.

    Notes
    -----
    :math:`u^{-\beta} = \Gamma(\beta)^{-1} \int_0^\infty e^{-us} s^{\beta-1} ds` with :math:`s = e^{x - e^{-x}}` and the
    trapezoid rule in x, which falls off doubly exponentially on the left: W. McLean, Exponential sum approximations
    for t^-beta, in Contemporary Computational Mathematics (2018) 911-930.

    Examples
    --------
    >>> import numpy as np
    >>> kernel = exponential_kernel(0.5, 1e-6, 1.0, 1e-8)
    >>> u = np.geomspace(1e-6, 1.0, 200)
    >>> bool(np.all(np.abs(kernel(u) * np.sqrt(np.pi * u) - 1) < 1e-8))
    True
    """
    if not (0.0 < shortest <= longest and math.isfinite(longest)):
        raise InvalidInputError(f"the distances {shortest:g} and {longest:g} have to be finite, above 0 and increasing")
    if not 1e-15 <= eps <= 0.1:
        raise InvalidInputError(f"eps={eps:g} has to lie between 1e-15 and 0.1")
    power = math.ceil(alpha) - 1
    beta = power + 1 - alpha
    digits = math.log(1.0 / eps)
    reach = digits + 2.0
    if beta == 0.0:
        return ExponentialKernel(alpha, power, np.zeros(1), np.array([1.0 / math.gamma(alpha)]), reach)
    spacing = _SPACING / (digits + 2.0)
    # The truncated part on the left is s^beta / Gamma(1 + beta), relative to a kernel of at least 1.
    left = _solve_left(-digits / beta)
    right = math.log(reach * longest / shortest) + 0.5
    x = spacing * np.arange(math.floor(left / spacing), math.ceil(right / spacing) + 1)
    exponent = x - np.exp(-x)
    weights = spacing * (1.0 + np.exp(-x)) * np.exp(beta * exponent)
    weights *= longest**-beta / (special.gamma(beta) * math.gamma(alpha))
    return ExponentialKernel(alpha, power, np.exp(exponent) / longest, weights, reach)


def _solve_left(target: float) -> float:
    """The x with ``x - exp(-x) = target``, for a target below 0."""
    x = -math.log(1.0 - target)
    for _ in range(20):
        x -= (x - math.exp(-x) - target) / (1.0 + math.exp(-x))
    return x
