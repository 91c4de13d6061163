"""Formulae over arrays in JAX, compiled into one loop."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache

import jax
import jax.numpy as jnp

from hpfracc.engine.backends.base import Kernel
from hpfracc.engine.numerics.expression import FUNCTIONS, parse_expression

__all__ = ["KERNELS"]

_FUNCTIONS: Mapping[str, Callable[..., jax.Array]] = {name: getattr(jnp, name) for name in FUNCTIONS}


@lru_cache(maxsize=1024)
def _function(expression: str, names: tuple[str, ...]) -> Callable[..., jax.Array]:
    compiled: Callable[..., jax.Array] = jax.jit(parse_expression(expression, names).compile_for(_FUNCTIONS))
    return compiled


def evaluate(*arrays: jax.Array, expression: str, names: Sequence[str]) -> jax.Array:
    """The formula over broadcast arrays."""
    return _function(expression, tuple(names))(*arrays)


KERNELS: dict[str, Kernel] = {"fused": Kernel(evaluate)}
