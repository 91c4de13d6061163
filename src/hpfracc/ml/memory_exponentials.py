r"""The weights of fractional memory as a sum of exponentials, for the recurrent layers of both libraries.

For lags from 2 on,

.. math:: -w_k(d) = (-1)^{k+1} \binom{d}{k} = \frac{\sin \pi d}{\pi} \int_0^\infty e^{-s(k-d)} (1 - e^{-s})^d\,ds,
    \qquad -1 < d < 2,

which is Euler's integral of :math:`\Gamma(k-d)/\Gamma(k+1)`. The trapezoidal rule in the logarithm of s has an error
like :math:`e^{-\pi^2/\Delta}` for a spacing :math:`\Delta`, so 95 exponentials give a million lags to 8 digits.
Their decays do not depend on the order, and their weights are smooth in it.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from hpfracc import _reading
from hpfracc.errors import InvalidInputError, ShapeError

__all__ = ["LONGEST", "decays", "past_inputs", "read_memory_option", "weight_factors"]

Array = np.ndarray[Any, Any]

#: Largest number of lags that the sum approximates.
LONGEST = 1 << 20
#: Relative truncation error at both ends; that of the rule is at most 5e-9.
_TOLERANCE = 1e-9
_SPACING = 0.4


@functools.cache
def _logarithms() -> Array:
    # At the slow end the integrand is (s LONGEST)^(1 + d), at the fast one e^(-s (2 - d)).
    return np.arange(math.log(_TOLERANCE / LONGEST), math.log(-math.log(_TOLERANCE) + 4.0), _SPACING)


def decays() -> Array:
    """The factor by which each exponential decays in a step, shape (count,)."""
    return np.exp(-np.exp(_logarithms()))


def weight_factors() -> tuple[Array, Array]:
    """``a`` and ``b`` of shape (count,): ``-w_k(d)`` is the sum of ``sin(pi d) a exp(d b) decays()**(k - 2)``.

    For 2 <= k <= 2**20 and an order d in [0, 1].
    """
    logs = _logarithms()
    rates = np.exp(logs)
    return _SPACING / math.pi * np.exp(logs - 2.0 * rates), rates + np.log(-np.expm1(-rates))


def read_memory_option(memory: Any) -> str:
    """``"full"`` or ``"exponentials"``."""
    return _reading.choice("memory", memory, ("full", "exponentials"))


def past_inputs(state: Any, x: Any) -> Any:
    """The inputs before ``x``, from the state ``(h, inputs)`` of a recurrent layer with a filter."""
    if not (isinstance(state, tuple | list) and len(state) == 2):
        raise InvalidInputError(
            f"state={type(state).__name__} without the earlier inputs, which the filter needs; give the whole state "
            "that the call before returned, (h, inputs)"
        )
    past = state[1]
    if past.ndim != 3 or past.shape[0] != x.shape[0] or past.shape[2] != x.shape[2]:
        raise ShapeError(
            f"earlier inputs of shape {tuple(past.shape)} before those of shape {tuple(x.shape)}; give the state of "
            "the same sequences"
        )
    return past
