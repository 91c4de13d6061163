r"""The weights of fractional memory as a sum of exponentials, for the recurrent layers of both libraries.

For lags from 2 on,

.. math:: -w_k(d) = (-1)^{k+1} \binom{d}{k} = \frac{\sin \pi d}{\pi} \int_0^\infty e^{-s(k-d)} (1 - e^{-s})^d\,ds,
    \qquad -1 < d < 2,

which is Euler's integral of :math:`\Gamma(k-d)/\Gamma(k+1)`. The rule of :mod:`hpfracc.history.exponentials` takes
about 60 exponentials for a million lags to 8 digits. Their decays do not depend on the order, and their weights are
smooth in it.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from hpfracc import _reading
from hpfracc.errors import InvalidInputError, ShapeError
from hpfracc.history.exponentials import Nodes, exponential_nodes

__all__ = ["LONGEST", "decays", "past_inputs", "read_memory_option", "weight_factors"]

Array = np.ndarray[Any, Any]

#: Largest number of lags that the sum approximates.
LONGEST = 1 << 20
#: Relative error of the sum.
_RTOL = 1e-8


@functools.cache
def _nodes() -> Nodes:
    # The weights are Laplace transforms of densities like s^d, so that they fall like k^-(1 + d).
    return exponential_nodes(1.0, 2.0, 1.0, float(LONGEST), _RTOL)


def decays() -> Array:
    """The factor by which each exponential decays in a step, shape (count,)."""
    return np.exp(-_nodes().rates[1:])


def weight_factors() -> tuple[Array, Array]:
    """``a`` and ``b`` of shape (count,): ``-w_k(d)`` is the sum of ``sin(pi d) a exp(d b) decays()**(k - 2)``.

    For 2 <= k <= 2**20 and an order d in [0, 1].
    """
    rates = _nodes().rates[1:]
    return _nodes().masses / math.pi * rates * np.exp(-2.0 * rates), rates + np.log(-np.expm1(-rates))


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
