"""Non-finite samples stay causal: what a transform or a matrix product would smear is put right.

The answer is taken from the signal with its bad samples set to 0; then every point whose sum involves a bad sample is
set to nan. Written with ``where``, so that it is traced, differentiated and mapped like the rest: XLA fuses it into the
padding and the final slice. Bad samples get a gradient of 0, all others the right one. Where a *weight* is not finite
the whole row may be nan.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import lax

__all__ = ["apply_causally"]


def apply_causally(product: Callable[[jax.Array], jax.Array], signal: jax.Array, taps: int) -> jax.Array:
    """``product(signal)`` for a product that smears non-finite samples, with that put right.

    ``taps`` is the number of outputs that one sample reaches.
    """
    finite = jnp.isfinite(signal)
    result = product(jnp.where(finite, signal, 0))
    n = signal.shape[-1]
    points = jnp.arange(n, dtype=jnp.int32)
    if taps >= n:
        first = jnp.min(jnp.where(finite, n, points), axis=-1, keepdims=True)
        return jnp.where(points >= first, jnp.nan, result)

    def tainted(values: jax.Array) -> jax.Array:
        return jnp.where(_reach(~finite, taps), jnp.nan, values)

    # Where the weights are few, a bad sample is forgotten again: that takes more work, done only when there is one.
    return lax.cond(jnp.all(finite), lambda values: values, tainted, result)


def _reach(bad: jax.Array, taps: int) -> jax.Array:
    """Whether one of the last ``taps`` samples is bad: the window doubles until it is that long.

    Written out rather than scanned: XLA compiles that in half the time.
    """
    width = 1
    while width < taps:
        shift = min(width, taps - width)
        bad = bad | jnp.pad(bad[..., :-shift], [(0, 0)] * (bad.ndim - 1) + [(shift, 0)])
        width += shift
    return bad
