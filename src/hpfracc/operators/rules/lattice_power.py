r"""Powers of the second difference in several dimensions: weights of a sum over all neighbours.

The power :math:`(-\Delta_h)^s` of the lattice Laplacian has the symbol :math:`(\sum_a 4 r_a \sin^2(\theta_a/2))^s`, and
its weights are those Fourier coefficients. In one dimension they have a closed form
(:func:`~hpfracc.operators.core.sequences.centred_binomials`); in more they come from the heat kernel of the lattice,
which is a product over the axes of :math:`g(t) = \prod_a e^{-2 r_a t} I_{j_a}(2 r_a t)`:

.. math:: w_j = \frac{1}{\Gamma(-s)} \int_0^\infty g_j(t)\, t^{-1-s}\,dt \quad (j \ne 0), \qquad
    w_0 = \frac{1}{\Gamma(1-s)} \int_0^\infty -g_0'(t)\, t^{-s}\,dt.

The trapezoid rule in :math:`\log t` converges exponentially, and its sum over t is one product of matrices. The part
that decays slowly for small t, near :math:`s = 1`, is subtracted and integrated in closed form.

References
----------
O. Ciaurri, L. Roncal, P. R. Stinga, J. L. Torrea, J. L. Varona, Adv. Math. 330 (2018) 688-738.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np
from scipy import special

from hpfracc._xp import Namespace

#: Step of the trapezoid rule in log t: its error is exp(-pi^2 / step).
_STEP = 0.25
#: Where the integrand, which starts like t^2 and ends like t^-1, has fallen below rounding.
_FIRST, _LAST = -42.0, 42.0
#: Bessel functions use their asymptotic expansion above this argument, if it also exceeds twice the order squared.
_FAR, _TERMS = 1000.0, 14
#: Elements of a block of products: 64 MiB of them.
_BLOCK = 1 << 23


def lattice_power_weights(xp: Namespace, alpha: Any, shape: tuple[int, ...], ratios: tuple[float, ...]) -> Any:
    """Weights of ``(-Laplacian_h)^(alpha/2)`` on a lattice of unit first step, for distances within ``shape``.

    Parameters
    ----------
    xp : Namespace
        Namespace of the weights.
    alpha : float or scalar array
        Twice the power, in (0, 2].
    shape : tuple of int
        Distances along each axis, from 0 up.
    ratios : tuple of float
        Squared ratio of the first step to that of each axis: 1 for the first.
    """
    s = 0.5 * alpha
    t = _nodes(max(shape))
    tables = [_heat(n, float(ratio), max(shape)) for n, ratio in zip(shape, ratios, strict=True)]
    weights = xp.rgamma(-s) * _sum_over_time(xp, xp.power(t, -s), tables)
    total = 2.0 * sum(ratios)
    still = np.exp(-total * t)
    places = np.zeros(shape)
    places[(0,) * len(shape)] = 1.0
    # The centre has a separate formula, and its four or six neighbours a part in closed form.
    near = [_heat(2, float(ratio), max(shape)) for ratio in ratios]
    slope = np.zeros_like(t)
    for axis, ratio in enumerate(ratios):
        others = [table[:, 0] for other, table in enumerate(near) if other != axis]
        slope += 2.0 * ratio * (near[axis][:, 0] - near[axis][:, 1]) * np.prod(others, axis=0)
    rest = xp.matmul(xp.power(t, 1.0 - s).reshape(1, -1), xp.array(slope - total * still).reshape(-1, 1)).reshape(())
    centre = xp.power(np.array(total), s) + _STEP * xp.rgamma(1.0 - s) * rest
    weights = weights * xp.array(1.0 - places) + xp.array(places) * centre
    slow = _STEP * xp.rgamma(-s) * xp.matmul(xp.power(t, 1.0 - s).reshape(1, -1), xp.array(still).reshape(-1, 1))
    by_hand = -s * xp.power(np.array(total), s - 1.0) - slow.reshape(())
    for axis, ratio in enumerate(ratios):
        if shape[axis] > 1:
            places = np.zeros(shape)
            places[tuple(1 if other == axis else 0 for other in range(len(shape)))] = ratio
            weights = weights + xp.array(places) * by_hand
    return weights


def _sum_over_time(xp: Namespace, factors: Any, tables: list[np.ndarray[Any, Any]]) -> Any:
    """``sum_q factors[q] prod_a tables[a][q, j_a]``, in blocks of times."""
    times = len(tables[0])
    width = math.prod(table.shape[1] for table in tables[1:])
    block = max(1, _BLOCK // max(1, width))
    total: Any = None
    for first in range(0, times, block):
        part = slice(first, first + block)
        rest = np.ones((len(tables[0][part]), 1))
        for table in tables[1:]:
            rest = (rest[:, :, None] * table[part][:, None, :]).reshape(len(rest), -1)
        left = xp.array(np.ascontiguousarray(tables[0][part].T)) * factors[part].reshape(1, -1)
        product = xp.matmul(left, xp.array(rest))
        total = product if total is None else total + product
    return _STEP * total.reshape(tuple(table.shape[1] for table in tables))


def _nodes(points: int) -> np.ndarray[Any, Any]:
    """The quadrature times, up to the square of the largest distance, as for diffusion."""
    last = _LAST + 2.0 * math.log(max(2, points))
    return np.asarray(np.exp(np.arange(_FIRST, last + _STEP, _STEP)))


@lru_cache(maxsize=8)
def _heat(count: int, ratio: float, points: int) -> np.ndarray[Any, Any]:
    """``exp(-z) I_j(z)`` at ``z = 2 ratio t``, shape (times, count)."""
    z = (2.0 * ratio * _nodes(points))[:, None]
    j = np.arange(count, dtype=np.float64)
    far = z > np.maximum(_FAR, 2.0 * j**2)
    table = np.where(far, 0.0, special.ive(j, np.where(far, 1.0, z)))
    # exp(-z) I_j(z) sqrt(2 pi z) = 1 - (m - 1)/(8z) + (m - 1)(m - 9)/(2! (8z)^2) - ..., with m = 4 j^2.
    safe = np.where(far, z, np.maximum(_FAR, 2.0 * j**2))
    term = np.ones_like(safe)
    series = term.copy()
    for k in range(1, _TERMS + 1):
        term = term * -(4.0 * j**2 - (2 * k - 1) ** 2) / (8.0 * k * safe)
        series += term
    table = np.where(far, series / np.sqrt(2.0 * math.pi * safe), table)
    table.setflags(write=False)
    return np.asarray(table)
