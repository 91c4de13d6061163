r"""Weighted shifted Grünwald differences: their weights, and their stability.

With :math:`g_k = (-1)^k \binom{\beta}{k}` a difference shifted by p steps is
:math:`h^{-\beta} \sum_k g_k u_{i-k+p} = D^\beta u(x_i) + O(h)`. A weighted mean over several shifts has a higher order.

References
----------
1. M. M. Meerschaert, C. Tadjeran, "Finite difference approximations for fractional advection-dispersion flow
   equations", J. Comput. Appl. Math. 172, 2004.
2. W. Tian, H. Zhou, W. Deng, "A class of second order difference approximations for solving space fractional diffusion
   equations", Math. Comp. 84, 2015.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from hpfracc._xp import NUMPY
from hpfracc.errors import InvalidInputError
from hpfracc.operators.core.sequences import binomials

__all__ = ["difference_symbol", "shift_weights", "shifted_grunwald"]

Array = np.ndarray[Any, Any]

#: Number of wave numbers at which the real part of a symbol is checked.
_WAVES = 2000


def shift_weights(order: float, shifts: tuple[int, ...]) -> Array:
    """The mean over ``shifts`` (one to three) with an order of accuracy equal to their number.

    From ``((1 - exp(-z)) / z)^order exp(p z) = 1 + (p - order/2) z + ((p - order/2)^2 / 2 + order/24) z^2 + ...``.
    """
    if not 1 <= len(shifts) <= 3 or len(set(shifts)) < len(shifts):
        raise InvalidInputError(f"shifts={shifts!r}: give one to three different whole numbers, such as (1, 0)")
    from_middle = np.array(shifts, dtype=float) - 0.5 * order
    rows = np.stack([np.ones(len(shifts)), from_middle, 0.5 * from_middle**2 + order / 24.0])[: len(shifts)]
    found = np.linalg.solve(rows, np.eye(len(shifts))[0])
    return np.asarray(found)


def difference_symbol(order: float, shifts: tuple[int, ...], waves: Array) -> Array:
    """The symbol of the difference with step 1: the factor of ``exp(i wave x)``."""
    weights = shift_weights(order, shifts)
    shifted = sum(weight * np.exp(1j * p * waves) for weight, p in zip(weights, shifts, strict=True))
    # 1 - exp(-iw) = 2 sin(w/2) exp(i (pi - w)/2), whose power is taken on the principal branch.
    power = (2.0 * np.sin(0.5 * waves)) ** order * np.exp(0.5j * order * (math.pi - waves))
    return np.asarray(shifted * power)


def shifted_grunwald(order: float, count: int, shifts: tuple[int, ...] = (1, 0)) -> tuple[Array, int]:
    r"""Weights of the difference from the left with step 1, and the number of points to the right that it uses.

    ``weights[k]`` belongs to the point ``k`` places to the left of the rightmost one. Shifts ``(1, 0)`` have order 2
    and the weights :math:`w_0 = \tfrac{\beta}{2} g_0`, :math:`w_k = \tfrac{\beta}{2} g_k + \tfrac{2-\beta}{2} g_{k-1}`;
    ``(1,)`` is the shifted Grünwald formula of order 1.

    Parameters
    ----------
    order : float
        Beta, in (0, 2), not 1.
    count : int
        Number of weights.
    shifts : tuple of int
        The shifts that are averaged.

    Raises
    ------
    InvalidInputError
        For shifts with which every time stepping scheme is unstable because the real part of the symbol has the wrong
        sign, such as ``(0,)``, ``(0, -1)``, and ``(1, 0, -1)`` for small orders above 1.

    Examples
    --------
    >>> shifted_grunwald(1.5, 4)[0]
    array([ 0.75   , -0.875  , -0.09375,  0.140625])
    """
    waves = np.linspace(0.0, math.pi, _WAVES + 1)[1:]
    symbol = difference_symbol(order, shifts, waves)
    # Diffusion multiplies each wave by exp(t c symbol) with c > 0; below order 1 the term is advection, with c < 0.
    growth = symbol.real if order > 1.0 else -symbol.real
    worst = int(np.argmax(growth / np.abs(symbol).max()))
    if growth[worst] > 1e-10 * np.abs(symbol).max():
        raise InvalidInputError(
            f"shifts={shifts!r} are unstable for order {order:g}: the wave of {waves[worst]:.3g} a step grows instead "
            f"of decaying; use shifts=(1, 0)"
        )
    lead = max(shifts)
    g = binomials(NUMPY, order, count)
    weights = np.zeros(count)
    for weight, p in zip(shift_weights(order, shifts), shifts, strict=True):
        weights[lead - p :] += weight * g[: count - (lead - p)]
    return weights, lead
