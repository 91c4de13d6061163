"""The exponential recurrence by segments, in any array namespace: NumPy, CuPy, PyTorch.

Uniform steps: within a segment of ``L`` steps the values are a product with an ``L x L`` matrix, the states at its end
a product with ``L x J``, and the contribution of earlier segments a product with ``J x L``. Only segments depend on
each other, in about ``2 sqrt(N / L)`` operations. Non-uniform steps: many segments advance step by step in parallel,
once for the states at their ends and again, from the right states, for the values.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from hpfracc._xp import Namespace

__all__ = [
    "FEW_STRETCHES",
    "MAX_DEGREE",
    "arrival",
    "lag_table",
    "own_steps",
    "stretch_length",
    "taint",
    "uniform_steps",
]

#: Steps of a segment if the step is uniform: the matrix of a segment then costs as much as about a hundred terms.
_STRETCH = 128
#: Maximum number of segments whose states are propagated one by one.
FEW_STRETCHES = 16
#: The highest degree of an input within a step: the recursion of :func:`arrival` loses one more digit with each.
MAX_DEGREE = 4
#: Terms of its series, for ``|z| < 1``: the first omitted one is below 1e-17.
_TERMS = 18


def stretch_length(n: int) -> int:
    """Steps per segment of a signal of ``n`` uniform steps."""
    return min(_STRETCH, n)


def lag_table(length: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """``table[i, k] = k - i`` where that is not negative, else 0; and the mask where it is negative."""
    lag = np.arange(length)[None, :] - np.arange(length)[:, None]
    return np.maximum(lag, 0), lag >= 0


def uniform_steps(
    xp: Namespace, rates: Any, weights: Any, step: Any, x: Any, initial: Any, degree: int | None, lagged: bool
) -> tuple[Any, Any]:
    """Values ``(..., n)`` and final states ``(..., J)``; everything in double precision, ``n`` and ``J`` positive.

    ``x`` and ``initial`` have the same leading axes.
    """
    n = x.shape[-1]
    length = stretch_length(n)
    blocks = -(-n // length)
    z = rates * step
    k = xp.asarray(np.arange(length, dtype=np.float64), z)
    fading = xp.exp(-k[:, None] * z)  # (length, terms)
    arrived = arrival(xp, z, degree)
    reach = xp.matmul(fading, weights * arrived)
    lag, causal = lag_table(length)
    if lagged:
        causal = causal & (lag > 0)
    local = reach[xp.asarray(lag, z)] * xp.asarray(causal.astype(np.float64), z)
    into = fading[xp.asarray(np.arange(length)[::-1].copy(), z)] * arrived
    out = (fading * (xp.exp(-z) * weights)).T
    rows = _pad(xp, x, blocks * length - n, -1).reshape((*x.shape[:-1], blocks, length))
    into, local, out = (xp.astype(table, x.dtype) for table in (into, local, out))
    starts = _starts(xp, xp.matmul(rows, into), z * length, initial)
    y = xp.matmul(rows, local) + xp.matmul(starts, out)
    rest = n - (blocks - 1) * length
    final = starts[..., -1, :] * xp.exp(-z * rest) + xp.matmul(rows[..., -1:, :rest], into[length - rest :])[..., 0, :]
    return y.reshape((*y.shape[:-2], blocks * length))[..., :n], final


def _starts(xp: Namespace, ends: Any, z: Any, initial: Any) -> Any:
    """The states before each segment, ``(..., C, J)``, from the contribution and the decay of each."""
    count = ends.shape[-2]
    fade = xp.exp(-z)
    if count <= FEW_STRETCHES:
        states = [initial]
        for c in range(count - 1):
            states.append(states[-1] * fade + ends[..., c, :])
        return xp.stack(states, -2)
    group = math.isqrt(count - 1) + 1
    groups = -(-count // group)
    shape = (*ends.shape[:-2], groups, group, ends.shape[-1])
    ends = _pad(xp, ends, groups * group - count, -2).reshape(shape)
    state = 0.0 * ends[..., 0, :]
    within = []
    for m in range(group):
        within.append(state)
        state = state * fade + ends[..., m, :]
    before = _starts(xp, state, z * group, initial)
    since = xp.exp(-xp.asarray(np.arange(group, dtype=np.float64), z)[:, None] * z)
    full = xp.stack(within, -2) + before[..., :, None, :] * since
    return full.reshape((*full.shape[:-3], groups * group, full.shape[-1]))[..., :count, :]


def _pad(xp: Namespace, array: Any, count: int, axis: int) -> Any:
    """Append ``count`` zeros along an axis."""
    if not count:
        return array
    shape = list(array.shape)
    shape[axis] = count
    return xp.concatenate([array, xp.astype(xp.asarray(np.zeros(shape), array), array.dtype)], axis)


def own_steps(
    xp: Namespace,
    rates: Any,
    weights: Any,
    steps: Any,
    x: Any,
    initial: Any,
    degree: int | None,
    lagged: bool,
    together: int,
    smooth: bool = False,
) -> tuple[Any, Any]:
    """The same for non-uniform steps ``(n,)``, with ``together`` parallel segments; ``smooth`` if differentiated."""
    n = x.shape[-1]
    groups = max(1, min(together, n))
    length = -(-n // groups)
    # A step of length 0 without input does not change the states.
    tau = _pad(xp, steps, groups * length - n, -1).reshape((groups, length))
    rows = _pad(xp, x, groups * length - n, -1).reshape((*x.shape[:-1], groups, length))
    wide = xp.astype(weights, x.dtype)

    def advance(state: Any, m: int) -> tuple[Any, Any]:
        z = tau[:, m, None] * rates
        before = state * xp.exp(-z)
        return before, before + rows[..., m, None] * arrival(xp, z, degree, smooth=smooth)

    if groups > 1:
        state = 0.0 * rows[..., :1] * rates
        for m in range(length):
            _, state = advance(state, m)
        state = _one_by_one(xp, state, xp.exp(-tau.sum(-1)[:, None] * rates), initial)
    else:
        state = initial[..., None, :]
    if smooth:
        values = []
        for m in range(length):
            before, state = advance(state, m)
            values.append(xp.matmul(before if lagged else state, wide))
        y = xp.stack(values, -1)
    else:
        y = xp.zeros_like(rows)
        for m in range(length):
            before, state = advance(state, m)
            y[..., m] = xp.matmul(before if lagged else state, wide)
    return y.reshape((*y.shape[:-2], groups * length))[..., :n], state[..., -1, :]


def _one_by_one(xp: Namespace, ends: Any, fades: Any, initial: Any) -> Any:
    states = [initial]
    for c in range(ends.shape[-2] - 1):
        states.append(states[-1] * fades[c] + ends[..., c, :])
    return xp.stack(states, -2)


def taint(xp: Namespace, y: Any, final: Any, x: Any, initial: Any, lagged: bool) -> tuple[Any, Any]:
    """Set to nan everything after the first non-finite sample of a row, and rows with non-finite initial states."""
    lost = ~xp.isfinite(initial).all(-1)[..., None]
    seen = (xp.cumsum(~xp.isfinite(x), -1) > 0) | lost
    ended = seen[..., -1:]
    if lagged:
        seen = xp.concatenate([lost | (seen[..., :1] & False), seen[..., :-1]], -1)
    return xp.where(seen, math.nan, y), xp.where(ended, math.nan, final)


def arrival(xp: Namespace, z: Any, degree: int | None, *, smooth: bool = True) -> Any:
    """``int_0^1 u^p exp(-z (1 - u)) du`` at every ``z``, or 1 where the input arrives at the end of the step.

    It is the remainder, at the end of a step with decay ``exp(-z)``, of an input distributed over it like ``u^p``,
    where p is ``degree`` (None: all at the end): ``p!`` times the phi-function of order ``p + 1`` at ``-z`` of
    exponential integrators.

    A power series for ``|z| < 1``, the recursion ``b_p = (1 - p b_{p-1}) / z`` beyond: both are accurate, and so are
    their derivatives, unlike those of ``expm1(-z) / z`` near 0. The latter, six times as fast, is used unless
    ``smooth``.
    """
    if degree is None:
        return xp.ones_like(z)
    if degree == 0 and not smooth:
        still = z == 0.0
        return xp.where(still, 1.0, -xp.expm1(-z) / xp.where(still, 1.0, z))
    small = abs(z) < 1.0
    near = xp.where(small, z, 0.0)
    total = 0.0 * near + _coefficient(degree, _TERMS - 1)
    for k in range(_TERMS - 2, -1, -1):
        total = total * near + _coefficient(degree, k)
    far = xp.where(small, 1.0, z)
    beyond = -xp.expm1(-far) / far
    for p in range(1, degree + 1):
        beyond = (1.0 - p * beyond) / far
    return xp.where(small, total, beyond)


def _coefficient(degree: int, k: int) -> float:
    return (-1.0) ** k * math.factorial(degree) / math.factorial(degree + k + 1)
