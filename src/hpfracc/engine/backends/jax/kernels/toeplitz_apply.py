"""Symmetric Toeplitz products in JAX: the generic kernels, each in one compilation, which repairs only if needed."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import lax

from hpfracc._xp import namespace
from hpfracc.engine.backends.base import Kernel
from hpfracc.engine.backends.generic.toeplitz_apply import make_kernels

__all__ = ["KERNELS"]


def _only_if(condition: jax.Array, function: Callable[[jax.Array], jax.Array], value: jax.Array) -> jax.Array:
    result: jax.Array = lax.cond(jnp.any(condition), function, lambda same: same, value)
    return result


KERNELS: dict[str, Kernel] = make_kernels(namespace("jax"), only_if=_only_if)
