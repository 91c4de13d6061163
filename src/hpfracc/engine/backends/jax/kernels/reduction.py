"""Sums, means, products, extrema and 2-norms along axes, in JAX."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from hpfracc.engine.backends.base import Kernel

__all__ = ["KERNELS"]


def _norm(x: jax.Array, axis: Any, keepdims: bool) -> jax.Array:
    """The 2-norm over any number of axes; its gradient at 0, which does not exist, is set to 0."""
    squares = jnp.sum(jnp.real(x * jnp.conj(x)), axis=axis, keepdims=keepdims)
    return jnp.where(squares == 0, 0, jnp.sqrt(jnp.where(squares == 0, 1, squares)))


_KINDS: dict[str, Callable[..., jax.Array]] = {
    "sum": jnp.sum,
    "mean": jnp.mean,
    "prod": jnp.prod,
    "max": jnp.max,
    "min": jnp.min,
    "norm": _norm,
}


@partial(jax.jit, static_argnames=("kind", "axis", "keepdims"))
def _reduce(x: jax.Array, kind: str, axis: int | tuple[int, ...] | None, keepdims: bool) -> jax.Array:
    return _KINDS[kind](x, axis=axis, keepdims=keepdims)


def reduce(
    x: jax.Array, kind: str = "sum", axis: int | Sequence[int] | None = None, keepdims: bool = False
) -> jax.Array:
    """Reduce along ``axis``: an axis, several, or all of them."""
    # Static arguments must be hashable; a list of axes is not.
    return _reduce(x, kind, axis if axis is None or isinstance(axis, int) else tuple(axis), bool(keepdims))


KERNELS: dict[str, Kernel] = {"default": Kernel(reduce)}
