"""Differences of samples, and starting weights added to a result, in JAX."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp

__all__ = ["add_starts", "differences"]


@jax.jit
def differences(signal: jax.Array) -> jax.Array:
    """``signal[n] - signal[n-1]`` along the last axis, 0 at the first point."""
    return signal - jnp.concatenate([signal[..., :1], signal[..., :-1]], axis=-1)


@partial(jax.jit, static_argnames="first")
def add_starts(result: jax.Array, signal: jax.Array, starts: jax.Array, first: int) -> jax.Array:
    """``result`` with ``starts[j] * signal[..., first + j]`` added from that point on."""
    for j in range(first, first + starts.shape[0]):
        result = result.at[..., j:].add(signal[..., j : j + 1] * starts[j - first, j:].astype(result.dtype))
    return result
