"""History sum in JAX: blocks of weights by ``lax.map``, each recomputed in the backward pass."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from hpfracc._xp import namespace
from hpfracc.engine.backends.base import Kernel
from hpfracc.engine.backends.jax.wide import call_wide
from hpfracc.engine.numerics.history_weights import distances, mean_power

__all__ = ["KERNELS", "sum_direct"]

_XP = namespace("jax")

#: Weights of a block (also in the adapter): 8 MiB.
_HISTORY_BLOCK = 1 << 20


def sum_direct(times: Any, signal: Any, *parameters: Any, kernel: str = "power", scaled: bool = False) -> jax.Array:
    """The sum, a block of outputs at a time."""
    value: jax.Array = call_wide(_called, (times, signal, *parameters), (kernel, scaled))
    return value


def _called(*operands: Any) -> jax.Array:
    times, signal, *parameters, kernel, scaled = operands
    return _sum(times, signal, tuple(parameters), kernel, scaled)


@partial(jax.jit, static_argnums=(3, 4))
def _sum(times: Any, signal: Any, parameters: tuple[Any, ...], kernel: str, scaled: bool) -> jax.Array:
    inexact = jnp.issubdtype(signal.dtype, jnp.inexact)
    complex_ = jnp.iscomplexobj(signal)
    with jax.enable_x64(True):
        kind = signal.dtype if inexact else jnp.dtype("float64")
        x = signal.astype(jnp.complex128 if complex_ else jnp.float64)
        n = x.shape[-1]
        if not x.size:
            return jnp.zeros(x.shape, kind)
        times = jnp.asarray(times).astype(jnp.float64)
        options = tuple(jnp.asarray(parameter).astype(jnp.float64) for parameter in parameters)
        if kernel != "tabulated":
            options = tuple(option.reshape(()) for option in options)
            x = x.at[..., 0].set(0.0)
        finite = jnp.isfinite(x)
        operand = jnp.where(finite, x, 0.0)
        rows = max(1, min(n, _HISTORY_BLOCK // n))
        blocks = -(-n // rows)
        before = jnp.concatenate([times[:1] if kernel != "logarithmic" else times[:1] * 0.5, times[:-1]])

        def block(part: tuple[jax.Array, jax.Array]) -> jax.Array:
            late, at = part
            causal = jnp.arange(n) <= at[:, None]
            early = jnp.where(causal, times, late[:, None])
            weights = _weights(kernel, scaled, late[:, None], early, times, before, options)
            weights = jnp.where(causal, weights, 0.0).astype(x.dtype)
            return jnp.matmul(operand, weights.T, precision=lax.Precision.HIGHEST)

        filled = jnp.pad(times, (0, blocks * rows - n), mode="edge").reshape(blocks, rows)
        numbers = jnp.minimum(jnp.arange(blocks * rows), n - 1).reshape(blocks, rows)
        if blocks == 1:
            y = block((filled[0], numbers[0]))
        else:
            y = jnp.moveaxis(lax.map(jax.checkpoint(block), (filled, numbers)), 0, -2)
            y = y.reshape((*x.shape[:-1], blocks * rows))[..., :n]
        seen = jnp.cumsum(~finite, -1) > 0
        return jnp.where(seen, jnp.nan, y).astype(kind)


def _weights(
    kernel: str,
    scaled: bool,
    late: jax.Array,
    early: jax.Array,
    times: jax.Array,
    before: jax.Array,
    options: tuple[jax.Array, ...],
) -> jax.Array:
    """As ``block_of_weights``, for all inputs; the first point of an interval kernel gets width 1."""
    if kernel == "tabulated":
        return jnp.interp(late - early, options[0], options[1])
    gap = distances(_XP, kernel, late, early)
    width = distances(_XP, kernel, times, before).at[0].set(1.0)
    weights = mean_power(_XP, gap, width, options[0], scaled)
    return weights * jnp.exp(-options[1] * gap) if kernel == "tempered" else weights


KERNELS: dict[str, Kernel] = {"direct": Kernel(sum_direct)}
