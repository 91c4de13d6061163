"""Exponential recurrence in JAX: segments of the signal in parallel, propagated by ``lax.scan``.

Compiled once per shape; can be traced and differentiated with the caller's code. For non-uniform steps the states of a
segment are recomputed in the backward pass (``jax.checkpoint``) and not stored.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from hpfracc._xp import namespace
from hpfracc.engine.backends.base import Kernel
from hpfracc.engine.backends.jax.wide import call_wide
from hpfracc.engine.numerics.recurrence import arrival, lag_table, stretch_length, taint

__all__ = ["KERNELS", "recur_blocked"]

#: Steps of a part with non-uniform steps, whose states are recomputed in the backward pass.
_RECURRENCE_PART = 1 << 14
_XP = namespace("jax")
_product = partial(jnp.matmul, precision=lax.Precision.HIGHEST)


def recur_blocked(
    rates: jax.Array,
    weights: jax.Array,
    steps: jax.Array,
    signal: jax.Array,
    initial: jax.Array,
    *,
    degree: int | None = None,
    lagged: bool = False,
    final: bool = False,
) -> jax.Array:
    """Values, followed by the final states if requested."""
    value: jax.Array = call_wide(_compiled, (rates, weights, steps, signal, initial), (degree, lagged, final))
    return value


@partial(jax.jit, static_argnums=(5, 6, 7))
def _compiled(
    rates: Any, weights: Any, steps: Any, signal: Any, initial: Any, degree: int | None, lagged: bool, final: bool
) -> jax.Array:
    complex_ = jnp.iscomplexobj(signal) or jnp.iscomplexobj(initial)
    inexact = jnp.issubdtype(signal.dtype, jnp.inexact)
    with jax.enable_x64(True):
        kind = signal.dtype if inexact else jnp.dtype("float64")
        kind = jnp.result_type(kind, jnp.complex64) if complex_ else kind
        wide = jnp.complex128 if complex_ else jnp.float64
        rates, weights, steps = (jnp.asarray(array).astype(jnp.float64) for array in (rates, weights, steps))
        batch = jnp.broadcast_shapes(signal.shape[:-1], initial.shape[:-1])
        n, terms = signal.shape[-1], rates.shape[0]
        x = jnp.broadcast_to(signal.astype(wide), (*batch, n))
        start = jnp.broadcast_to(initial.astype(wide), (*batch, terms))
        if not n or not terms or 0 in batch:
            return jnp.concatenate([x * 0, start] if final else [x * 0], -1).astype(kind)
        operand, from_ = (jnp.where(jnp.isfinite(array), array, 0) for array in (x, start))
        recur = _uniform if steps.size == 1 else _own
        y, last = recur(rates, weights, steps, operand, from_, degree, lagged)
        y, last = taint(_XP, y, last, lax.stop_gradient(x), lax.stop_gradient(start), lagged)
        return (jnp.concatenate([y, last], -1) if final else y).astype(kind)


def _split(array: jax.Array, groups: int, length: int, axis: int) -> jax.Array:
    """An axis split into ``groups`` of ``length``, padded with zeros; ``axis`` counts from the end."""
    width = [(0, 0)] * array.ndim
    width[axis] = (0, groups * length - array.shape[axis])
    axis %= array.ndim
    return jnp.pad(array, width).reshape((*array.shape[:axis], groups, length, *array.shape[axis + 1 :]))


def _uniform(
    rates: jax.Array,
    weights: jax.Array,
    step: jax.Array,
    x: jax.Array,
    initial: jax.Array,
    degree: int | None,
    lagged: bool,
) -> tuple[jax.Array, jax.Array]:
    n = x.shape[-1]
    length = stretch_length(n)
    blocks = -(-n // length)
    z = rates * step.reshape(())
    fading = jnp.exp(-jnp.arange(length, dtype=jnp.float64)[:, None] * z)
    arrived = arrival(_XP, z, degree)
    lag, causal = lag_table(length)
    local = _product(fading, weights * arrived)[lag] * (causal & (lag > 0) if lagged else causal)
    into = fading[::-1] * arrived
    rows = _split(x, blocks, length, -1)
    starts = _starts(_product(rows, into.astype(x.dtype)), z * length, initial)
    y = _product(rows, local.astype(x.dtype)) + _product(starts, (fading * jnp.exp(-z) * weights).T.astype(x.dtype))
    rest = n - (blocks - 1) * length
    last = _product(rows[..., -1:, :rest], into[length - rest :].astype(x.dtype))[..., 0, :]
    return y.reshape((*y.shape[:-2], blocks * length))[..., :n], starts[..., -1, :] * jnp.exp(-z * rest) + last


def _starts(ends: jax.Array, z: jax.Array, initial: jax.Array) -> jax.Array:
    """The states before each segment: groups of segments in parallel, and the groups recursively."""
    count = ends.shape[-2]
    if count == 1:
        return initial[..., None, :]
    fade = jnp.exp(-z)

    def carry(state: jax.Array, end: jax.Array) -> tuple[jax.Array, jax.Array]:
        return state * fade + end, state

    if count <= 64:
        _, before = lax.scan(carry, initial, jnp.moveaxis(ends, -2, 0))
        return jnp.moveaxis(before, 0, -2)
    group = math.isqrt(count - 1) + 1
    groups = -(-count // group)
    split = _split(ends, groups, group, -2)
    last, within = lax.scan(carry, jnp.zeros_like(split[..., 0, :]), jnp.moveaxis(split, -2, 0))
    before = _starts(last, z * group, initial)
    since = jnp.exp(-jnp.arange(group, dtype=jnp.float64)[:, None] * z)
    full = jnp.moveaxis(within, 0, -2) + before[..., :, None, :] * since
    return full.reshape((*full.shape[:-3], groups * group, full.shape[-1]))[..., :count, :]


def _own(
    rates: jax.Array,
    weights: jax.Array,
    steps: jax.Array,
    x: jax.Array,
    initial: jax.Array,
    degree: int | None,
    lagged: bool,
) -> tuple[jax.Array, jax.Array]:
    """Parts in sequence, of which only the ends are stored for the backward pass; segments in parallel within each."""
    n = x.shape[-1]
    parts = -(-n // _RECURRENCE_PART)
    recur = partial(_part, rates, weights, degree=degree, lagged=lagged)
    if parts == 1:
        last, y = recur(initial, (steps, x))
        return y, last
    rows = jnp.moveaxis(_split(x, parts, _RECURRENCE_PART, -1), -2, 0)
    last, values = lax.scan(jax.checkpoint(recur), initial, (_split(steps, parts, _RECURRENCE_PART, -1), rows))
    values = jnp.moveaxis(values, 0, -2)
    return values.reshape((*values.shape[:-2], parts * _RECURRENCE_PART))[..., :n], last


def _part(
    rates: jax.Array,
    weights: jax.Array,
    initial: jax.Array,
    part: tuple[jax.Array, jax.Array],
    *,
    degree: int | None,
    lagged: bool,
) -> tuple[jax.Array, jax.Array]:
    steps, x = part
    n = x.shape[-1]
    groups = math.isqrt(n) if n > 64 else 1
    length = -(-n // groups)
    tau = _split(steps, groups, length, -1).T[..., None]  # (length, groups, 1)
    rows = jnp.moveaxis(_split(x, groups, length, -1), -1, 0)[..., None]  # (length, ..., groups, 1)
    wide = weights.astype(x.dtype)

    def advance(state: jax.Array, now: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        z = now[0] * rates
        before = state * jnp.exp(-z)
        state = before + now[1] * arrival(_XP, z, degree)
        return state, _product(before if lagged else state, wide)

    start = initial[..., None, :]
    if groups > 1:
        ends, _ = lax.scan(lambda state, now: (advance(state, now)[0], None), 0.0 * rows[0] * rates, (tau, rows))
        fades = jnp.exp(-tau.sum(0) * rates)
        pairs = (fades, jnp.moveaxis(ends, -2, 0))
        _, start = lax.scan(lambda state, one: (state * one[0] + one[1], state), initial, pairs)
        start = jnp.moveaxis(start, 0, -2)
    last, values = lax.scan(advance, start, (tau, rows))
    values = jnp.moveaxis(values, 0, -1)
    return last[..., -1, :], values.reshape((*values.shape[:-2], groups * length))[..., :n]


KERNELS: dict[str, Kernel] = {"blocked": Kernel(recur_blocked)}
