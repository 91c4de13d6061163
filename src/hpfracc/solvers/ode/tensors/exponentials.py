"""A power of the distance as a sum of exponentials whose rates do not depend on the order.

The weights are smooth functions of the order, also across integers, so the order can be traced and differentiated.
Unlike in :mod:`hpfracc.solvers.ode.adaptive.kernel`, the range of distances is fixed in advance.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from scipy import special

from hpfracc._arrays import library_of
from hpfracc._xp import Namespace, namespace_of
from hpfracc.solvers.ode.tensors.rule import convert_like

__all__ = ["Memory", "combined", "make_memory", "moments", "product", "remember", "remembered"]

Array = np.ndarray[Any, Any]

#: The spacing of the trapezoid rule is this over ``log(1/eps) + 2``, as in ``adaptive.kernel``.
_SPACING = 8.0
#: Gauss-Legendre quadrature below this, the closed form above, where it loses no digits.
_SWITCH = 12.0
_POINTS, _WEIGHTS = special.roots_legendre(20)
_POINTS, _WEIGHTS = 0.5 * (_POINTS + 1.0), 0.5 * _WEIGHTS


class Memory(NamedTuple):
    r""":math:`u^{\alpha-1}/\Gamma(\alpha) \approx u^m \sum_j w_j e^{-s_j u}`, in the library and on the device of y.

    Attributes
    ----------
    rates : array, shape (E,)
        :math:`s_j`, the first of them 0.
    weights : array, shape (E, ...)
        :math:`w_j`, followed by the shape of the order.
    points, quadrature, powers, factorials : arrays
        For the moments of the exponentials over a step: nodes, weights times powers of the nodes, exponents 0, 1, ...
        and the logarithms of their factorials.
    """

    rates: Any
    weights: Any
    points: Any
    quadrature: Any
    powers: Any
    factorials: Any


def make_memory(order: Any, power: int, shortest: float, longest: float, eps: float, like: Any, count: int) -> Memory:
    r"""The kernel of a fractional integral of this order, for distances from ``shortest`` to ``longest``.

    Parameters
    ----------
    order : array
        Above ``power``, at most ``power + 1``.
    count : int
        Number of moments.

    Notes
    -----
    :math:`u^{-\beta} = \Gamma(\beta)^{-1} \int e^{\beta x - u e^x} dx`, :math:`\beta = m + 1 - \alpha`, by the
    trapezoid rule. On the left, where :math:`u e^x` is below eps, the terms are a geometric series: one term with rate
    0 and the weight :math:`\beta h/(e^{\beta h} - 1) e^{\beta x_J}/\Gamma(1+\beta)`, which is 1 at :math:`\beta = 0`.
    """
    digits = math.log(1.0 / eps)
    spacing = _SPACING / (digits + 2.0)
    first = math.floor(-digits / spacing)
    last = math.ceil((math.log((digits + 2.0) * longest / shortest) + 0.5) / spacing)
    x = spacing * np.arange(first, last + 1)
    xp = namespace_of(order)
    with xp.scope():
        weights = convert_like(_weights(xp, xp.array(order), power, x, spacing, longest), like)
    rates = np.concatenate([[0.0], np.exp(x) / longest])
    quadrature = _POINTS[:, None] ** np.arange(count) * _WEIGHTS[:, None]
    powers = np.arange(float(count))
    tables = (_POINTS, quadrature, powers, special.gammaln(powers + 1.0))
    return Memory(convert_like(rates, like), weights, *(convert_like(each, like) for each in tables))


def _weights(xp: Namespace, order: Any, power: int, x: Array, spacing: float, longest: float) -> Any:
    beta = power + 1.0 - order
    scale = xp.exp(-beta * math.log(longest)) * xp.rgamma(order)
    z = beta * spacing
    small = z < 1e-3
    safe = xp.where(small, 1.0 + 0.0 * z, z)
    ratio = xp.where(small, 1.0 - z / 2.0 + z * z / 12.0 - z**4 / 720.0, safe / xp.expm1(safe))
    lumped = ratio * xp.exp(beta * float(x[0])) * xp.rgamma(1.0 + beta)
    column = xp.array(x[(slice(None), *(None,) * beta.ndim)])
    terms = spacing * xp.exp(beta * column) * xp.rgamma(beta)
    return xp.concatenate([lumped[None], terms]) * scale


def moments(xp: Any, memory: Memory, step: Any) -> Any:
    r""":math:`\int_0^1 x^q e^{-z x} dx` for each :math:`z = s h`, shape (E, count), at most 12 of them.

    Gauss-Legendre for small z; for z of 12 and more :math:`q!/z^{q+1} (1 - e^{-z} \sum_{k \le q} z^k/k!)`.
    """
    z = memory.rates * step
    small = z <= _SWITCH
    near = xp.where(small, z, 0.0 * z)
    far = xp.where(small, _SWITCH + 0.0 * z, z)
    by_rule = product(xp, xp.exp(-near[:, None] * memory.points), memory.quadrature)
    logarithms = xp.log(far)[:, None]
    tail = xp.exp(logarithms * memory.powers - far[:, None] - memory.factorials)
    closed = xp.exp(memory.factorials - logarithms * (memory.powers + 1.0)) * (1.0 - xp.cumsum(tail, 1))
    return xp.where(small[:, None], by_rule, closed)


def remembered(xp: Any, memory: Memory, states: Any, distance: Any) -> Any:
    """Contribution of the history to the integral at this distance after it; ``states`` is (m + 1, E, ...)."""
    power = states.shape[0] - 1
    row = decay(xp, memory, distance)
    row = row.reshape(row.shape[0], *(1,) * (memory.weights.ndim - 1)) * memory.weights
    parts = [combined(xp, row, states[k]) for k in range(power + 1)]
    factors = [math.comb(power, k) * distance ** (power - k) for k in range(power)]
    return sum((factor * part for factor, part in zip(factors, parts, strict=False)), parts[-1])


def remember(xp: Any, memory: Memory, states: Any, step: Any, integrals: Any, coefficients: Any) -> Any:
    """The states after an interval on which the function is a polynomial in (right end - t)/step.

    ``coefficients[q]`` belongs to the q-th power, ``integrals`` are the moments.
    """
    power, count = states.shape[0] - 1, coefficients.shape[0]
    faded = decay(xp, memory, step)
    faded = faded.reshape(faded.shape[0], *(1,) * (states.ndim - 2))
    new = []
    for k in range(power + 1):
        shifted = sum((math.comb(k, i) * step ** (k - i) * states[i] for i in range(k)), states[k])
        part = step ** (k + 1) * product(xp, integrals[:, k : k + count], coefficients)
        new.append(faded * shifted + part)
    return xp.stack(new)


def decay(xp: Any, memory: Memory, distance: Any) -> Any:
    """``exp(-s u)`` for each rate."""
    return xp.exp(-memory.rates * distance)


def product(xp: Any, matrix: Any, values: Any) -> Any:
    """``matrix @ values`` over the first axis of ``values``, in full precision."""
    if library_of(values) == "torch":
        flat = values.reshape(values.shape[0], -1)
        return (matrix.to(values.dtype) @ flat).reshape(*matrix.shape[:-1], *values.shape[1:])
    return xp.tensordot(matrix, values, axes=1, precision="highest")


def combined(xp: Any, row: Any, values: Any) -> Any:
    """``sum_j row[j] values[j]``, where a row may also have the shape of the orders."""
    if row.ndim == 1:
        return product(xp, row[None], values)[0]
    return (row.reshape(row.shape[0], *(1,) * (values.ndim - row.ndim), *row.shape[1:]) * values).sum(0)
