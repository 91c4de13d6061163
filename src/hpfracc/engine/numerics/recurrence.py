"""The exponential recurrence by segments, in any array namespace.

Uniform steps: within a segment of ``L`` steps the values are a product with an ``L x L`` matrix, the states at its end
a product with ``L x J``, and the contribution of earlier segments a product with ``J x L``. Only segments depend on
each other, in about ``2 sqrt(N / L)`` operations. Non-uniform steps: many segments advance step by step in parallel,
once for the states at their ends and again, from the right states, for the values. Steps in turn are those of ``scan``:
``scan(step, state, inputs)`` takes ``state, value = step(state, inputs[m])`` along the first axis of the inputs.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from hpfracc._xp import Namespace

#: Steps of a segment if the step is uniform: the matrix of a segment then costs as much as about a hundred terms.
_STRETCH = 128
#: Maximum number of segments whose states are propagated one by one.
_FEW_STRETCHES = 16
#: The highest degree of an input within a step: the recursion of :func:`arrival` loses one more digit with each.
MAX_DEGREE = 4
#: Terms of its series, for ``|z| < 1``: the first omitted one is below 1e-17.
_TERMS = 18


#: ``scan(step, state, inputs)``.
Scan = Callable[[Callable[..., Any], Any, tuple[Any, ...]], tuple[Any, Any]]


def uniform_steps(
    xp: Namespace,
    rates: Any,
    weights: Any,
    step: Any,
    x: Any,
    initial: Any,
    degree: int | None,
    lagged: bool,
    scan: Scan,
) -> tuple[Any, Any]:
    """Values ``(..., n)`` and final states ``(..., J)``; everything in double precision, ``n`` and ``J`` positive.

    ``x`` and ``initial`` have the same leading axes.
    """
    n = x.shape[-1]
    length = min(_STRETCH, n)
    blocks = -(-n // length)
    z = rates * step
    k = xp.asarray(np.arange(length, dtype=np.float64), z)
    fading = xp.exp(-k[:, None] * z)  # (length, terms)
    arrived = arrival(xp, z, degree)
    reach = xp.matmul(fading, weights * arrived)
    lag = np.arange(length)[None, :] - np.arange(length)[:, None]
    causal = lag > 0 if lagged else lag >= 0
    local = reach[xp.asarray(np.maximum(lag, 0), z)] * xp.asarray(causal.astype(np.float64), z)
    into = fading[xp.asarray(np.arange(length)[::-1].copy(), z)] * arrived
    out = (fading * (xp.exp(-z) * weights)).T
    rows = _split(xp, x, blocks, length, -1)
    into, local, out = (xp.astype(table, x.dtype) for table in (into, local, out))
    starts = _starts(xp, xp.matmul(rows, into), z * length, initial, scan)
    y = xp.matmul(rows, local) + xp.matmul(starts, out)
    rest = n - (blocks - 1) * length
    final = starts[..., -1, :] * xp.exp(-z * rest) + xp.matmul(rows[..., -1:, :rest], into[length - rest :])[..., 0, :]
    return y.reshape((*y.shape[:-2], blocks * length))[..., :n], final


def _before(xp: Namespace, fades: Any, ends: Any, initial: Any, scan: Scan) -> tuple[Any, Any]:
    """The last state and those before each place of the second last axis, from the contribution and decay of each."""

    def step(state: Any, now: tuple[Any, ...]) -> tuple[Any, Any]:
        return state * (now[1] if len(now) > 1 else fades) + now[0], state

    inputs = (xp.moveaxis(ends, -2, 0),) if fades.ndim == 1 else (xp.moveaxis(ends, -2, 0), fades)
    last, states = scan(step, initial, inputs)
    return last, xp.moveaxis(states, 0, -2)


def _starts(xp: Namespace, ends: Any, z: Any, initial: Any, scan: Scan) -> Any:
    """The states before each segment, ``(..., C, J)``, from the contribution and the decay of each."""
    count = ends.shape[-2]
    fade = xp.exp(-z)
    if count <= _FEW_STRETCHES:
        return _before(xp, fade, ends, initial, scan)[1]
    group = math.isqrt(count - 1) + 1
    groups = -(-count // group)
    split = _split(xp, ends, groups, group, -2)
    last, within = _before(xp, fade, split, 0.0 * split[..., 0, :], scan)
    before = _starts(xp, last, z * group, initial, scan)
    since = xp.exp(-xp.asarray(np.arange(group, dtype=np.float64), z)[:, None] * z)
    full = within + before[..., :, None, :] * since
    return full.reshape((*full.shape[:-3], groups * group, full.shape[-1]))[..., :count, :]


def _split(xp: Namespace, array: Any, groups: int, length: int, axis: int) -> Any:
    """An axis, counted from the end, as ``groups`` of ``length``, padded with zeros."""
    shape = list(array.shape)
    missing = groups * length - shape[axis]
    if missing:
        gap = [*shape]
        gap[axis] = missing
        array = xp.concatenate([array, xp.zeros(gap, array.dtype, array)], axis)
    axis %= len(shape)
    return array.reshape((*shape[:axis], groups, length, *shape[axis + 1 :]))


class Recurrence(NamedTuple):
    """What all parts of a recurrence with its own steps share; ``smooth`` if it is differentiated."""

    xp: Namespace
    rates: Any
    weights: Any
    degree: int | None
    lagged: bool
    scan: Scan
    smooth: bool = False


def own_steps(given: Recurrence, steps: Any, x: Any, initial: Any, together: int) -> tuple[Any, Any]:
    """The same for non-uniform steps ``(n,)``, with ``together`` parallel segments."""
    xp, rates, weights, degree, lagged, scan, smooth = given
    n = x.shape[-1]
    groups = max(1, min(together, n))
    length = -(-n // groups)
    # A step of length 0 without input does not change the states.
    tau = xp.moveaxis(_split(xp, steps, groups, length, -1), -1, 0)[..., None]  # (length, groups, 1)
    rows = xp.moveaxis(_split(xp, x, groups, length, -1), -1, 0)[..., None]  # (length, ..., groups, 1)
    wide = xp.astype(weights, x.dtype)

    def advance(state: Any, now: tuple[Any, Any]) -> tuple[Any, Any]:
        z = now[0] * rates
        before = state * xp.exp(-z)
        return before, before + now[1] * arrival(xp, z, degree, smooth=smooth)

    def value(state: Any, now: tuple[Any, Any]) -> tuple[Any, Any]:
        before, state = advance(state, now)
        return state, xp.matmul(before if lagged else state, wide)

    state = initial[..., None, :]
    if groups > 1:
        ends, _ = scan(lambda state, now: (advance(state, now)[1], None), 0.0 * rows[0] * rates, (tau, rows))
        state = _before(xp, xp.exp(-tau.sum(0) * rates), ends, initial, scan)[1]
    state, values = scan(value, state, (tau, rows))
    y = xp.moveaxis(values, 0, -1)
    return y.reshape((*y.shape[:-2], groups * length))[..., :n], state[..., -1, :]


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
